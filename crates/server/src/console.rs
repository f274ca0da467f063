//! Serves the console's files. They are public: they contain only the program, and its requests are authorized like all
//! others.
//!
//! The content security policy lets the page load its own files and call this server. It forbids inline scripts and
//! styles, frames, forms to other hosts, and requests to other hosts.

use http::header::{
    CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, ETAG, HeaderName, HeaderValue, IF_NONE_MATCH, LOCATION,
    REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::request::Parts;
use http::{HeaderMap, Method, Response, StatusCode};
use keelson_console::{Asset, File};
use keelson_discovery::etag_matches;
use keelson_http::body::{ResponseBody, empty};
use keelson_http::negotiation::{accepts_coding, accepts_gzip};
use keelson_http::respond;

/// The content security policy.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";
/// The `Cache-Control` of files with a version in their path.
const LASTING: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");
/// The `Cache-Control` of the page, and of files without a version in their path: clients revalidate them.
const ASKED_AGAIN: HeaderValue = HeaderValue::from_static("public, no-cache");
/// Files of fewer bytes are not compressed.
const COMPRESSED_FROM: usize = 1024;

const SAFETY: [(HeaderName, HeaderValue); 6] = [
    (CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
    (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
    (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin")),
    (HeaderName::from_static("cross-origin-resource-policy"), HeaderValue::from_static("same-origin")),
];

/// Answers a request for a file of the console. `None` for any other path.
pub fn answer(path: &str, parts: &Parts) -> Option<Response<ResponseBody>> {
    if parts.method != Method::GET && parts.method != Method::HEAD {
        return None;
    }
    let mut response = match keelson_console::find(path)? {
        Asset::File { file, lasting } => with_file(file, lasting, &parts.headers),
        Asset::Moved(to) => {
            let mut response = Response::new(empty());
            *response.status_mut() = StatusCode::PERMANENT_REDIRECT;
            response.headers_mut().insert(LOCATION, HeaderValue::from_static(to));
            response
        }
        Asset::Nothing => respond::no_such_page(),
    };
    response.headers_mut().extend(SAFETY);
    Some(response)
}

fn with_file(file: &'static File, lasting: bool, asked: &HeaderMap) -> Response<ResponseBody> {
    let known = |value: &HeaderValue| value.to_str().is_ok_and(|tags| etag_matches(tags, file.etag.trim_matches('"')));
    let mut response = if asked.get_all(IF_NONE_MATCH).iter().any(known) {
        let mut response = Response::new(empty());
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        response
    } else if let Some(brotli) = file.brotli.as_ref().filter(|_| accepts_coding(asked, "br")) {
        let mut response = respond::bytes(StatusCode::OK, file.content_type, brotli.clone());
        response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("br"));
        response
    } else if accepts_gzip(asked) && file.bytes.len() >= COMPRESSED_FROM {
        respond::gzipped(StatusCode::OK, file.content_type, file.compressed())
    } else {
        respond::bytes(StatusCode::OK, file.content_type, file.bytes.clone())
    };
    let headers = response.headers_mut();
    if let Ok(etag) = HeaderValue::from_str(&file.etag) {
        headers.insert(ETAG, etag);
    }
    headers.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    headers.insert(CACHE_CONTROL, if lasting { LASTING } else { ASKED_AGAIN });
    response
}

#[cfg(test)]
mod tests {
    use http::Request;
    use http_body_util::BodyExt as _;

    use super::*;

    fn get(path: &str, headers: &[(&str, &str)]) -> Option<Response<ResponseBody>> {
        let mut request = Request::get(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        answer(path, &request.body(()).unwrap().into_parts().0)
    }

    #[tokio::test]
    async fn the_page_is_sent_with_its_policy_and_once_for_each_tag() {
        let page = get("/console/", &[]).unwrap();
        assert_eq!(page.status(), 200);
        assert_eq!(page.headers()["content-type"], "text/html; charset=utf-8");
        assert_eq!(page.headers()["cache-control"], "public, no-cache");
        assert_eq!(page.headers()["x-frame-options"], "DENY");
        let policy = page.headers()["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'; ") && !policy.contains("unsafe"), "{policy}");
        let tag = page.headers()["etag"].to_str().unwrap().to_owned();
        let again = get("/console/r/core/v1/pods", &[("if-none-match", &tag)]).unwrap();
        assert_eq!(again.status(), 304);
        assert!(again.into_body().collect().await.unwrap().to_bytes().is_empty());
        let text = page.into_body().collect().await.unwrap().to_bytes();
        let text = String::from_utf8(text.to_vec()).unwrap();
        let script = text.split('"').find(|part| part.ends_with("/app.js")).unwrap();
        for (accepted, encoding) in [("gzip", "gzip"), ("gzip, br;q=0", "gzip"), ("gzip, deflate, br, zstd", "br")] {
            let script = get(script, &[("accept-encoding", accepted)]).unwrap();
            assert_eq!(script.headers()["content-encoding"], encoding, "{accepted}");
        }
        let script = get(script, &[("accept-encoding", "br")]).unwrap();
        assert_eq!(script.headers()["vary"], "Accept-Encoding");
        assert_eq!(script.headers()["cache-control"], "public, max-age=31536000, immutable");
    }

    #[test]
    fn other_paths_and_methods_are_left_to_others() {
        assert!(get("/api", &[]).is_none());
        let parts = Request::post("/console/").body(()).unwrap().into_parts().0;
        assert!(answer("/console/", &parts).is_none());
        assert_eq!(get("/console", &[]).unwrap().headers()["location"], "/console/");
        let nothing = get("/console/assets/nothing.js", &[]).unwrap();
        assert_eq!(nothing.status(), 404);
        assert!(nothing.headers().contains_key("content-security-policy"));
    }
}
