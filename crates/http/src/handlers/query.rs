//! `GET` of a collection with query parameters.
//!
//! A page is sent like that of any list. Its counts are in headers, since not every encoding has a field for them.
//! Groups are a document of their own.

use std::sync::Arc;

use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, Response, StatusCode};
use keelson_meta::ApiError;
use keelson_meta::json::{Map, Value, about_bytes};
use keelson_query::{GROUP_VERSION, Mask, Query, WordMatch};
use keelson_registry::{Caller, FailedEvaluations, Groups, ListPage, MatchedPlaces, Matches, Registry, Target};

use super::list::{self, ItemChanges};
use super::list_body::done;
use super::render::Renderer;
use crate::body::ResponseBody;
use crate::negotiation::{MediaType, Subject, accepts_gzip, negotiate_document};
use crate::respond;
use crate::service::ApiRequest;

/// The number of objects in the whole result.
pub(super) const TOTAL_COUNT: HeaderName = HeaderName::from_static("keelson-total-count");
/// The number of scanned objects, sent only to callers that may list all objects of the resource.
const OBJECTS_SCANNED: HeaderName = HeaderName::from_static("keelson-objects-scanned");
/// The deprecated name of [`OBJECTS_SCANNED`], sent beside it for one release.
const LOOKED_AT: HeaderName = HeaderName::from_static("keelson-looked-at");
/// The number of objects for which the condition has no value, sent if there are any.
const FAILED_EVALUATIONS: HeaderName = HeaderName::from_static("keelson-failed-evaluations");

pub(super) async fn handle(
    registry: &Registry,
    target: &Target,
    request: Box<ApiRequest>,
) -> Result<Response<ResponseBody>, ApiError> {
    let options = request.query.list_options()?;
    let query = request.query.extended()?.ok_or_else(|| request.query.refusal_beyond_reads())?;
    target.check_query(query, &request.caller)?;
    if query.group_by.is_some() {
        let media = negotiate_document(&request.parts)?;
        let groups = registry.query_groups(target, &request.caller, options, query).await?;
        let mut response = written(document(&groups, None), media).await;
        add_scanned_header(registry, target, &request.caller, response.headers_mut(), groups.looked_at).await;
        add_failures_header(response.headers_mut(), &request.caller, &groups.failures);
        return Ok(response);
    }
    if query.matches {
        let media = negotiate_document(&request.parts)?;
        let matches = registry.query_matches(target, &request.caller, options, query).await?;
        let mut response = written(document_of_matches(&matches), media).await;
        add_count_header(response.headers_mut(), TOTAL_COUNT, matches.total);
        add_scanned_header(registry, target, &request.caller, response.headers_mut(), matches.looked_at).await;
        add_failures_header(response.headers_mut(), &request.caller, &matches.failures);
        return Ok(response);
    }
    let renderer = Renderer::negotiate(registry, target, &request, Subject::List)?;
    let mask = mask(Some(query), &renderer)?;
    let page = registry.query(target, &request.caller, options, query).await?;
    let (total, looked_at, failures) = (page.total, page.looked_at, page.failures);
    // The tables of a few kinds have an order of their own if the query has none.
    let order = renderer.row_order().filter(|_| query.sort_by.is_by_key());
    let shard = registry.shard(options)?.map(|shard| shard.to_string());
    let showing = ItemChanges { order, mask, position: None, shard };
    let page = ListPage {
        revision: page.revision,
        continue_token: page.continue_token,
        remaining: page.remaining,
        items: page.items,
    };
    let mut response = list::answer(target, renderer, page, showing, accepts_gzip(&request.parts.headers)).await?;
    add_count_header(response.headers_mut(), TOTAL_COUNT, total);
    add_scanned_header(registry, target, &request.caller, response.headers_mut(), looked_at).await;
    add_failures_header(response.headers_mut(), &request.caller, &failures);
    Ok(response)
}

/// Adds the number of scanned objects to the response, if the caller may list all objects of the resource. Views and
/// indexes catch up with writes in every namespace, so the number would reveal other objects.
async fn add_scanned_header(
    registry: &Registry,
    target: &Target,
    caller: &Caller,
    headers: &mut HeaderMap,
    count: usize,
) {
    if registry.may_list_all(target, caller).await {
        add_count_header(headers, OBJECTS_SCANNED, count);
        add_count_header(headers, LOOKED_AT, count);
    }
}

/// Adds the number of objects for which the condition has no value, with a warning. The request selects all of these
/// objects.
pub(super) fn add_failures_header(headers: &mut HeaderMap, caller: &Caller, failures: &FailedEvaluations) {
    let FailedEvaluations { count, first } = failures;
    if *count == 0 {
        return;
    }
    add_count_header(headers, FAILED_EVALUATIONS, *count);
    let objects = if *count == 1 { "1 object, which is" } else { &*format!("{count} objects, which are") };
    let why = first.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
    caller.warnings().add(format!("keelson.io/where has no value for {objects} not in the answer{why}"));
}

/// The mask that selects the fields of each object, by the query and by `Accept`. `None` if the whole object is shown.
///
/// # Errors
/// 400 for forms that are built from whole objects.
pub(super) fn mask(query: Option<&Query>, renderer: &Renderer) -> Result<Option<Arc<Mask>>, ApiError> {
    let mut mask = query.map(|query| query.mask.clone()).unwrap_or_default();
    if mask.selects() && !renderer.shows_whole_objects() {
        return Err(ApiError::BadRequest(
            "keelson.io/fields is for whole objects, not for tables and metadata".to_owned(),
        ));
    }
    if renderer.drops_managed_fields() {
        mask = mask.without_managed_fields();
    }
    Ok((!mask.shows_all()).then(|| Arc::new(mask)))
}

pub(super) fn add_count_header(headers: &mut HeaderMap, name: HeaderName, count: usize) {
    headers.insert(name, HeaderValue::from(count));
}

/// The response with a document. A large one is written beside the threads of requests.
async fn written(document: Value, media: MediaType) -> Response<ResponseBody> {
    let bytes = about_bytes(&document) as u64;
    done(bytes, move || respond::value(StatusCode::OK, &document, media)).await
}

/// The document of the groups, with a text in place of the revision if there is one.
pub(super) fn document(groups: &Groups, position: Option<&str>) -> Value {
    let told = groups.groups.iter().map(|group| {
        let mut told = Map::new();
        if let Some(value) = &group.value {
            told.insert("value", value.clone());
        }
        told.insert("count", Value::from(group.count));
        Value::Object(told)
    });
    let mut metadata = Map::new();
    let position = position.map_or_else(|| groups.revision.to_string(), str::to_owned);
    metadata.insert("resourceVersion", Value::from(position));
    let mut document = Map::new();
    head("ValueCounts", metadata, &mut document);
    document.insert("values", Value::Array(told.collect()));
    document.insert("totalValues", Value::from(groups.total));
    Value::Object(document)
}

/// Adds the first fields of a document with a kind of keelson's own.
pub(super) fn head(kind: &str, metadata: Map, document: &mut Map) {
    document.insert("kind", Value::from(kind));
    document.insert("apiVersion", Value::from(format!("{}/{}", GROUP_VERSION.0, GROUP_VERSION.1)));
    document.insert("metadata", Value::Object(metadata));
}

/// The document of the matches.
fn document_of_matches(matches: &Matches) -> Value {
    let mut metadata = Map::new();
    metadata.insert("resourceVersion", Value::from(matches.revision.to_string()));
    if let Some(token) = &matches.continue_token {
        metadata.insert("continue", Value::from(token.as_str()));
    }
    if let Some(remaining) = matches.remaining {
        metadata.insert("remainingItemCount", Value::from(remaining));
    }
    let mut document = Map::new();
    head("SearchMatches", metadata, &mut document);
    document.insert("items", Value::Array(matches.objects.iter().map(matched).collect()));
    Value::Object(document)
}

fn matched(object: &MatchedPlaces) -> Value {
    let mut told = Map::new();
    if let Some(namespace) = &object.namespace {
        told.insert("namespace", Value::from(namespace.as_str()));
    }
    told.insert("name", Value::from(object.name.as_str()));
    let score: u64 = object.matches.iter().map(|word| u64::from(word.points)).sum();
    told.insert("score", Value::from(score));
    told.insert("matches", Value::Array(object.matches.iter().map(word_match).collect()));
    Value::Object(told)
}

fn word_match(found: &WordMatch) -> Value {
    let mut told = Map::new();
    for (name, text) in
        [("word", &*found.word), ("field", &*found.field), ("text", &*found.text), ("manner", found.manner.as_str())]
    {
        told.insert(name, Value::from(text));
    }
    told.insert("points", Value::from(u64::from(found.points)));
    Value::Object(told)
}
