//! `GET` of a collection with parameters of a query.
//!
//! A page is sent as that of any list is, with what was counted in headers, since the body has no place for it in every encoding.
//! Groups are a document of their own.

use std::sync::Arc;

use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, Response, StatusCode};
use keelson_meta::ApiError;
use keelson_meta::json::{Map, Value};
use keelson_registry::{Groups, ListPage, Registry, Target};

use super::list::{self, Showing};
use super::render::Renderer;
use crate::body::ResponseBody;
use crate::negotiation::{Subject, accepts_gzip};
use crate::respond;
use crate::service::ApiRequest;

/// How many objects the whole answer has.
const TOTAL_COUNT: HeaderName = HeaderName::from_static("keelson-total-count");
/// How many objects were looked at to find out which ones these are.
const LOOKED_AT: HeaderName = HeaderName::from_static("keelson-looked-at");

pub(super) async fn handle(
    registry: &Registry,
    target: &Target,
    request: Box<ApiRequest>,
) -> Result<Response<ResponseBody>, ApiError> {
    let options = request.query.list_options()?;
    let query = request.query.extended()?.ok_or_else(only_for_lists)?;
    if query.group_by.is_some() {
        let groups = registry.query_groups(target, &request.caller, options, query).await?;
        let mut response = respond::value(StatusCode::OK, &document(&groups), request.error_form);
        tell(response.headers_mut(), LOOKED_AT, groups.looked_at);
        return Ok(response);
    }
    let renderer = Renderer::negotiate(registry, target, &request, Subject::List)?;
    if query.mask.selects() && !renderer.shows_whole_objects() {
        return Err(ApiError::BadRequest(
            "keelson.io/fields is for whole objects, not for tables and metadata".to_owned(),
        ));
    }
    let page = registry.query(target, &request.caller, options, query).await?;
    let (total, looked_at) = (page.total, page.looked_at);
    // A table of a few kinds has an order of its own where none is asked for.
    let order = renderer.row_order().filter(|_| query.sort_by.is_by_key());
    let mask = (!query.mask.shows_all()).then(|| Arc::new(query.mask.clone()));
    let showing = Showing { order, mask };
    let page = ListPage {
        revision: page.revision,
        continue_token: page.continue_token,
        remaining: page.remaining,
        items: page.items,
    };
    let mut response = list::answer(target, renderer, page, showing, accepts_gzip(&request.parts.headers)).await?;
    tell(response.headers_mut(), TOTAL_COUNT, total);
    tell(response.headers_mut(), LOOKED_AT, looked_at);
    Ok(response)
}

/// What is told who asks something else than a list so.
pub(super) fn only_for_lists() -> ApiError {
    ApiError::BadRequest("parameters that begin with keelson.io/ are for lists alone".to_owned())
}

fn tell(headers: &mut HeaderMap, name: HeaderName, count: usize) {
    headers.insert(name, HeaderValue::from(count));
}

/// The groups as they are sent.
fn document(groups: &Groups) -> Value {
    let told = groups.groups.iter().map(|group| {
        let mut told = Map::new();
        if let Some(value) = &group.value {
            told.insert("value", value.clone());
        }
        told.insert("count", Value::from(group.count));
        Value::Object(told)
    });
    let mut metadata = Map::new();
    metadata.insert("resourceVersion", Value::from(groups.revision.to_string()));
    let mut document = Map::new();
    document.insert("kind", Value::from("ValueCounts"));
    document.insert("apiVersion", Value::from("keelson.io/v1alpha1"));
    document.insert("metadata", Value::Object(metadata));
    document.insert("values", Value::Array(told.collect()));
    document.insert("totalValues", Value::from(groups.total));
    Value::Object(document)
}
