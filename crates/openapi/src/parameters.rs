//! The parameters of requests, in tables: name, place, type and description, and the actions that have them.
//!
//! Only parameters that the server supports are listed. Parameters with the prefix `keelson.io/` come from the crate
//! that parses them.

use std::sync::LazyLock;

use keelson_query::{PARAMETERS, ParameterValue, Request};

/// A parameter.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Parameter {
    pub(crate) name: &'static str,
    pub(crate) place: Location,
    pub(crate) value: ValueType,
    pub(crate) description: &'static str,
}

/// The place of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    Path,
    Query,
}

/// The type of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueType {
    Text,
    Boolean,
    Integer,
}

impl Location {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Path => "path",
            Self::Query => "query",
        }
    }
}

impl ValueType {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Text => "string",
            Self::Boolean => "boolean",
            Self::Integer => "integer",
        }
    }
}

pub(crate) const NAME: Parameter = path("name", "name of the object");
pub(crate) const NAMESPACE: Parameter = path("namespace", "name of the namespace that holds the objects");
pub(crate) const PRETTY: Parameter =
    text("pretty", "If 'true', the output is pretty printed: indented JSON. Browsers and curl get that without it.");

/// The parameters for reading a custom object.
pub(crate) const READ: &[Parameter] = &[RESOURCE_VERSION];

/// The parameters of lists and watches.
pub(crate) const LIST: &[Parameter] = &[
    boolean(
        "allowWatchBookmarks",
        "Requests watch events of type \"BOOKMARK\", which carry nothing but the resourceVersion that the watch has reached.",
    ),
    CONTINUE,
    FIELD_SELECTOR,
    LABEL_SELECTOR,
    LIMIT,
    RESOURCE_VERSION,
    RESOURCE_VERSION_MATCH,
    SEND_INITIAL_EVENTS,
    TIMEOUT_SECONDS,
    boolean(
        "watch",
        "Watch for changes to the described resources and return them as a stream of added, modified and deleted objects, \
         from the resourceVersion on.",
    ),
];

/// The parameters with which a delete of a collection selects objects.
pub(crate) const SELECTION: &[Parameter] = &[
    CONTINUE,
    FIELD_SELECTOR,
    LABEL_SELECTOR,
    LIMIT,
    RESOURCE_VERSION,
    RESOURCE_VERSION_MATCH,
    SEND_INITIAL_EVENTS,
    TIMEOUT_SECONDS,
];

/// The parameters of creates and updates.
pub(crate) const WRITE: &[Parameter] = &[DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION];

/// The parameters of patches.
pub(crate) const PATCH: &[Parameter] = &[
    DRY_RUN,
    FIELD_MANAGER,
    FIELD_VALIDATION,
    boolean("force", "'true' lets an apply take over fields of other owners."),
];

/// The parameters of deletes.
pub(crate) const DELETE: &[Parameter] = &[
    DRY_RUN,
    integer(
        "gracePeriodSeconds",
        "The grace period of the deletion in seconds, at least 0. Zero deletes at once. The default depends on the kind.",
    ),
    boolean(
        "ignoreStoreReadErrorWithClusterBreakingPotential",
        "'true' deletes an object that cannot be read from the store, regardless of its finalizers and dependents.",
    ),
    boolean("orphanDependents", "Deprecated: use propagationPolicy, which excludes this one. 'true' keeps dependents."),
    text(
        "propagationPolicy",
        "The treatment of dependents: 'Orphan' keeps them, 'Background' deletes them after the object, 'Foreground' before it. \
         The default depends on the finalizers of the object and on its kind.",
    ),
];

/// The query parameters of lists, watches and reads that Kubernetes does not have.
static QUERY_OF_LISTS: LazyLock<Box<[Parameter]>> = LazyLock::new(|| query_of(&[Request::List, Request::Watch]));
static QUERY_OF_OBJECTS: LazyLock<Box<[Parameter]>> = LazyLock::new(|| query_of(&[Request::Get]));

fn query_of(requests: &[Request]) -> Box<[Parameter]> {
    let taken = PARAMETERS.iter().filter(|parameter| requests.iter().any(|taking| parameter.requests.contains(taking)));
    let described = |parameter: &keelson_query::Parameter| Parameter {
        name: parameter.name,
        place: Location::Query,
        value: match parameter.value {
            ParameterValue::Text => ValueType::Text,
            ParameterValue::Boolean => ValueType::Boolean,
            ParameterValue::Integer => ValueType::Integer,
        },
        description: parameter.description,
    };
    taken.map(described).collect()
}

/// The query parameters of lists that Kubernetes does not have.
pub(crate) fn query_of_lists() -> &'static [Parameter] {
    &QUERY_OF_LISTS
}

/// The query parameters of reads that Kubernetes does not have.
pub(crate) fn query_of_objects() -> &'static [Parameter] {
    &QUERY_OF_OBJECTS
}

/// All parameters. A parameter that is in several lists is repeated.
pub(crate) fn all() -> impl Iterator<Item = &'static Parameter> {
    const OWN: &[&[Parameter]] = &[&[NAME, NAMESPACE, PRETTY], READ, LIST, SELECTION, WRITE, PATCH, DELETE];
    OWN.iter().copied().flatten().chain(query_of_lists())
}

const CONTINUE: Parameter = text(
    "continue",
    "The token of the previous chunk. It is valid only for the same query. After it expires, the response is 410 with a token that \
     continues at the newest state.",
);
const FIELD_SELECTOR: Parameter = text(
    "fieldSelector",
    "A selector to restrict the list of returned objects by their fields. Defaults to everything.",
);
const LABEL_SELECTOR: Parameter = text(
    "labelSelector",
    "A selector to restrict the list of returned objects by their labels. Defaults to everything.",
);
const LIMIT: Parameter = integer(
    "limit",
    "The maximum number of objects in one chunk. If more follow, the metadata of the list has a token for `continue`. All chunks are \
     of one state.",
);
const RESOURCE_VERSION: Parameter = text(
    "resourceVersion",
    "Limits the resource version of the response: unset is the newest, 0 is any, and another value is that one or newer.",
);
const RESOURCE_VERSION_MATCH: Parameter = text(
    "resourceVersionMatch",
    "The meaning of resourceVersion in lists: 'Exact' or 'NotOlderThan'. Needs resourceVersion.",
);
const SEND_INITIAL_EVENTS: Parameter = boolean(
    "sendInitialEvents",
    "'true' begins a watch with one event for each existing object, followed by a bookmark. Needs resourceVersionMatch.",
);
const TIMEOUT_SECONDS: Parameter = integer("timeoutSeconds", "The timeout of a list or watch in seconds.");
const DRY_RUN: Parameter =
    text("dryRun", "'All' runs every stage of the write without persisting it. No other value is valid.");
const FIELD_MANAGER: Parameter = text(
    "fieldManager",
    "The name under which the changed fields are owned, at most 128 printable characters. Defaults to the beginning of the User-Agent.",
);
const FIELD_VALIDATION: Parameter = text(
    "fieldValidation",
    "The treatment of unknown and duplicate fields: 'Ignore' drops them, 'Warn' drops them with a warning each, 'Strict' \
     refuses the request.",
);

const fn path(name: &'static str, description: &'static str) -> Parameter {
    Parameter { name, place: Location::Path, value: ValueType::Text, description }
}

const fn text(name: &'static str, description: &'static str) -> Parameter {
    Parameter { name, place: Location::Query, value: ValueType::Text, description }
}

const fn boolean(name: &'static str, description: &'static str) -> Parameter {
    Parameter { name, place: Location::Query, value: ValueType::Boolean, description }
}

const fn integer(name: &'static str, description: &'static str) -> Parameter {
    Parameter { name, place: Location::Query, value: ValueType::Integer, description }
}
