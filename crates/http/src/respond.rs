//! Builds responses: objects, errors and plain texts, with their headers.
//!
//! Only this module turns an [`ApiError`] into HTTP. The error itself has its text and status code. This module adds
//! the encoding, `Retry-After` and `Vary`. The filters add `Audit-Id` and the default `Cache-Control`.

use std::collections::HashSet;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER, VARY, WARNING};
use http::{Response, StatusCode};
use http_body_util::StreamBody;
use hyper::body::Frame;
use keelson_codec::gzip::{DeflateBlock, MemberWriter};
use keelson_codec::outline::{Content, Outline};
use keelson_codec::{json, pretty, yaml};
use keelson_meta::control_characters::visible;
use keelson_meta::json::Value;
use keelson_meta::status::StatusDetails;
use keelson_meta::{ApiError, Status};
use keelson_registry::Warnings;

use crate::body::{self, BodyError, ResponseBody, full};
use crate::negotiation::{MediaKind, MediaType};

/// Responses larger than this many bytes are compressed for clients that accept it (128 KiB, as upstream).
pub const GZIP_THRESHOLD_BYTES: usize = 128 * 1024;
/// Documents of discovery larger than this many bytes are compressed. Every client gets them at its start, and their
/// compressed form is kept.
pub const GZIP_DISCOVERY_BYTES: usize = 4 * 1024;

/// The initial capacity for header fields. Most responses have fewer, including those of filters and the connection.
const USUAL_FIELDS: usize = 12;
const PLAIN_TEXT: &str = "text/plain; charset=utf-8";
const NOSNIFF: (HeaderName, HeaderValue) = (http::header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));

/// The response to a failed request.
pub fn error(error: &ApiError, media: MediaType) -> Response<ResponseBody> {
    // If the client accepts no supported encoding, upstream indents the error.
    let media = MediaType { pretty: media.pretty || matches!(error, ApiError::NotAcceptable { .. }), ..media };
    let mut response = status(error.status(), media);
    if let Some(seconds) = error.retry_after() {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// Response extension: the `Status` in the body, which audit events contain.
#[derive(Clone, Debug)]
pub(crate) struct SentStatus(pub(crate) Arc<Status>);

/// A `Status` as the response, with the status code that it contains.
pub fn status(status: Status, media: MediaType) -> Response<ResponseBody> {
    let code = StatusCode::from_u16(status.http_code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    match keelson_meta::json::to_value(&status) {
        Ok(body) => {
            let mut response = value(code, &body, media);
            response.extensions_mut().insert(SentStatus(Arc::new(status)));
            response
        }
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
    }
}

/// The response to a create-only subresource without an object to return: a `Status` with `Success`.
pub fn done(media: MediaType) -> Response<ResponseBody> {
    let code = StatusCode::CREATED.as_u16();
    status(Status { code, details: None, ..Status::success(StatusDetails::default()) }, media)
}

/// A JSON value in the given encoding.
pub fn value(code: StatusCode, value: &Value, media: MediaType) -> Response<ResponseBody> {
    let mut json = json::to_vec(value);
    json.push(b'\n');
    object(code, json.into(), media)
        .unwrap_or_else(|error| text(StatusCode::INTERNAL_SERVER_ERROR, format!("{}\n", error.status().message)))
}

/// An indented encoding is written in pieces if it is longer than this, and longer than [`LONG_FORM_RATIO`] times the
/// object.
const LONG_FORM_BYTES: usize = 1024 * 1024;
/// Indentation about doubles ordinary objects. It makes an object with hundreds of nested levels hundreds of times as
/// long.
const LONG_FORM_RATIO: usize = 4;
/// The number of bytes of each frame of such a stream.
const PIECE_BYTES: usize = 64 * 1024;

/// Response extension: the memory that a response keeps until its client has read it, in bytes. Shared bytes, and the
/// frames of a streamed list, are not in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeptBytes(pub(crate) usize);

/// One object in the given encoding, from compact JSON. As upstream, compact JSON ends with a line feed and indented
/// JSON does not.
///
/// # Errors
/// [`ApiError::Internal`] when the object does not fit its protobuf message, which only damaged data can cause.
pub fn object(code: StatusCode, object: Bytes, media: MediaType) -> Result<Response<ResponseBody>, ApiError> {
    let compact = object.trim_ascii_end();
    let encoded = match media {
        MediaType { kind: MediaKind::Json, pretty: false } => Encoded::Whole(object),
        MediaType { kind: MediaKind::Json, pretty: true } => indented(compact),
        MediaType { kind: MediaKind::Yaml, .. } => in_yaml(compact),
        MediaType { kind: MediaKind::Protobuf, .. } => Encoded::Whole(protobuf(compact)?.into()),
    };
    let (body, kept) = match encoded {
        Encoded::Whole(bytes) => {
            let kept = bytes.len();
            (full(bytes), kept)
        }
        Encoded::Pieces(body, kept) => (body, kept),
    };
    let mut response = with_body(code, HeaderValue::from_static(media.kind.content_type()), body);
    if kept > PIECE_BYTES {
        response.extensions_mut().insert(KeptBytes(kept));
    }
    Ok(response)
}

/// An encoded object.
enum Encoded {
    Whole(Bytes),
    /// A body that is written while it is sent, and its memory in bytes.
    Pieces(ResponseBody, usize),
}

impl Encoded {
    fn pieces(mut next: impl FnMut() -> Option<Vec<u8>> + Send + 'static, kept: usize) -> Self {
        let frames = futures::stream::poll_fn(move |_| {
            Poll::Ready(next().map(|piece| Ok::<_, BodyError>(Frame::data(Bytes::from(piece)))))
        });
        Self::Pieces(body::stream(StreamBody::new(frames)), kept)
    }
}

/// The most bytes of an encoded object that is written whole.
fn most_whole(compact: &[u8]) -> usize {
    LONG_FORM_BYTES.max(compact.len().saturating_mul(LONG_FORM_RATIO))
}

fn indented(compact: &[u8]) -> Encoded {
    if compact.len() > PIECE_BYTES / LONG_FORM_RATIO && pretty::length(compact) > most_whole(compact) {
        let mut pieces = pretty::Pieces::new(Bytes::copy_from_slice(compact));
        return Encoded::pieces(move || pieces.next(PIECE_BYTES), compact.len());
    }
    let mut indented = Vec::with_capacity(2 * compact.len());
    pretty::write(compact, 0, &mut indented);
    Encoded::Whole(indented.into())
}

fn in_yaml(compact: &[u8]) -> Encoded {
    if let Some(whole) = yaml::from_json_within(compact, most_whole(compact)) {
        return Encoded::Whole(whole.into());
    }
    let mut pieces = yaml::Pieces::of_json(compact);
    let kept = pieces.bytes();
    Encoded::pieces(move || pieces.next(PIECE_BYTES), kept)
}

/// The object in protobuf, by the kind in the JSON.
fn protobuf(json: &[u8]) -> Result<Vec<u8>, ApiError> {
    let outline = Outline::read_sparsely(std::str::from_utf8(json).unwrap_or_default(), &[]);
    let named = |key| match outline.root().get(key)?.content() {
        Content::Text(text) => Some(text),
        _ => None,
    };
    // `APIVersions`, the list of core versions, is older than `apiVersion` and has none.
    let (api_version, kind) = (named("apiVersion").unwrap_or("v1"), named("kind").unwrap_or_default());
    keelson_protobuf::encode_json(api_version, kind, json, None).map_err(|error| ApiError::Internal(error.to_string()))
}

/// Bytes of a given type.
pub fn bytes(code: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Response<ResponseBody> {
    with_body(code, HeaderValue::from_static(content_type), full(body))
}

/// Compresses a body.
pub type Compress = fn(&[u8]) -> Bytes;

/// Compresses with gzip.
pub const COMPRESS: Compress = |body| gzip(body).into();

/// Returns true if a body of this size is compressed.
pub fn is_compressed(accepts_gzip: bool, bytes: usize) -> bool {
    accepts_gzip && bytes > GZIP_THRESHOLD_BYTES
}

/// Returns true if a document of discovery of this size is compressed.
pub fn is_compressed_discovery(accepts_gzip: bool, bytes: usize) -> bool {
    accepts_gzip && bytes > GZIP_DISCOVERY_BYTES
}

/// Gzip bytes of a given type.
pub fn gzipped(code: StatusCode, content_type: &'static str, gzip: Bytes) -> Response<ResponseBody> {
    let mut response = bytes(code, content_type, gzip);
    mark_gzip(response.headers_mut());
    response
}

/// A body that is produced while it is sent.
pub fn stream(code: StatusCode, content_type: &'static str, body: ResponseBody) -> Response<ResponseBody> {
    with_body(code, HeaderValue::from_static(content_type), body)
}

/// Plain text.
pub fn text(code: StatusCode, body: impl Into<Bytes>) -> Response<ResponseBody> {
    bytes(code, PLAIN_TEXT, body)
}

/// Plain text, whose media type clients must not guess.
pub fn plain_text(code: StatusCode, body: impl Into<Bytes>) -> Response<ResponseBody> {
    unguessed(text(code, body))
}

/// The response to a request that is not authorized, or that impersonates a user in an invalid way.
pub fn forbidden(refusal: &ApiError, media: MediaType) -> Response<ResponseBody> {
    unguessed(error(refusal, media))
}

fn unguessed(mut response: Response<ResponseBody>) -> Response<ResponseBody> {
    let (name, value) = NOSNIFF;
    response.headers_mut().insert(name, value);
    response
}

/// The 429 response of an overloaded server. The client may try again after so many seconds.
pub fn overloaded(retry_after_seconds: u32) -> Response<ResponseBody> {
    let mut response = plain_text(StatusCode::TOO_MANY_REQUESTS, "Too many requests, please try again later.\n");
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(retry_after_seconds));
    response
}

/// The 404 response for unknown paths.
pub fn no_such_page() -> Response<ResponseBody> {
    plain_text(StatusCode::NOT_FOUND, "404 page not found\n")
}

/// Sets the headers of a gzip body: `Content-Encoding`, and `Vary`, since other clients get other bytes.
pub fn mark_gzip(headers: &mut HeaderMap) {
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    headers.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
}

/// Adds warnings in this order.
pub fn add_warnings(headers: &mut HeaderMap, texts: &[String]) {
    for text in texts.iter().take(Warnings::MOST) {
        add_warning(headers, text);
    }
}

/// Adds a warning that clients show to people (RFC 7234 section 5.5, code 299).
pub fn add_warning(headers: &mut HeaderMap, text: &str) {
    if let Some(value) = warning(text.chars()) {
        headers.append(WARNING, value);
    }
}

/// Limits the warnings of a response as upstream. If they exceed 4,096 characters together, each is cut to 256, and
/// those after the one that exceeds the limit are dropped. Duplicates are sent once, and at most [`Warnings::MOST`]
/// warnings.
pub fn bound_warnings(headers: &mut HeaderMap) {
    let mut values = headers.get_all(WARNING).iter();
    // Most responses have no warning, or a single short one.
    if values.next().is_none_or(|first| first.len() <= Warnings::CHARACTERS_OF_EACH && values.next().is_none()) {
        return;
    }
    let mut seen = HashSet::new();
    let told = headers.get_all(WARNING).iter().map(warned);
    let texts: Vec<String> = told.filter(|text| !text.is_empty() && seen.insert(text.clone())).collect();
    let all: usize = texts.iter().map(|text| text.chars().count()).sum();
    let most_for_one = if all > Warnings::CHARACTERS_OF_ALL { Warnings::CHARACTERS_OF_EACH } else { usize::MAX };
    headers.remove(WARNING);
    let mut told = 0;
    for text in texts.into_iter().take(Warnings::MOST) {
        if told >= Warnings::CHARACTERS_OF_ALL {
            break;
        }
        let cut: String = text.chars().take(most_for_one).collect();
        told += cut.chars().count();
        add_warning(headers, &cut);
    }
}

/// Limits the warnings of another server's response, and escapes their control characters. Few and short ones stay
/// unchanged.
pub fn bound_passed_warnings(headers: &mut HeaderMap) {
    if !headers.contains_key(WARNING) {
        return;
    }
    let shown = headers.get_all(WARNING).iter().filter_map(|value| {
        let text = String::from_utf8_lossy(value.as_bytes());
        HeaderValue::from_bytes(visible(&text).as_bytes()).ok()
    });
    let shown: Vec<HeaderValue> = shown.collect();
    let bytes: usize = shown.iter().map(HeaderValue::len).sum();
    let is_much = shown.len() > Warnings::MOST || bytes > Warnings::CHARACTERS_OF_ALL;
    headers.remove(WARNING);
    for value in shown {
        headers.append(WARNING, value);
    }
    if is_much {
        bound_warnings(headers);
    }
}

/// The header value of a warning.
fn warning(text: impl Iterator<Item = char>) -> Option<HeaderValue> {
    let mut value = "299 - \"".to_owned();
    for character in text {
        match character {
            '"' | '\\' => value.extend(['\\', character]),
            // Header values cannot contain line ends and other control characters.
            _ if character.is_control() => value.push(' '),
            _ => value.push(character),
        }
    }
    value.push('"');
    // Bidirectional control characters remain, which terminals interpret. They are escaped.
    HeaderValue::from_bytes(visible(&value).as_bytes()).ok()
}

/// The text in the header value of a warning.
fn warned(value: &HeaderValue) -> String {
    let value = String::from_utf8_lossy(value.as_bytes());
    let quoted = value.strip_prefix("299 - \"").and_then(|rest| rest.strip_suffix('"')).unwrap_or_default();
    let mut text = String::with_capacity(quoted.len());
    let mut characters = quoted.chars();
    while let Some(character) = characters.next() {
        text.extend(if character == '\\' { characters.next() } else { Some(character) });
    }
    text
}

/// Adds a warning before the existing ones.
pub fn add_first_warning(headers: &mut HeaderMap, text: &str) {
    let others: Vec<HeaderValue> = headers.get_all(WARNING).iter().cloned().collect();
    headers.remove(WARNING);
    add_warning(headers, text);
    for other in others {
        headers.append(WARNING, other);
    }
}

fn with_body(code: StatusCode, content_type: HeaderValue, body: ResponseBody) -> Response<ResponseBody> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    *response.headers_mut() = HeaderMap::with_capacity(USUAL_FIELDS);
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

fn gzip(body: &[u8]) -> Vec<u8> {
    const LEVEL: u32 = 1;
    let mut writer = MemberWriter::new();
    let block = DeflateBlock::compress(body, LEVEL);
    let mut out = MemberWriter::header().to_vec();
    writer.push(&block);
    out.extend_from_slice(&block.bytes);
    out.extend_from_slice(&writer.finish());
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    async fn body(response: Response<ResponseBody>) -> String {
        String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
    }

    #[tokio::test]
    async fn an_error_carries_its_code_and_retry_after() {
        let response = error(&ApiError::TooManyRequests { retry_after_seconds: 3 }, MediaType::JSON);
        assert_eq!(response.status(), 429);
        assert_eq!(response.headers()["retry-after"], "3");
        assert!(body(response).await.starts_with(r#"{"kind":"Status","apiVersion":"v1","metadata":{},"#));
    }

    #[tokio::test]
    async fn a_status_in_yaml_has_sorted_keys() {
        let media = MediaType { kind: MediaKind::Yaml, pretty: false };
        let response = error(&ApiError::Unauthorized, media);
        assert_eq!(response.headers()["content-type"], "application/yaml");
        assert!(body(response).await.starts_with("apiVersion: v1\ncode: 401\n"));
    }

    #[test]
    fn a_warning_is_quoted() {
        let mut headers = HeaderMap::new();
        add_warning(&mut headers, "unknown field \"foo\"");
        add_first_warning(&mut headers, "this goes");
        let all: Vec<_> = headers.get_all("warning").iter().collect();
        assert_eq!(all, [r#"299 - "this goes""#, r#"299 - "unknown field \"foo\"""#]);
        headers.clear();
        add_warning(&mut headers, "unknown field \"foo\"");
        assert_eq!(headers["warning"], r#"299 - "unknown field \"foo\"""#);
    }

    #[test]
    fn warnings_have_bounds_together_and_not_alone() {
        let check = |texts: &[String], expect: &[usize]| {
            let mut headers = HeaderMap::new();
            add_warnings(&mut headers, texts);
            bound_warnings(&mut headers);
            let told: Vec<_> = headers.get_all(WARNING).iter().map(|value| warned(value).chars().count()).collect();
            assert_eq!(told, expect);
        };
        check(&["x".repeat(4096)], &[4096]);
        check(&["\u{e4}".repeat(4097)], &[256]);
        check(&["x".repeat(3000), "\"".repeat(1000)], &[3000, 1000]);
        check(&["x".repeat(3000), "short".to_owned(), "\"".repeat(3000)], &[256, 5, 256]);
        check(&["same".to_owned(), "same".to_owned()], &[4]);
        let many: Vec<_> = (0..100_000).map(|number| format!("{number:0>512}")).collect();
        check(&many, &[256; 16]);
        let short: Vec<_> = (0..505).map(|number| number.to_string()).collect();
        check(&short, &[&[1; 10][..], &[2; 54]].concat());
        let mut headers = HeaderMap::new();
        bound_warnings(&mut headers);
        assert!(headers.is_empty());
    }

    #[test]
    fn warnings_of_other_servers_have_the_same_bounds() {
        let bounded = |values: &[String]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(WARNING, HeaderValue::from_bytes(value.as_bytes()).unwrap());
            }
            bound_passed_warnings(&mut headers);
            let shown =
                headers.get_all(WARNING).iter().map(|value| String::from_utf8(value.as_bytes().to_vec()).unwrap());
            shown.collect::<Vec<_>>()
        };
        let usual = ["199 - \"odd\"".to_owned(), "299 - \"a\", 299 - \"b\"".to_owned()];
        assert_eq!(bounded(&usual), usual);
        assert_eq!(bounded(&["299 - \"a\u{202e}b\u{9b}\"".to_owned()]), ["299 - \"a<U+202E>b<U+009B>\""]);
        let many: Vec<_> = (0..500).map(|number| format!("299 - \"{number}\"")).collect();
        assert_eq!(bounded(&many).len(), Warnings::MOST);
        let long = bounded(&[format!("299 - \"{}\"", "x".repeat(100_000))]);
        assert!(long.len() == 1 && long[0].len() < 300, "{long:?}");
    }
}
