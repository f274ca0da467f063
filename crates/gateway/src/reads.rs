//! The requests that mirrors answer, and the fields of their responses.
//!
//! Lists, watches and queries of mirrored resources are answered here, and gets that accept a mirrored state. All other
//! requests are passed through.

use std::sync::Arc;

use futures::future::BoxFuture;
use http::header::{ACCEPT, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, Response};
use keelson_http::body::ResponseBody;
use keelson_http::request_info::{RequestInfo, RequestVerb};
use keelson_http::request_query::RequestQuery;
use keelson_http::respond;
use keelson_http::service::{ApiRequest, ApiService};
use keelson_meta::clock::rfc3339;
use keelson_meta::{ApiError, Revision};
use keelson_registry::{Estimate, Target};
use keelson_resources::Verb;

use crate::fleet::PartSlot;
use crate::mirrors::Mirrors;
use crate::progress::Age;

/// The field with the longest time in seconds by which a response may be older than the source's state.
const LAG: HeaderName = HeaderName::from_static("keelson-lag");
/// The field with the time of the state in a response, while the source is away.
const AS_OF: HeaderName = HeaderName::from_static("keelson-as-of");
/// The media type of protobuf.
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// The paths that the gateway answers about itself.
const OWN_PATHS: [&str; 4] = ["/livez", "/readyz", "/healthz", "/metrics"];
/// The page that announces queries.
const ANNOUNCEMENT: &str = "/apis/keelson.io/v1alpha1";

/// Returns true if a request is passed through to the source.
pub(crate) fn is_passed(mirrors: &Mirrors, info: &RequestInfo, parts: &Parts) -> bool {
    if !info.is_resource_request {
        let own =
            |path: &str| info.path == path || info.path.strip_prefix(path).is_some_and(|rest| rest.starts_with('/'));
        return info.path != ANNOUNCEMENT && !OWN_PATHS.into_iter().any(own);
    }
    let is_read = matches!(info.verb, RequestVerb::Resource(Verb::Get | Verb::List | Verb::Watch));
    if parts.method != Method::GET || !is_read || info.subresource.is_some() || wants_only_protobuf(&parts.headers) {
        return true;
    }
    let Some(mirror) = mirrors.find(&info.group, &info.version, &info.resource) else { return true };
    let query = RequestQuery::parse(info, &parts.uri);
    // A consistent get costs the source as much as a question for its newest revision.
    info.verb == RequestVerb::Resource(Verb::Get)
        && !query.is_extended()
        && named_revision(&parts.uri).is_none()
        && !mirror.progress.is_away()
}

/// The resourceVersion in a query, as text.
fn named_revision(uri: &http::Uri) -> Option<&str> {
    let mut pairs = uri.query().unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
    pairs.find_map(|(name, value)| (name == "resourceVersion" && !value.is_empty()).then_some(value))
}

/// Returns true if a request names a revision that a mirror has not reached.
fn is_ahead(uri: &http::Uri, reached: Revision) -> bool {
    named_revision(uri).and_then(|text| text.parse::<Revision>().ok()).is_some_and(|revision| revision > reached)
}

/// Returns true for a client that accepts no other format than protobuf. Objects of a newer source may have fields that
/// this program has no numbers for, so mirrors answer in text.
fn wants_only_protobuf(headers: &HeaderMap) -> bool {
    let mut types = headers
        .get_all(ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .peekable();
    types.peek().is_some() && types.all(|media| media.trim().starts_with(PROTOBUF))
}

/// Removes protobuf from the accepted formats.
fn accept_text(headers: &mut HeaderMap) {
    let types =
        headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    let kept: Vec<&str> = types.map(str::trim).filter(|media| !media.starts_with(PROTOBUF)).collect();
    match HeaderValue::from_str(&kept.join(",")) {
        Ok(kept) if !kept.is_empty() => drop(headers.insert(ACCEPT, kept)),
        Ok(_) | Err(_) => {}
    }
}

/// Answers requests from mirrors.
#[derive(Clone)]
pub(crate) struct MirroredReads {
    mirrors: Arc<Mirrors>,
}

impl MirroredReads {
    pub(crate) fn new(mirrors: Arc<Mirrors>) -> Self {
        Self { mirrors }
    }
}

impl ApiService for MirroredReads {
    fn call(&self, mut request: Box<ApiRequest>, target: Target) -> BoxFuture<'static, Response<ResponseBody>> {
        let found = self.mirrors.find(&target.resource.group, &target.version.name, &target.resource.plural);
        Box::pin(async move {
            let found = found.and_then(|mirror| Some((mirror.target(&target)?, mirror)));
            let Some((own, mirror)) = found else {
                return respond::error(&not_loaded(), request.error_form);
            };
            // The revision may be that of another resource, which this one's watch shows only when it is asked to. A
            // failure shows when the read waits for its revision.
            if is_ahead(&request.parts.uri, mirror.progress.reached()) {
                let _caught_up = mirror.registry().catch_up().await;
            }
            accept_text(&mut request.parts.headers);
            if let Some(slot) = request.parts.extensions.remove::<PartSlot>() {
                return slot.fill(request, own, mirror).await;
            }
            let mut response = mirror.handlers().call(request, own).await;
            mark(response.headers_mut(), mirror.progress.age());
            response
        })
    }

    fn estimate(&self, info: &RequestInfo, parts: &Parts, query: &RequestQuery, target: &Target) -> Estimate {
        let found = self.mirrors.find(&target.resource.group, &target.version.name, &target.resource.plural);
        let own = found.as_ref().and_then(|mirror| Some((mirror, mirror.target(target)?)));
        own.map(|(mirror, own)| mirror.handlers().estimate(info, parts, query, &own)).unwrap_or_default()
    }
}

/// The error while a mirror is replaced. A repeated request is passed through or finds the new mirror.
fn not_loaded() -> ApiError {
    let message = "the resource is being loaded from the source, please try again later".to_owned();
    ApiError::ServiceUnavailable { message, retry_after_seconds: Some(1) }
}

/// Adds the age of the state to a response.
pub(crate) fn mark(headers: &mut HeaderMap, age: Age) {
    if let Ok(lag) = HeaderValue::from_str(&format!("{:.3}", age.lag.as_secs_f64())) {
        headers.insert(LAG, lag);
    }
    if let Some(as_of) = age.as_of
        && let Ok(as_of) = HeaderValue::from_str(&rfc3339(as_of))
    {
        headers.insert(AS_OF, as_of);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protobuf_is_neither_sent_nor_refused_where_text_is_accepted() {
        let check = |accept: &str, only: bool, kept: &str| {
            let mut headers = HeaderMap::from_iter([(ACCEPT, accept.parse().unwrap())]);
            assert_eq!(wants_only_protobuf(&headers), only, "{accept}");
            accept_text(&mut headers);
            assert_eq!(headers[ACCEPT], kept);
        };
        let proto = "application/vnd.kubernetes.protobuf";
        check(proto, true, proto);
        check(&format!("{proto},application/json"), false, "application/json");
        check("application/json", false, "application/json");
        check(
            &format!("{proto};as=Table;v=v1;g=meta.k8s.io, application/json;as=Table"),
            false,
            "application/json;as=Table",
        );
        assert!(!wants_only_protobuf(&HeaderMap::new()));
    }

    #[test]
    fn a_revision_is_named_by_a_value() {
        let check = |uri: &str, expected: Option<&str>, ahead: bool| {
            let uri = uri.parse().unwrap();
            assert_eq!((named_revision(&uri), is_ahead(&uri, Revision::new(7))), (expected, ahead), "{uri}");
        };
        check("/api/v1/pods/p?resourceVersion=0", Some("0"), false);
        check("/api/v1/pods/p?x=1&resourceVersion=8", Some("8"), true);
        check("/api/v1/pods/p?resourceVersion=x", Some("x"), false);
        check("/api/v1/pods/p?resourceVersion=", None, false);
        check("/api/v1/pods/p?x=1", None, false);
        check("/api/v1/pods/p", None, false);
    }
}
