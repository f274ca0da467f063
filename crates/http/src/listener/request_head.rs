//! Refuses malformed request heads before authentication.
//!
//! A proxy in front of the server must parse the same request as the server does. Therefore `chunked` is the only
//! accepted transfer coding, HTTP/1.1 needs exactly one `Host`, and `CONNECT` opens no tunnel. The rules and status
//! codes are those of Go's HTTP server, which kube-apiserver uses (RFC 9110, RFC 9112).

use http::header::{CONNECTION, HOST, HeaderValue, TRANSFER_ENCODING};
use http::request::Parts;
use http::{Method, Response, StatusCode, Version};

use super::long_headers;
use crate::body::ResponseBody;
use crate::negotiation::MediaType;
use crate::respond;

/// The response to a malformed head, after which the connection is closed. `None` for all others.
pub(super) fn refusal(parts: &Parts) -> Option<Response<ResponseBody>> {
    if let Some(refused) = long_headers::refusal(&parts.headers, parts.version) {
        return Some(respond::error(&refused, MediaType::JSON));
    }
    let (code, text) = fault(parts)?;
    let mut response = respond::plain_text(code, format!("{code}: {text}\n"));
    if parts.version <= Version::HTTP_11 {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    Some(response)
}

fn fault(parts: &Parts) -> Option<(StatusCode, &'static str)> {
    if parts.method == Method::CONNECT {
        return Some((StatusCode::METHOD_NOT_ALLOWED, "this server opens no tunnels"));
    }
    if parts.version > Version::HTTP_11 {
        return None;
    }
    let mut codings = parts.headers.get_all(TRANSFER_ENCODING).iter();
    if let Some(coding) = codings.next()
        && (codings.next().is_some() || !coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked"))
    {
        return Some((StatusCode::NOT_IMPLEMENTED, "unsupported transfer encoding"));
    }
    if parts.version == Version::HTTP_11 {
        let mut hosts = parts.headers.get_all(HOST).iter();
        return match (hosts.next(), hosts.next()) {
            (None, _) => Some((StatusCode::BAD_REQUEST, "missing required Host header")),
            (Some(_), Some(_)) => Some((StatusCode::BAD_REQUEST, "too many Host headers")),
            (Some(host), None) if !host.as_bytes().iter().all(|byte| may_be_in_host(*byte)) => {
                Some((StatusCode::BAD_REQUEST, "malformed Host header"))
            }
            (Some(_), None) => None,
        };
    }
    None
}

/// The bytes that `uri-host [":" port]` may contain, as in Go's `httpguts.ValidHostHeader`.
const HOST_BYTES: [bool; 256] = {
    let mut bytes = [false; 256];
    let (marks, mut at) = (b"!$%&'()*+,-.:;=[]_~", 0);
    while at < marks.len() {
        bytes[marks[at] as usize] = true;
        at += 1;
    }
    let mut byte = 0_u8;
    while byte < 128 {
        bytes[byte as usize] |= byte.is_ascii_alphanumeric();
        byte += 1;
    }
    bytes
};

fn may_be_in_host(byte: u8) -> bool {
    HOST_BYTES[usize::from(byte)]
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn invalid_request_headers_are_refused_as_in_go() {
        let check = |method: &str, version: Version, fields: &[(&str, &str)], expect: Option<u16>| {
            let mut request = Request::builder().method(method).version(version).uri("/api");
            for (name, value) in fields {
                request = request.header(*name, *value);
            }
            let parts = request.body(()).unwrap().into_parts().0;
            assert_eq!(fault(&parts).map(|(code, _)| code.as_u16()), expect, "{method} {version:?} {fields:?}");
        };
        let (http1, http2) = (Version::HTTP_11, Version::HTTP_2);
        check("GET", http1, &[("host", "a:443")], None);
        check("GET", http1, &[("host", "")], None);
        check("GET", http1, &[("host", "[::1]:6443")], None);
        check("GET", http1, &[], Some(400));
        check("GET", http1, &[("host", "a"), ("host", "a")], Some(400));
        check("GET", http1, &[("host", "a/b")], Some(400));
        check("GET", Version::HTTP_10, &[], None);
        check("GET", http2, &[], None);
        check("POST", http1, &[("host", "a"), ("transfer-encoding", "Chunked ")], None);
        check("POST", http1, &[("host", "a"), ("transfer-encoding", "gzip, chunked")], Some(501));
        check(
            "POST",
            http1,
            &[("host", "a"), ("transfer-encoding", "gzip"), ("transfer-encoding", "chunked")],
            Some(501),
        );
        check("POST", http1, &[("host", "a"), ("transfer-encoding", "chunked, chunked")], Some(501));
        check("CONNECT", http1, &[("host", "a:443")], Some(405));
        check("CONNECT", http2, &[], Some(405));
    }
}
