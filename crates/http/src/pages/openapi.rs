//! `/openapi/v2` and `/openapi/v3`: documents that clients keep by their hash.

use std::fmt;

use http::header::{CACHE_CONTROL, ETAG, HeaderMap, HeaderValue, IF_NONE_MATCH, LOCATION, VARY};
use http::request::Parts;
use http::{Response, StatusCode};
use keelson_discovery::etag_matches;
use keelson_meta::ApiError;
use keelson_openapi::{Document, Form, OpenApi};
use keelson_resources::Catalogue;

use crate::body::{ResponseBody, empty};
use crate::negotiation::{MediaKind, accepts_gzip, negotiate, negotiate_openapi_v2};
use crate::respond;
use crate::version::GIT_VERSION;

/// The content type of the protobuf form of version 2. Older clients ask for it with an `@`, which no media type may have,
/// so it is never sent.
const V2_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// The documents; each is rendered when it is first asked for.
pub(super) struct Descriptions(OpenApi);

/// One of the documents.
pub(super) enum Description<'a> {
    /// All of it, in version 2.
    V2,
    /// Where the documents of version 3 are.
    V3Index,
    /// The document of a group version, by a path such as `apis/apps/v1`.
    V3(&'a str),
}

impl Descriptions {
    pub(super) fn new(catalogue: &'static Catalogue) -> Self {
        Self(OpenApi::new(catalogue, GIT_VERSION))
    }

    /// Answers a request for a document.
    pub(super) fn answer(
        &self,
        description: &Description<'_>,
        parts: &Parts,
    ) -> Result<Response<ResponseBody>, ApiError> {
        let form = match description {
            Description::V2 => negotiate_openapi_v2(&parts.headers)?,
            Description::V3Index | Description::V3(_) => negotiate(parts, &[MediaKind::Json]).map(|_| Form::Json)?,
        };
        let found = match description {
            Description::V2 => Some(self.0.v2(form)),
            Description::V3Index => Some(self.0.index()),
            Description::V3(path) => self.0.document(path),
        };
        let content_type = match form {
            Form::Json => MediaKind::Json.content_type(),
            Form::Protobuf => V2_PROTOBUF,
        };
        let Some(document) = found else { return Ok(respond::no_such_page()) };
        match asked_hash(parts) {
            Some(hash) if hash != document.hash => see_current(parts, document),
            asked => send(document, content_type, asked.is_some(), &parts.headers),
        }
    }
}

/// The hash in the query: the index names each document with its own.
fn asked_hash(parts: &Parts) -> Option<String> {
    let query = parts.uri.query().unwrap_or_default();
    form_urlencoded::parse(query.as_bytes()).find(|(key, _)| key == "hash").map(|(_, hash)| hash.into_owned())
}

/// Points a client with an old index at what there is now.
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
    } else {
        respond::compressed(StatusCode::OK, content_type, document.bytes.clone(), accepts_gzip(headers))
    };
    let headers = response.headers_mut();
    headers.insert(ETAG, super::header(&format!("\"{}\"", document.hash))?);
    headers.append(VARY, HeaderValue::from_static("Accept"));
    if by_hash {
        // The same path with the same hash can never mean anything else.
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("public, immutable, max-age=31536000"));
    }
    Ok(response)
}

impl fmt::Debug for Descriptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Descriptions").finish_non_exhaustive()
    }
}
