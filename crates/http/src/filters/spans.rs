//! The span of each request, with the fields that operators search.
//!
//! The span begins before authentication and ends with the response. As upstream, only administrators and monitoring
//! decide by their `traceparent` whether a request is recorded, and in which trace.

use std::pin::Pin;

use http::Method;
use http::header::HeaderValue;
use http::request::Parts;
use http::uri::PathAndQuery;
use keelson_access::User;
use keelson_access::user::{MASTERS, MONITORING};
use tracing::field::Empty;
use tracing::{Instrument as _, Span, debug_span};

use crate::request_info::RequestInfo;

/// The most bytes of an audit id in a span, as upstream.
const AUDIT_ID_BYTES: usize = 64;

/// Creates the span of a request.
pub(super) fn request(info: &RequestInfo, parts: &Parts, audit_id: &HeaderValue) -> Span {
    let span = keelson_telemetry::request(&parts.headers, || {
        let resource = Some(info.resource.as_str()).filter(|_| info.is_resource_request);
        debug_span!(
            parent: None,
            "request",
            verb = info.verb.as_str(),
            group = resource.map(|_| info.group.as_str()),
            version = resource.map(|_| info.version.as_str()),
            resource,
            subresource = info.subresource.as_deref(),
            namespace = info.namespace.as_deref(),
            name = info.name.as_deref(),
            path = resource.is_none().then_some(info.path.as_str()),
            audit_id = shortened(audit_id),
            user = Empty,
            code = Empty,
            error = Empty,
            method = parts.method.as_str(),
            target = parts.uri.path_and_query().map(PathAndQuery::as_str),
        )
    });
    keelson_telemetry::name(&span, || name(&parts.method, info));
    span
}

/// Runs a step of a request in a span. The step stays where it is, and costs nothing more if the span is not recorded.
pub(super) async fn within<S: Future>(span: Span, step: Pin<&mut S>) -> S::Output {
    if span.is_disabled() { step.await } else { step.instrument(span).await }
}

/// Records the authenticated user, who may decide about the trace.
pub(super) fn authenticated(span: &Span, user: &User) {
    keelson_telemetry::settle(span, || user.is_in(MASTERS) || user.is_in(MONITORING));
}

/// The name of a request's span, as upstream.
fn name(method: &Method, info: &RequestInfo) -> String {
    if !info.is_resource_request {
        return method.to_string();
    }
    let mut name = format!("{method} /{}", if info.group.is_empty() { "api" } else { "apis" });
    let namespace = info.namespace.as_ref().map(|_| "namespaces/{:namespace}");
    let object = info.name.as_ref().map(|_| "{:name}");
    let parts = [Some(info.group.as_str()), Some(&info.version), namespace, Some(&info.resource), object];
    for part in parts.into_iter().chain([info.subresource.as_deref()]).flatten().filter(|part| !part.is_empty()) {
        name.push('/');
        name.push_str(part);
    }
    name
}

fn shortened(audit_id: &HeaderValue) -> &str {
    let text = audit_id.to_str().unwrap_or_default();
    &text[..text.floor_char_boundary(AUDIT_ID_BYTES)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(method: &Method, target: &str, expect: &str) {
        assert_eq!(name(method, &RequestInfo::parse(method, &target.parse().unwrap())), expect);
    }

    #[test]
    fn spans_of_requests_are_named_as_upstream() {
        check(&Method::GET, "/healthz", "GET");
        check(&Method::GET, "/api/v1/pods?limit=1", "GET /api/v1/pods");
        check(&Method::POST, "/api/v1/namespaces/a/pods", "POST /api/v1/namespaces/{:namespace}/pods");
        check(
            &Method::PUT,
            "/apis/apps/v1/namespaces/a/deployments/d/status",
            "PUT /apis/apps/v1/namespaces/{:namespace}/deployments/{:name}/status",
        );
    }

    #[test]
    fn audit_ids_are_shortened() {
        assert_eq!(shortened(&HeaderValue::from_str(&"x".repeat(500)).unwrap()).len(), AUDIT_ID_BYTES);
    }
}
