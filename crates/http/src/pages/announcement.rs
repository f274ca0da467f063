//! The page that announces the query parameters: a group version without resources.
//!
//! No list of groups contains it, so clients that discover resources neither request it nor see another ETag.

use http::request::Parts;
use http::{Response, StatusCode};
use keelson_meta::ApiError;
use keelson_meta::json::{Map, Value};
use keelson_query::{GROUP_VERSION, PARAMETERS, Parameter};

use crate::body::ResponseBody;
use crate::negotiation::negotiate_document;
use crate::{respond, search};

/// Its path.
pub(super) const PATH: &str = "/apis/keelson.io/v1alpha1";

/// Returns true for the page of this version of this group.
pub(super) fn is_at(group: &str, version: &str) -> bool {
    (group, version) == GROUP_VERSION
}

/// The page.
pub(super) fn answer(parts: &Parts) -> Result<Response<ResponseBody>, ApiError> {
    Ok(respond::value(StatusCode::OK, &document(), negotiate_document(parts)?))
}

/// An empty list of resources, with an additional field that other clients ignore.
fn document() -> Value {
    let (group, version) = GROUP_VERSION;
    let mut document = Map::new();
    document.insert("kind", Value::from("APIResourceList"));
    document.insert("apiVersion", Value::from("v1"));
    document.insert("groupVersion", Value::from(format!("{group}/{version}")));
    document.insert("resources", Value::Array(Vec::new()));
    document.insert("parameters", Value::Array(PARAMETERS.iter().map(described).collect()));
    document.insert("search", Value::from(search::PATH));
    Value::Object(document)
}

fn described(parameter: &Parameter) -> Value {
    let requests = parameter.requests.iter().map(|request| Value::from(request.as_str())).collect();
    let mut described = Map::new();
    described.insert("name", Value::from(parameter.name));
    described.insert("type", Value::from(parameter.value.as_str()));
    described.insert("requests", Value::Array(requests));
    described.insert("description", Value::from(parameter.description));
    Value::Object(described)
}
