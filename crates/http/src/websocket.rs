//! Watches over a websocket: the handshake, and one message for each event.
//!
//! Pages in browsers cannot read a chunked watch event by event, but they can open a websocket (RFC 6455). The
//! handshake follows kube-apiserver: it needs an `Origin`, and refusals are plain text. The response is an ordinary
//! watch for filters, seats and shares. Each frame of its body contains one message, which the listener sends over the
//! connection (`listener/websocket.rs`). HTTP/2 has no such handshake here.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::stream::{self, Stream, StreamExt as _};
use http::header::{
    CONNECTION, HeaderMap, HeaderName, HeaderValue, ORIGIN, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::request::Parts;
use http::{Response, StatusCode, Version};
use http_body_util::StreamBody;
use hyper::body::Frame;
use hyper::upgrade::OnUpgrade;

use crate::body::{self, BodyError, ResponseBody};
use crate::negotiation::MediaKind;
use crate::proxy::{TOKEN_PROTOCOL, list};
use crate::respond;

/// The origin header of websocket version 8, the last draft of the protocol. Its frames equal those of version 13.
const DRAFT_ORIGIN: HeaderName = HeaderName::from_static("sec-websocket-origin");
/// The suffix that the server appends to the client's key before it hashes it (RFC 6455 section 1.3).
const KEY_SUFFIX: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// The length prefix of each event of a protobuf watch, in bytes. Messages omit it.
const LENGTH_BYTES: usize = 4;

/// An accepted upgrade, in the extensions of the response whose body is sent over the websocket.
#[derive(Clone)]
pub(crate) struct Websocket {
    /// Resolves to the connection once the response is sent.
    pub(crate) upgrade: OnUpgrade,
    /// True if messages are text, false if they are binary.
    pub(crate) is_text: bool,
}

/// Returns true for a websocket request: `Upgrade` is exactly `websocket`, and `Connection` contains `upgrade`.
pub(crate) fn is_wanted(headers: &HeaderMap) -> bool {
    let is_websocket = headers.get(UPGRADE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"));
    is_websocket && list(headers, &CONNECTION).any(|item| item.eq_ignore_ascii_case("upgrade"))
}

/// Returns true for a request that is answered over a websocket: its connection can be upgraded.
pub(crate) fn is_opened(parts: &Parts) -> bool {
    parts.version == Version::HTTP_11 && is_wanted(&parts.headers) && parts.extensions.get::<OnUpgrade>().is_some()
}

/// Answers a watch with these events: chunked, or over the websocket that the client requests.
pub(crate) fn answer_watch(
    parts: &mut Parts,
    kind: MediaKind,
    frames: impl Stream<Item = Bytes> + Send + 'static,
) -> Response<ResponseBody> {
    let is_opened = is_opened(parts);
    let Some(upgrade) = parts.extensions.remove::<OnUpgrade>().filter(|_| is_opened) else {
        return respond::stream(StatusCode::OK, kind.watch_content_type(), streamed(frames));
    };
    match accept(&parts.headers) {
        Ok(mut response) => {
            let is_text = kind != MediaKind::Protobuf;
            response.extensions_mut().insert(Websocket { upgrade, is_text });
            response.map(|()| streamed(frames.flat_map(move |events| stream::iter(messages(events, is_text)))))
        }
        Err(refusal) => refusal.response(),
    }
}

/// A body of these frames.
pub(crate) fn streamed(frames: impl Stream<Item = Bytes> + Send + 'static) -> ResponseBody {
    body::stream(StreamBody::new(frames.map(|bytes| Ok::<_, BodyError>(Frame::data(bytes)))))
}

/// The reason why a handshake is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// The request has no key.
    NoKey,
    /// The request has no version, or an unsupported one.
    Version,
    /// The request has no origin, or an invalid one.
    Origin,
    /// The request offers several subprotocols, and this server prefers none.
    Protocols,
}

impl Refusal {
    fn response(self) -> Response<ResponseBody> {
        let bad_request = |text: &'static str| respond::plain_text(StatusCode::BAD_REQUEST, text);
        match self {
            Self::NoKey => bad_request("mismatch challenge/response"),
            Self::Version => {
                let mut response = bad_request("missing or bad WebSocket Version");
                response.headers_mut().insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
                response
            }
            Self::Origin => respond::plain_text(StatusCode::FORBIDDEN, ""),
            Self::Protocols => bad_request(""),
        }
    }
}

/// The response head that accepts a handshake.
fn accept(headers: &HeaderMap) -> Result<Response<()>, Refusal> {
    let key = headers.get(SEC_WEBSOCKET_KEY).map(HeaderValue::as_bytes).filter(|key| !key.is_empty());
    let key = key.ok_or(Refusal::NoKey)?;
    let origin = match headers.get(SEC_WEBSOCKET_VERSION).map(HeaderValue::as_bytes) {
        Some(b"13") => ORIGIN,
        Some(b"8") => DRAFT_ORIGIN,
        Some(_) | None => return Err(Refusal::Version),
    };
    let origin = headers.get(origin).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !names_page(origin) {
        return Err(Refusal::Origin);
    }
    let offered = list(headers, &SEC_WEBSOCKET_PROTOCOL);
    let mut offered = offered.filter(|item| !item.is_empty() && !item.starts_with(TOKEN_PROTOCOL));
    let protocol = offered.next();
    if offered.next().is_some() {
        return Err(Refusal::Protocols);
    }
    let protocol = protocol.and_then(|protocol| HeaderValue::from_str(protocol).ok());
    Ok(accepted(accept_key(key), protocol))
}

/// The response head that accepts a handshake with this `Sec-WebSocket-Accept` value and this subprotocol.
pub(crate) fn accepted(accept_key: HeaderValue, protocol: Option<HeaderValue>) -> Response<()> {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let fields = response.headers_mut();
    fields.insert(UPGRADE, HeaderValue::from_static("websocket"));
    fields.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    fields.insert(SEC_WEBSOCKET_ACCEPT, accept_key);
    if let Some(protocol) = protocol {
        fields.insert(SEC_WEBSOCKET_PROTOCOL, protocol);
    }
    response
}

/// The `Sec-WebSocket-Accept` value, which proves that the server speaks the protocol (RFC 6455 section 4.2.2).
pub(crate) fn accept_key(key: &[u8]) -> HeaderValue {
    let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, &[key, KEY_SUFFIX].concat());
    HeaderValue::try_from(STANDARD.encode(hash)).expect("base64 can stand in a header field")
}

/// Returns true for an origin that is an absolute URI, or a path. A browser sends `null` for a page without an origin
/// of its own.
fn names_page(origin: &str) -> bool {
    let scheme = origin.split_once(':').map_or("", |(scheme, _)| scheme);
    let has_scheme = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.chars().all(|it| it.is_ascii_alphanumeric() || matches!(it, '+' | '-' | '.'));
    has_scheme || origin.starts_with('/')
}

/// The events in one frame of a watch. The frame contains whole events: lines of JSON, or protobuf messages with length
/// prefixes.
fn messages(mut events: Bytes, is_text: bool) -> impl Iterator<Item = Bytes> {
    std::iter::from_fn(move || {
        if events.is_empty() {
            return None;
        }
        if is_text {
            let end = memchr::memchr(b'\n', &events).map_or(events.len(), |at| at + 1);
            return Some(events.split_to(end));
        }
        let length = events.split_to(events.len().min(LENGTH_BYTES));
        let length = length.as_ref().try_into().map_or(0, u32::from_be_bytes);
        Some(events.split_to(events.len().min(length as usize)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(fields: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(HeaderName::from_static(name), value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn websocket_requests_are_recognized_by_upgrade_and_connection() {
        let check = |connection: &str, upgrade: &str, expected: bool| {
            let headers = fields(&[("connection", connection), ("upgrade", upgrade)]);
            assert_eq!(is_wanted(&headers), expected, "{connection} {upgrade}");
        };
        check("Upgrade", "websocket", true);
        check("keep-alive, UPGRADE", "WebSocket", true);
        check("keep-alive", "websocket", false);
        check("upgraded", "websocket", false);
        check("Upgrade", "websocket, other", false);
        check("Upgrade", "SPDY/3.1", false);
    }

    #[test]
    fn a_handshake_is_accepted_or_refused_as_kube_apiserver_does() {
        const KEY: (&str, &str) = ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
        const VERSION: (&str, &str) = ("sec-websocket-version", "13");
        const PAGE: (&str, &str) = ("origin", "https://page.example");
        let check = |sent: &[(&'static str, &str)], expected: Result<&str, Refusal>| {
            let accepted = accept(&fields(sent));
            let protocol = accepted.as_ref().map(|response| {
                // The example of RFC 6455, section 1.3.
                assert_eq!(response.headers()[SEC_WEBSOCKET_ACCEPT], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
                response.headers().get(SEC_WEBSOCKET_PROTOCOL).map_or("", |value| value.to_str().unwrap())
            });
            assert_eq!(protocol.map_err(|refusal| *refusal), expected, "{sent:?}");
        };
        let protocols = |value| [KEY, VERSION, PAGE, ("sec-websocket-protocol", value)];
        check(&[KEY, VERSION, PAGE], Ok(""));
        check(&[KEY, VERSION, ("origin", "/page")], Ok(""));
        check(&[KEY, ("sec-websocket-version", "8"), ("sec-websocket-origin", "http://a")], Ok(""));
        check(&protocols("base64.binary.k8s.io"), Ok("base64.binary.k8s.io"));
        check(&protocols("base64url.bearer.authorization.k8s.io.dG9r, a"), Ok("a"));
        check(&protocols("a, base64url.bearer.authorization.k8s.io.dG9r"), Ok("a"));
        check(&protocols("base64url.bearer.authorization.k8s.io.dG9r"), Ok(""));
        check(&protocols("a, b"), Err(Refusal::Protocols));
        check(&[VERSION, PAGE], Err(Refusal::NoKey));
        check(&[KEY, PAGE], Err(Refusal::Version));
        check(&[KEY, ("sec-websocket-version", "12"), PAGE], Err(Refusal::Version));
        check(&[KEY, ("sec-websocket-version", "8"), PAGE], Err(Refusal::Origin));
        for origin in ["null", "", "page.example", "1http://a"] {
            check(&[KEY, VERSION, ("origin", origin)], Err(Refusal::Origin));
        }
        check(&[KEY, VERSION], Err(Refusal::Origin));
    }

    #[test]
    fn a_piece_of_a_watch_is_divided_into_its_events() {
        let check = |piece: &'static [u8], is_text: bool, expected: &[&[u8]]| {
            assert_eq!(messages(Bytes::from_static(piece), is_text).collect::<Vec<_>>(), expected);
        };
        check(b"", true, &[]);
        check(b"{\"a\":1}\n{}\n", true, &[b"{\"a\":1}\n", b"{}\n"]);
        check(b"\0\0\0\x02ab\0\0\0\x01c", false, &[b"ab", b"c"]);
        check(b"", false, &[]);
    }
}
