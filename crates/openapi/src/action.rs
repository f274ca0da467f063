//! The actions of operations. An action determines the operation's method, id, parameters, body and responses.
//!
//! Both versions of OpenAPI use this table. Their syntax is in `v2` and `v3`.

use crate::parameters::{self, Parameter};

/// The action of an operation. Each has one method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Lists the served API, without a resource.
    Discover,
    Get,
    List,
    Post,
    Put,
    Patch,
    Delete,
    DeleteCollection,
    /// Watches one object on the deprecated path.
    Watch,
    /// Watches a collection on the deprecated path.
    WatchList,
}

/// The body of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    None,
    Object,
    Patch,
    Options,
}

/// The origin of the objects in an operation, which determines their media types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    BuiltIn,
    Custom,
    /// The server itself, for example its version, which is not an object.
    Server,
}

const APPLY: &str = "application/apply-patch+yaml";
const JSON: &str = "application/json";
const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const STRATEGIC_MERGE_PATCH: &str = "application/strategic-merge-patch+json";
const PROTOBUF_STREAM: &str = "application/vnd.kubernetes.protobuf;stream=watch";
const STREAM: &str = "application/json;stream=watch";
const YAML: &str = "application/yaml";

impl Action {
    /// The key of the operation on its path, which is the HTTP method.
    pub(crate) const fn method(self) -> &'static str {
        match self {
            Self::Discover | Self::Get | Self::List | Self::Watch | Self::WatchList => "get",
            Self::Post => "post",
            Self::Put => "put",
            Self::Patch => "patch",
            Self::Delete | Self::DeleteCollection => "delete",
        }
    }

    /// The value of `x-kubernetes-action`.
    pub(crate) const fn name(self) -> Option<&'static str> {
        match self {
            Self::Discover => None,
            Self::Get => Some("get"),
            Self::List => Some("list"),
            Self::Post => Some("post"),
            Self::Put => Some("put"),
            Self::Patch => Some("patch"),
            Self::Delete => Some("delete"),
            Self::DeleteCollection => Some("deletecollection"),
            Self::Watch => Some("watch"),
            Self::WatchList => Some("watchlist"),
        }
    }

    pub(crate) const fn body(self) -> Body {
        match self {
            Self::Discover | Self::Get | Self::List | Self::Watch | Self::WatchList => Body::None,
            Self::Post | Self::Put => Body::Object,
            Self::Patch => Body::Patch,
            Self::Delete | Self::DeleteCollection => Body::Options,
        }
    }

    /// The status codes of successful responses, with their descriptions.
    pub(crate) const fn codes(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Discover | Self::Get | Self::List | Self::DeleteCollection | Self::Watch | Self::WatchList => {
                &[("200", "OK")]
            }
            Self::Post => &[("200", "OK"), ("201", "Created"), ("202", "Accepted")],
            Self::Put | Self::Patch => &[("200", "OK"), ("201", "Created")],
            Self::Delete => &[("200", "OK"), ("202", "Accepted")],
        }
    }

    /// The media types of its responses.
    pub(crate) const fn produces(self, origin: Origin) -> &'static [&'static str] {
        match (self, origin) {
            (Self::List, Origin::BuiltIn) => &[JSON, YAML, PROTOBUF, STREAM, PROTOBUF_STREAM],
            (Self::Watch | Self::WatchList, Origin::BuiltIn) => &[JSON, PROTOBUF, STREAM, PROTOBUF_STREAM],
            (Self::List, Origin::Custom) => &[JSON, YAML],
            (Self::Watch | Self::WatchList, Origin::Custom) => &[JSON, STREAM],
            (_, Origin::BuiltIn) => &[JSON, YAML, PROTOBUF],
            (_, Origin::Custom) => &[JSON, YAML],
            (_, Origin::Server) => &[JSON],
        }
    }

    /// The verb in the operation's id, and the words before the kind in its description.
    pub(crate) const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Discover => ("get", "get the resources of"),
            Self::Get => ("read", "read the specified"),
            Self::List => ("list", "list or watch objects of kind"),
            Self::Post => ("create", "create"),
            Self::Put => ("replace", "replace the specified"),
            Self::Patch => ("patch", "change parts of the specified"),
            Self::Delete => ("delete", "delete"),
            Self::DeleteCollection => ("delete", "delete a collection of"),
            Self::Watch | Self::WatchList => ("watch", "deprecated: watch by the parameter of a list; watch"),
        }
    }

    pub(crate) fn parameters(self, origin: Origin) -> Vec<&'static [Parameter]> {
        match self {
            Self::Get if origin == Origin::Custom => vec![parameters::READ],
            // No parameters: those of watches are listed on their path, which has no other operation.
            Self::Discover | Self::Get | Self::Watch | Self::WatchList => vec![],
            Self::List => vec![parameters::LIST, parameters::query_of_lists()],
            Self::Post | Self::Put => vec![parameters::WRITE],
            Self::Patch => vec![parameters::PATCH],
            Self::Delete => vec![parameters::DELETE],
            Self::DeleteCollection => vec![parameters::SELECTION, parameters::DELETE],
        }
    }
}

impl Body {
    /// The supported media types of a body.
    pub(crate) const fn types(self, origin: Origin) -> &'static [&'static str] {
        match (self, origin) {
            (Self::None, _) => &[],
            (Self::Patch, Origin::BuiltIn) => &[APPLY, JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH],
            (Self::Patch, Origin::Custom | Origin::Server) => &[APPLY, JSON_PATCH, MERGE_PATCH],
            (Self::Object | Self::Options, Origin::BuiltIn) => &[JSON, YAML, PROTOBUF],
            (Self::Object | Self::Options, Origin::Custom | Origin::Server) => &[JSON, YAML],
        }
    }

    /// Returns true if the body is required.
    pub(crate) const fn required(self) -> bool {
        matches!(self, Self::Object | Self::Patch)
    }
}
