//! The parameters in API documents: names, value types, requests, and descriptions.
//!
//! API documents are generated from this table, so they agree with the parser. `docs/reference/queries.md` has the full
//! semantics.

use keelson_meta::SERVER_GROUP;

use self::Request::{Get, List, Watch};

/// The group version that announces the parameters. It has no resources.
pub const GROUP_VERSION: (&str, &str) = (SERVER_GROUP, "v1alpha1");

/// A parameter in API documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// The type of its value.
    pub value: ParameterValue,
    /// The requests that support it.
    pub requests: &'static [Request],
    /// Its purpose, in one sentence.
    pub description: &'static str,
}

/// The type of a parameter's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterValue {
    /// A text.
    Text,
    /// `true` or `false`.
    Boolean,
    /// A number from 1.
    Integer,
}

/// A request that supports parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// A read of one object.
    Get,
    /// A list.
    List,
    /// A watch.
    Watch,
}

impl ParameterValue {
    /// The name in API documents.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Text => "string",
            Self::Boolean => "boolean",
            Self::Integer => "integer",
        }
    }
}

impl Request {
    /// The name in API documents.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
        }
    }
}

/// The parameter with the paths of the order.
pub(crate) const SORT_BY: &str = "keelson.io/sortBy";
/// The parameter with the number of a page.
pub(crate) const PAGE: &str = "keelson.io/page";
/// The parameter that requests the headers with counts.
pub(crate) const COUNT: &str = "keelson.io/count";
/// The parameter with the path whose values are counted.
pub(crate) const GROUP_BY: &str = "keelson.io/groupBy";
/// The parameter with the filter expression.
pub(crate) const FILTER: &str = "keelson.io/filter";
/// The parameter with the CEL condition.
pub(crate) const WHERE: &str = "keelson.io/where";
/// The parameter with the words of a search.
pub(crate) const SEARCH: &str = "keelson.io/search";
/// The parameter that requests the fields in which a search found its words.
pub(crate) const MATCHES: &str = "keelson.io/matches";
/// The parameter with the point in the past.
pub(crate) const AT: &str = "keelson.io/at";
/// The parameter with the fields to show of each object.
pub(crate) const FIELDS: &str = "keelson.io/fields";
/// The parameter that hides `managedFields`.
pub(crate) const OMIT_MANAGED_FIELDS: &str = "keelson.io/omitManagedFields";

/// All parameters, in the order of the API documents.
pub const PARAMETERS: &[Parameter] = &[
    text(
        SORT_BY,
        &[List, Watch],
        "Comma-separated paths or columns of the sort order, as [-]PATH[:TYPE] or [-]column('NAME').",
    ),
    Parameter {
        name: PAGE,
        value: ParameterValue::Integer,
        requests: &[List, Watch],
        description: "The page of limit objects, from 1.",
    },
    boolean(COUNT, &[List, Watch], "'true' adds the headers with counts that every query has."),
    text(GROUP_BY, &[List], "A path. The response has the number of objects for each value there."),
    text(FILTER, &[List, Watch], "An expression over fields that selects the objects."),
    text(WHERE, &[List, Watch], "A CEL expression over 'object' that selects the objects."),
    text(SEARCH, &[List, Watch], "Words that all occur in each object of the response, the best matches first."),
    boolean(MATCHES, &[List], "'true' returns the places of the search's words instead of the objects."),
    text(AT, &[Get, List], "A revision or an RFC 3339 time in the past at which to read."),
    text(FIELDS, &[Get, List, Watch], "Comma-separated paths of the fields to show."),
    boolean(OMIT_MANAGED_FIELDS, &[Get, List, Watch], "'true' leaves out metadata.managedFields."),
];

const fn text(name: &'static str, requests: &'static [Request], description: &'static str) -> Parameter {
    Parameter { name, value: ParameterValue::Text, requests, description }
}

const fn boolean(name: &'static str, requests: &'static [Request], description: &'static str) -> Parameter {
    Parameter { name, value: ParameterValue::Boolean, requests, description }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::path::Path;

    use super::*;
    use crate::query::{PREFIX, Query};

    const HEAD: &str = "\
# Query parameters

Generated from the parameters that the API announces at `/apis/keelson.io/v1alpha1` by `cargo xtask docs --write`. [Queries](queries.md)
describes values, responses and costs.

| parameter | type | requests | meaning |
|---|---|---|---|
";

    #[test]
    fn the_reference_of_parameters_is_that_of_the_code() {
        let mut expected = HEAD.to_owned();
        for Parameter { name, value, requests, description } in PARAMETERS {
            let requests = requests.iter().map(|request| request.as_str()).collect::<Vec<_>>().join(", ");
            writeln!(expected, "| `{name}` | {} | {requests} | {description} |", value.as_str()).unwrap();
        }
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/query-parameters.md");
        if std::env::var_os("KEELSON_UPDATE").is_some() {
            std::fs::write(&file, &expected).unwrap();
        }
        let written = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(written == expected, "docs/reference/query-parameters.md differs: KEELSON_UPDATE=1 writes it anew");
    }

    #[test]
    fn announced_writes_are_read() {
        for (place, parameter) in PARAMETERS.iter().enumerate() {
            assert!(parameter.name.starts_with(PREFIX), "{}", parameter.name);
            assert!(PARAMETERS[..place].iter().all(|other| other.name != parameter.name), "{}", parameter.name);
            assert!(!parameter.requests.is_empty(), "{}", parameter.name);
            // The parser knows every parameter of the table.
            let read = Query::parse([(parameter.name, "")].into_iter());
            let told = read.err().map(|error| error.to_string()).unwrap_or_default();
            assert!(!told.starts_with("unknown"), "{told}");
        }
    }
}
