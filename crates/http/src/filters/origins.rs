//! Requests of pages of other origins (CORS), by kube-apiserver's flag `--cors-allowed-origins`.
//!
//! A response to a page of an allowed origin has the headers that let the page read it. Its preflight requests are
//! answered before authentication, since browsers send no credentials with them. Without the flag there are no such
//! headers, and browsers keep responses from pages of other origins.

use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, HeaderMap, HeaderValue, ORIGIN,
};
use http::{Method, Response, StatusCode};
use regex::{RegexSet, RegexSetBuilder};

use crate::body::{ResponseBody, empty};

const METHODS: HeaderValue = HeaderValue::from_static("POST, GET, OPTIONS, PUT, DELETE, PATCH");
const HEADERS: HeaderValue = HeaderValue::from_static(
    "Content-Type, Content-Length, Accept-Encoding, X-CSRF-Token, Authorization, X-Requested-With, If-Modified-Since",
);
const EXPOSED: HeaderValue = HeaderValue::from_static("Date");
const CREDENTIALS: HeaderValue = HeaderValue::from_static("true");
/// The maximum size of the compiled expressions.
const MOST_BYTES: usize = 1024 * 1024;
/// The markers for the begin and the end of the host in an origin. An expression needs one of each. Otherwise
/// `example.com` would also allow `https://example.com.evil.org`.
const BEGINS: [&str; 2] = ["^", "//"];
const ENDS: [&str; 2] = ["$", ":"];

/// The origins whose pages may read responses.
#[derive(Clone, Debug)]
pub struct AllowedOrigins(RegexSet);

impl AllowedOrigins {
    /// The origins that match one of these regular expressions. `None` without any.
    ///
    /// # Errors
    /// An expression is invalid, or matches a part of a host.
    pub fn new(expressions: &[String]) -> Result<Option<Self>, String> {
        if expressions.is_empty() {
            return Ok(None);
        }
        let wrong = |why: &str| format!("--cors-allowed-origins has an invalid regular expression: {why}");
        for expression in expressions {
            let has = |marks: [&str; 2]| marks.iter().any(|mark| expression.contains(mark));
            if !has(BEGINS) || !has(ENDS) {
                return Err(wrong(&format!(
                    "regular expression does not pin to start/end of host in the origin header: {expression}; write it like ^https://example\\.com$"
                )));
            }
        }
        let set = RegexSetBuilder::new(expressions).size_limit(MOST_BYTES).build();
        set.map(|set| Some(Self(set))).map_err(|error| wrong(&error.to_string()))
    }

    /// The origin of a request, if it is allowed.
    pub(super) fn allowed(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let origin = headers.get(ORIGIN)?;
        origin.to_str().ok().filter(|origin| !origin.is_empty() && self.0.is_match(origin))?;
        Some(origin.clone())
    }
}

/// The response to a preflight request of an allowed origin.
pub(super) fn preflight(method: &Method) -> Option<Response<ResponseBody>> {
    (method == Method::OPTIONS).then(|| {
        let mut response = Response::new(empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        response
    })
}

/// Lets pages of this origin read the response.
pub(super) fn readable(origin: HeaderValue, mut response: Response<ResponseBody>) -> Response<ResponseBody> {
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HEADERS);
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
    headers.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, CREDENTIALS);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_matching_origins_are_allowed() {
        let expressions = ["^https://console\\.example\\.org(:|$)", "//localhost:"].map(str::to_owned);
        let origins = AllowedOrigins::new(&expressions).unwrap().unwrap();
        let check = |origin: &'static str, expect: bool| {
            let headers = HeaderMap::from_iter([(ORIGIN, HeaderValue::from_static(origin))]);
            assert_eq!(origins.allowed(&headers).is_some(), expect, "{origin}");
        };
        check("https://console.example.org", true);
        check("https://console.example.org:8443", true);
        check("http://localhost:5173", true);
        check("https://console.example.org.evil.net", false);
        check("https://console-example.org", false);
        check("https://evil.net/https://console.example.org", false);
        check("null", false);
        check("", false);
        assert!(origins.allowed(&HeaderMap::new()).is_none());
    }

    #[test]
    fn expressions_that_match_a_part_of_a_host_are_refused() {
        let refused = |expression: &str| AllowedOrigins::new(&[expression.to_owned()]).unwrap_err();
        for loose in ["example.com", "^example.com", "example.com$", ".*", ""] {
            assert!(refused(loose).contains("does not pin to start/end of host"), "{loose}");
        }
        assert!(refused("^https://(example.com$").contains("unclosed group"));
        assert!(refused("^(a{1000}){1000}{1000}$").contains("invalid regular expression"));
        assert!(AllowedOrigins::new(&[]).unwrap().is_none());
    }
}
