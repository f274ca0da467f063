//! The parameters of a query, parsed together.
//!
//! All names begin with [`PREFIX`], so requests without such names cost nothing here. Unknown parameters with the
//! prefix fail, since the server would otherwise ignore them and return a wrong result.

use std::num::NonZeroUsize;

use crate::condition::Condition;
use crate::error::QueryError;
use crate::filter::Filter;
use crate::mask::Mask;
use crate::moment::Moment;
use crate::order::{SortBy, write_value};
use crate::parameters::{
    AT, COUNT, FIELDS, FILTER, GROUP_BY, MATCHES, OMIT_MANAGED_FIELDS, PAGE, PARAMETERS, SEARCH, SORT_BY, WHERE,
};
use crate::path::{Path, Segment};
use crate::search::Search;
use crate::value::{Subject, Value};

/// The member of an object that has `managedFields`.
const METADATA: &str = "metadata";
const MANAGED_FIELDS: &str = "managedFields";

/// The prefix of all parameter names.
pub const PREFIX: &str = "keelson.io/";

/// The maximum length of a value in bytes.
const MAX_BYTES: usize = 4096;

/// The cost for each byte of an object in several groups, in walks through it. The value of a group may have one byte.
const STEPS_OF_GROUPS: u64 = 8;

/// Returns true for a parameter of a query, known or unknown. A name counts if it has the domain at any place and in
/// any case, for example after a space, doubly encoded, or after a copied `amp;`. The client then gets an error instead
/// of a result that ignores the parameter.
///
/// Cost: a comparison at each byte of the name.
pub fn is_parameter(name: &str) -> bool {
    let domain = PREFIX.trim_end_matches('/').as_bytes();
    name.as_bytes().windows(domain.len()).any(|part| part.eq_ignore_ascii_case(domain))
}

/// The parameter of this name in [`PARAMETERS`].
///
/// # Errors
/// An unknown name.
pub fn parameter_name(name: &str) -> Result<&'static str, QueryError> {
    let known = PARAMETERS.iter().map(|parameter| parameter.name).find(|known| *known == name);
    known.ok_or_else(|| QueryError::Unknown { name: name.to_owned() })
}

/// The query parameters of a request.
#[derive(Clone, Debug, Default)]
pub struct Query {
    /// `sortBy`: the order.
    pub sort_by: SortBy,
    /// `page`: the page of `limit` objects, from 1.
    pub page: Option<NonZeroUsize>,
    /// `count`: requests the headers with counts for an otherwise ordinary list. Lists with other parameters always
    /// have them.
    pub counts: bool,
    /// `groupBy`: returns the number of objects for each value at this path instead of the objects.
    pub group_by: Option<Path>,
    /// `filter`: the filter expression.
    pub filter: Option<Filter>,
    /// `where`: the CEL condition.
    pub condition: Option<Condition>,
    /// `search`: the words to find. Without `sortBy` they also determine the order.
    pub search: Option<Search>,
    /// `at`: the point in the past.
    pub at: Option<Moment>,
    /// `matches`: returns the fields with the words instead of the objects.
    pub matches: bool,
    /// `fields` and `omitManagedFields`: the fields to show.
    pub mask: Mask,
}

impl Query {
    /// Parses the parameters of a request. `None` if there are no query parameters.
    ///
    /// # Errors
    /// The invalid parameter and the fault.
    pub fn parse<'q>(pairs: impl Iterator<Item = (&'q str, &'q str)>) -> Result<Option<Self>, QueryError> {
        let mut query = None;
        let mut seen = Vec::new();
        for (name, value) in pairs.filter(|(name, _)| is_parameter(name)) {
            let known = parameter_name(name)?;
            if seen.contains(&known) {
                return Err(QueryError::Repeated { name: known });
            }
            seen.push(known);
            if value.len() > MAX_BYTES {
                let why = "at most 4096 bytes are read";
                return Err(QueryError::Value { name: known, why, value: value.to_owned() });
            }
            query.get_or_insert_with(Self::default).set(known, value)?;
        }
        query.as_ref().map_or(Ok(()), Self::check)?;
        Ok(query)
    }

    /// # Errors
    /// Parameters that exclude each other.
    fn check(&self) -> Result<(), QueryError> {
        if self.group_by.is_some() && (!self.sort_by.is_by_key() || self.page.is_some() || self.matches) {
            return Err(QueryError::Together(
                "keelson.io/groupBy returns values and can't be combined with keelson.io/sortBy, keelson.io/page or keelson.io/matches",
            ));
        }
        if self.matches && self.search.is_none() {
            return Err(QueryError::Together("keelson.io/matches is about the words of a keelson.io/search"));
        }
        if self.matches && !self.mask.shows_all() {
            return Err(QueryError::Together(
                "keelson.io/matches returns no objects, so it excludes keelson.io/fields and keelson.io/omitManagedFields",
            ));
        }
        Ok(())
    }

    /// # Errors
    /// Parameters that watches do not support.
    pub fn check_watch(&self) -> Result<(), QueryError> {
        if self.group_by.is_some() || self.matches {
            return Err(QueryError::Together(
                "keelson.io/groupBy and keelson.io/matches are for lists alone: a watch returns objects",
            ));
        }
        if self.at.is_some() {
            return Err(QueryError::Together(
                "keelson.io/at is for lists and single objects: a watch begins with its resourceVersion",
            ));
        }
        Ok(())
    }

    /// # Errors
    /// Parameters that reads of one object do not support.
    pub fn check_get(&self) -> Result<(), QueryError> {
        match self.is_plain() && self.page.is_none() && !self.counts {
            true => Ok(()),
            false => Err(QueryError::Together(
                "of a single object keelson.io/at, keelson.io/fields and keelson.io/omitManagedFields are supported",
            )),
        }
    }

    /// Returns true if a watch with these parameters follows a page instead of all selected objects.
    pub fn is_live_page(&self) -> bool {
        self.page.is_some() || !self.sort_by.is_by_key()
    }

    fn set(&mut self, name: &'static str, value: &str) -> Result<(), QueryError> {
        match name {
            SORT_BY => self.sort_by = SortBy::parse(name, value)?,
            PAGE => {
                let is_large = value.bytes().all(|digit| digit.is_ascii_digit()) && value.parse::<usize>().is_err();
                let why = match is_large && !value.is_empty() {
                    true => "the number of a page has at most 64 bits",
                    false => "pages are numbered from 1",
                };
                let wrong = || QueryError::Value { name, why, value: value.to_owned() };
                self.page = Some(value.parse().map_err(|_| wrong())?);
            }
            GROUP_BY => self.group_by = Some(Path::parse(name, value)?),
            FILTER => self.filter = Some(Filter::parse(name, value)?),
            WHERE => self.condition = Some(Condition::parse(name, value)?),
            SEARCH => self.search = Some(Search::parse(name, value)?),
            // Both parameters may come in any order.
            FIELDS if self.mask.omits_managed_fields() => {
                self.mask = Mask::parse(name, value)?.without_managed_fields();
            }
            FIELDS => self.mask = Mask::parse(name, value)?,
            AT => self.at = Some(Moment::parse(name, value)?),
            MATCHES => self.matches = switch(name, value)?,
            OMIT_MANAGED_FIELDS if switch(name, value)? => {
                self.mask = std::mem::take(&mut self.mask).without_managed_fields();
            }
            OMIT_MANAGED_FIELDS => {}
            // Every response to a query has the counts.
            COUNT => match value {
                "true" => self.counts = true,
                _ => return Err(QueryError::Value { name, why: "true is expected", value: value.to_owned() }),
            },
            _ => unreachable!("only names that are known come here"),
        }
        Ok(())
    }

    /// The canonical form of the selection and order, which is equal for equal queries.
    pub fn canonical(&self) -> String {
        let order = match &self.group_by {
            Some(path) => format!("groupBy={path}"),
            None => format!("sortBy={}", self.sort_by),
        };
        let filter = self.filter.as_ref().map_or("", Filter::text);
        let condition = self.condition.as_ref().map_or("", Condition::text);
        let search = self.search.as_ref().map(Search::text).unwrap_or_default();
        format!("{order:?} {filter:?} {condition:?} {search:?}")
    }

    /// The maximum cost of selecting and ordering an object of this size, in bytes walked. Conditions are not included.
    pub fn cost(&self, bytes: u64) -> u64 {
        let filter = self.filter.as_ref().map_or(0, Filter::steps);
        let of_group = |path: &Path| if path.is_single() { 1 } else { STEPS_OF_GROUPS };
        let group = self.group_by.as_ref().map_or(0, of_group);
        let steps = (filter + self.sort_by.terms().len() as u64 + group).max(1);
        bytes * steps + self.search.as_ref().map_or(0, |search| search.cost(bytes))
    }

    /// The number of walks through an object that selecting and ordering it usually takes.
    pub fn walks(&self) -> usize {
        let tests = self.filter.as_ref().map_or(0, Filter::tests);
        let searched = if self.search.is_some() { Search::walks() } else { 0 };
        (tests + searched + self.sort_by.terms().len() + usize::from(self.group_by.is_some())).max(1)
    }

    /// The paths that the query reads, each with its parameter. Conditions have no paths.
    pub fn paths(&self) -> Vec<(&'static str, Path)> {
        let of_filter = self.filter.iter().flat_map(Filter::whole_paths).map(|path| (FILTER, path));
        let of_order = self.sort_by.paths().map(|path| (SORT_BY, path.clone()));
        let of_groups = self.group_by.iter().map(|path| (GROUP_BY, path.clone()));
        let of_mask = self.mask.paths().iter().map(|path| (FIELDS, path.clone()));
        of_filter.chain(of_order).chain(of_groups).chain(of_mask).collect()
    }

    /// The distinct members of an object that the query reads. Empty if it reads the whole object.
    pub fn heads(&self) -> Vec<&str> {
        if self.reads_cells() {
            return Vec::new();
        }
        let mut paths = self.filter.as_ref().map(Filter::paths).unwrap_or_default();
        paths.extend(self.sort_by.paths());
        paths.extend(&self.group_by);
        let of_paths = paths.into_iter().filter_map(|path| match path.segments().first() {
            Some(Segment::Member(name)) => Some(&**name),
            Some(Segment::Item(_) | Segment::Each) | None => None,
        });
        let mut heads: Vec<&str> = of_paths.chain(self.condition.iter().flat_map(Condition::heads)).collect();
        heads.sort_unstable();
        heads.dedup();
        heads
    }

    /// Returns true if the order needs the cells of each object.
    pub fn reads_cells(&self) -> bool {
        self.sort_by.columns().next().is_some()
    }

    /// Returns true if the query may read `managedFields`.
    pub fn reads_managed_fields(&self) -> bool {
        let mut paths = self.filter.as_ref().map(Filter::paths).unwrap_or_default();
        paths.extend(self.sort_by.paths());
        paths.extend(&self.group_by);
        let leads_there = |path: &&Path| match path.segments() {
            [Segment::Member(first), Segment::Member(second), ..] => {
                **first == *METADATA && **second == *MANAGED_FIELDS
            }
            [Segment::Member(first), ..] => **first == *METADATA,
            [Segment::Item(_) | Segment::Each, ..] | [] => true,
        };
        // A condition may read the whole object, or all of its metadata.
        let read = self.condition.as_ref().map(|condition| condition.heads().collect::<Vec<_>>());
        paths.iter().any(leads_there) || read.is_some_and(|heads| heads.is_empty() || heads.contains(&METADATA))
    }

    /// The parameter that determines the order or, without such a parameter, the selection.
    pub fn ordering_parameter(&self) -> &'static str {
        match self {
            Self { group_by: Some(_), .. } => GROUP_BY,
            _ if !self.sort_by.is_by_key() => SORT_BY,
            Self { search: Some(_), .. } => SEARCH,
            Self { filter: Some(_), .. } => FILTER,
            Self { condition: Some(_), .. } => WHERE,
            _ => COUNT,
        }
    }

    /// Returns true if the evaluation of one object may take a few milliseconds.
    pub fn is_slow(&self) -> bool {
        self.condition.is_some() || self.filter.as_ref().is_some_and(Filter::has_patterns)
    }

    /// Returns true if only the search determines selection and order.
    pub fn is_search_alone(&self) -> bool {
        self.search.is_some()
            && self.sort_by.is_by_key()
            && self.group_by.is_none()
            && self.filter.is_none()
            && self.condition.is_none()
    }

    /// Returns true if selection and order are those of an ordinary list.
    pub fn is_plain(&self) -> bool {
        self.sort_by.is_by_key()
            && self.group_by.is_none()
            && self.filter.is_none()
            && self.condition.is_none()
            && self.search.is_none()
    }

    /// Calls `out` with the sort keys of an object until it returns false. A grouped query has one sort key for each
    /// group of the object, others have one for the order. If a searched word is missing, there is no sort key.
    /// `fields` are further texts to search.
    pub fn places<'f>(
        &self,
        subject: &Subject<'_>,
        fields: impl Iterator<Item = &'f str>,
        mut out: impl FnMut(&[u8]) -> bool,
    ) {
        let mut place = Vec::new();
        if let Some(search) = &self.search {
            let Some(score) = search.score(subject, fields) else { return };
            if self.sort_by.is_by_key() && self.group_by.is_none() {
                // The best score comes first.
                out(&Search::place(score));
                return;
            }
        }
        let Some(path) = &self.group_by else {
            self.sort_by.write_place(subject, &mut place);
            out(&place);
            return;
        };
        let mut found = false;
        subject.visit(path, |value| {
            found = true;
            place.clear();
            write_value(Some(&value), &mut place);
            out(&place)
        });
        if !found {
            write_value(None, &mut place);
            out(&place);
        }
    }

    /// The query that indexes objects by their values at a path, as groups.
    pub fn index(path: Path) -> Self {
        Self { group_by: Some(path), ..Self::default() }
    }

    /// The sort keys of a text in an [index](Self::index), and of a number or boolean that is written like this text.
    pub fn places_in_index(text: &str) -> impl Iterator<Item = Vec<u8>> {
        let is_number = text.starts_with(|first: char| first == '-' || first.is_ascii_digit());
        let other = match text {
            "true" | "false" => Some(Value::Bool(text == "true")),
            _ => is_number.then(|| Value::Number(text.into())),
        };
        [Some(Value::Text(text.into())), other].into_iter().flatten().map(|value| {
            let mut place = Vec::new();
            write_value(Some(&value), &mut place);
            place
        })
    }

    /// The value of an object that has this sort key in a grouped list. `None` if there is none.
    pub fn value_at<'a>(&self, subject: &Subject<'a>, place: &[u8]) -> Option<Value<'a>> {
        let mut found = None;
        let mut written = Vec::new();
        subject.visit(self.group_by.as_ref()?, |value| {
            written.clear();
            write_value(Some(&value), &mut written);
            let is_it = written == place;
            if is_it {
                found = Some(value);
            }
            !is_it
        });
        found
    }
}

/// A boolean parameter.
fn switch(name: &'static str, value: &str) -> Result<bool, QueryError> {
    match value {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(QueryError::Value { name, why: "true or false is expected", value: value.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(pairs: &[(&str, &str)]) -> Result<Option<Query>, String> {
        Query::parse(pairs.iter().copied()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_request_without_its_parameters_is_no_query() {
        assert!(
            parse(&[("limit", "5"), ("sortBy", "%%"), ("page", "x"), ("keelson.i\u{f6}/", "x")]).unwrap().is_none()
        );
        assert!(parse(&[("keelson.io/count", "true")]).unwrap().unwrap().is_plain());
        let query = parse(&[("keelson.io/sortBy", "-spec.n:number"), ("keelson.io/page", "3")]).unwrap().unwrap();
        assert_eq!(query.canonical(), r#""sortBy=-.spec.n:number" "" "" """#);
        assert_eq!(query.page, NonZeroUsize::new(3));
    }

    #[test]
    fn unreadable_values_are_named() {
        let check = |pairs: &[(&str, &str)], expect: &str| assert_eq!(parse(pairs).unwrap_err(), expect);
        check(
            &[("keelson.io/sort", "a")],
            "unknown query parameter \"keelson.io/sort\"; known parameters are keelson.io/sortBy, keelson.io/page, keelson.io/count, \
             keelson.io/groupBy, keelson.io/filter, keelson.io/where, keelson.io/search, keelson.io/matches, \
             keelson.io/at, keelson.io/fields, keelson.io/omitManagedFields",
        );
        for name in [
            "Keelson.io/filter",
            "KEELSON.IO/page",
            "keelson.io/sortby",
            "keelson.io/",
            "kEELSON.IO",
            " keelson.io/filter",
            "keelson.io%2Ffilter",
            "amp;keelson.io/filter",
        ] {
            let error = parse(&[(name, "1")]).unwrap_err();
            assert!(error.starts_with(&format!("unknown query parameter {name:?}; ")), "{error}");
        }
        check(&[("keelson.io/page", "1"), ("keelson.io/page", "2")], "keelson.io/page is given more than once");
        check(&[("keelson.io/page", "0")], "keelson.io/page: pages are numbered from 1, not \"0\"");
        check(&[("keelson.io/count", "")], "keelson.io/count: true is expected, not \"\"");
        check(
            &[("keelson.io/groupBy", "a"), ("keelson.io/page", "1")],
            "keelson.io/groupBy returns values and can't be combined with keelson.io/sortBy, keelson.io/page or keelson.io/matches",
        );
        check(&[("keelson.io/matches", "true")], "keelson.io/matches is about the words of a keelson.io/search");
        check(&[("keelson.io/matches", "1")], "keelson.io/matches: true or false is expected, not \"1\"");
    }

    proptest! {
        #[test]
        fn any_parameters_are_read_or_refused(
            pairs in proptest::collection::vec(("(keelson.io/)?(sortBy|page|count|groupBy|filter|where|search|fields|omitManagedFields|x)", "[-a.,:0-9\\[\\]'*]{0,12}"), 0..4)
        ) {
            let _ = Query::parse(pairs.iter().map(|(name, value)| (&**name, &**value)));
        }
    }
}
