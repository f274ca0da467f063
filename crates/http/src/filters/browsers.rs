//! Response headers that protect the console in browsers, since all paths of the server share its origin.
//!
//! Without them, a document of an aggregated server would run as script in the console's origin, with the user's client
//! certificate. Every response except the console's own files therefore has a policy: the document runs nothing, loads
//! nothing and has no origin. Browsers must not guess its media type. Service workers outlive the page that registers
//! them, so no response may become one.

use http::Response;
use http::header::{CONTENT_SECURITY_POLICY, HeaderMap, HeaderName, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use keelson_meta::{ApiError, GroupResource};

use crate::body::ResponseBody;
use crate::negotiation::MediaType;
use crate::proxy::Forwarded;
use crate::respond;

/// The policy of all documents except the console's files.
const POLICY: HeaderValue = HeaderValue::from_static("default-src 'none'; sandbox; frame-ancestors 'none'");
const NOSNIFF: HeaderValue = HeaderValue::from_static("nosniff");
/// The header of each request for the script of a service worker (Service Workers, section 4.3). No page can set or
/// omit it.
const SERVICE_WORKER: HeaderName = HeaderName::from_static("service-worker");

/// Adds the policy of the path. The console's files have their own. An aggregated server cannot replace it.
pub(crate) fn confined(mut response: Response<ResponseBody>) -> Response<ResponseBody> {
    let is_passed_on = response.extensions().get::<Forwarded>().is_some();
    let headers = response.headers_mut();
    if is_passed_on {
        headers.insert(CONTENT_SECURITY_POLICY, POLICY);
    } else {
        headers.entry(CONTENT_SECURITY_POLICY).or_insert(POLICY);
    }
    headers.insert(X_CONTENT_TYPE_OPTIONS, NOSNIFF);
    response
}

/// The refusal of a request for the script of a service worker. `None` for any other request.
pub(super) fn refused_worker(headers: &HeaderMap, path: &str, form: MediaType) -> Option<Response<ResponseBody>> {
    headers.get(SERVICE_WORKER)?;
    let refusal = ApiError::Refused {
        resource: GroupResource { group: String::new(), resource: path.to_owned() },
        name: String::new(),
        message: "the script of a service worker may not be loaded from this server".to_owned(),
        causes: Vec::new(),
    };
    Some(respond::error(&refusal, form))
}

#[cfg(test)]
mod tests {
    use http::header::SET_COOKIE;

    use super::*;
    use crate::body::empty;

    fn policies(response: &Response<ResponseBody>) -> Vec<&str> {
        response.headers().get_all(CONTENT_SECURITY_POLICY).iter().map(|policy| policy.to_str().unwrap()).collect()
    }

    #[test]
    fn an_answer_has_one_policy_and_only_the_console_has_its_own() {
        let own = |policy| {
            let mut response = Response::new(empty());
            response.headers_mut().extend([(CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy))]);
            response
        };
        let plain = confined(Response::new(empty()));
        assert_eq!(policies(&plain), ["default-src 'none'; sandbox; frame-ancestors 'none'"]);
        assert_eq!(plain.headers()[X_CONTENT_TYPE_OPTIONS], "nosniff");
        assert_eq!(policies(&confined(own("script-src 'self'"))), ["script-src 'self'"]);
        let mut passed_on = own("default-src *");
        passed_on.extensions_mut().insert(Forwarded { as_it_is: true });
        assert_eq!(policies(&confined(passed_on)), policies(&plain));
    }

    #[test]
    fn only_the_script_of_a_service_worker_is_refused() {
        let mut headers = HeaderMap::new();
        headers.insert(SET_COOKIE, HeaderValue::from_static("a=b"));
        assert!(refused_worker(&headers, "/api", MediaType::JSON).is_none());
        headers.insert(SERVICE_WORKER, HeaderValue::from_static("script"));
        assert_eq!(refused_worker(&headers, "/api", MediaType::JSON).unwrap().status(), 403);
    }
}
