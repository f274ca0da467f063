//! `/openapi/v2` and `/openapi/v3`: documents that clients cache by their hash.
//!
//! A missing document is rendered on a blocking thread, since that takes longer than a request may block a runtime
//! thread.

use std::sync::Arc;

use http::header::{CACHE_CONTROL, ETAG, HeaderMap, HeaderValue, IF_NONE_MATCH, LOCATION, VARY};
use http::request::Parts;
use http::{Response, StatusCode};
use keelson_discovery::etag_matches;
use keelson_meta::ApiError;
use keelson_openapi::{Document, DocumentEncoding, DocumentId};

use crate::body::{ResponseBody, empty};
use crate::negotiation::{MediaKind, OpenApiVersion, accepts_gzip, negotiate, negotiate_openapi};
use crate::pages::ServedDocuments;
use crate::respond;

/// The content type of OpenAPI 2 in protobuf. Older clients request it with an `@`, which no media type may contain, so
/// the server never sends that.
const V2_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
/// The content type of OpenAPI 3 in protobuf.
const V3_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf";

/// An OpenAPI document.
pub(super) enum Description<'a> {
    /// The whole document of OpenAPI 2.
    V2,
    /// The index of OpenAPI 3.
    V3Index,
    /// The document of a group version, by a path such as `apis/apps/v1`.
    V3(&'a str),
}

/// Answers a request for a document.
pub(super) async fn answer(
    documents: &Arc<ServedDocuments>,
    description: &Description<'_>,
    parts: &Parts,
) -> Result<Response<ResponseBody>, ApiError> {
    let form = match description {
        Description::V2 => negotiate_openapi(&parts.headers, OpenApiVersion::V2)?,
        Description::V3(_) => negotiate_openapi(&parts.headers, OpenApiVersion::V3)?,
        Description::V3Index => negotiate(parts, &[MediaKind::Json]).map(|_| DocumentEncoding::Json)?,
    };
    let wanted = match description {
        Description::V2 => DocumentId::V2(form),
        Description::V3Index => DocumentId::V3Index,
        Description::V3(path) => DocumentId::V3((*path).to_owned(), form),
    };
    let content_type = match (form, description) {
        (DocumentEncoding::Json, _) => MediaKind::Json.content_type(),
        (DocumentEncoding::Protobuf, Description::V2) => V2_PROTOBUF,
        (DocumentEncoding::Protobuf, Description::V3Index | Description::V3(_)) => V3_PROTOBUF,
    };
    let Some(document) = rendered(documents, &wanted, accepts_gzip(&parts.headers)).await? else {
        return Ok(not_there());
    };
    match asked_hash(parts) {
        Some(hash) if hash != document.hash => see_current(parts, &document),
        asked => send(&document, content_type, asked.is_some(), &parts.headers),
    }
}

/// A document. Rendered outside the runtime's threads if it is not cached.
async fn rendered(
    documents: &Arc<ServedDocuments>,
    wanted: &DocumentId,
    gzip: bool,
) -> Result<Option<Arc<Document>>, ApiError> {
    if documents.openapi.is_ready(wanted) {
        return Ok(documents.openapi.document(wanted));
    }
    let (documents, wanted) = (documents.clone(), wanted.clone());
    let make = move || {
        let document = documents.openapi.document(&wanted)?;
        if respond::is_compressed(gzip, document.length()) {
            document.compressed(respond::COMPRESS);
        }
        Some(document)
    };
    let made = keelson_supervision::spawn_blocking(make).await;
    made.map_err(|error| ApiError::Internal(format!("the document could not be made: {error}")))
}

/// The 404 response without a text, as upstream.
fn not_there() -> Response<ResponseBody> {
    let mut response = Response::new(empty());
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}

/// The hash in the query. The index contains the hash of each document.
fn asked_hash(parts: &Parts) -> Option<String> {
    let query = parts.uri.query().unwrap_or_default();
    form_urlencoded::parse(query.as_bytes()).find(|(key, _)| key == "hash").map(|(_, hash)| hash.into_owned())
}

/// Redirects a client with an old index to the current document.
fn see_current(parts: &Parts, document: &Document) -> Result<Response<ResponseBody>, ApiError> {
    let mut response = Response::new(empty());
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    let location = format!("{}?hash={}", parts.uri.path(), document.hash);
    response.headers_mut().insert(LOCATION, super::header(&location)?);
    Ok(response)
}

fn send(
    document: &Document,
    content_type: &'static str,
    by_hash: bool,
    headers: &HeaderMap,
) -> Result<Response<ResponseBody>, ApiError> {
    let known = |value: &HeaderValue| value.to_str().is_ok_and(|tags| etag_matches(tags, &document.hash));
    let mut response = if headers.get_all(IF_NONE_MATCH).iter().any(known) {
        let mut response = Response::new(empty());
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        response
    } else if respond::is_compressed(accepts_gzip(headers), document.length()) {
        respond::gzipped(StatusCode::OK, content_type, document.compressed(respond::COMPRESS))
    } else {
        respond::bytes(StatusCode::OK, content_type, document.bytes())
    };
    let headers = response.headers_mut();
    headers.insert(ETAG, super::header(&format!("\"{}\"", document.hash))?);
    headers.append(VARY, HeaderValue::from_static("Accept"));
    if by_hash {
        // The content at a path with a hash never changes.
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("public, immutable, max-age=31536000"));
    }
    Ok(response)
}
