//! The authorization filter: calls the server's authorizer for each request.
//!
//! The authorizer also gets the selectors of the request. It may wait, for example for a webhook. A refusal has
//! upstream's text with the authorizer's reason. If an authorizer failed and none allows the request, the answer is 500.

use std::borrow::Cow;
use std::time::Instant;

use http::Uri;
use keelson_access::audit::{AuditRecord, Level};
use keelson_access::{Attributes, Authorizer, ResourceAttributes, User};
use keelson_meta::error::ForbiddenDetail;
use keelson_meta::{ApiError, GroupResource};
use keelson_resources::Verb;

use crate::metrics::AccessMetrics;
use crate::request_info::{RequestInfo, RequestVerb};

/// Authorizes a request. Records the decision in the audit event.
///
/// # Errors
/// [`ApiError::Forbidden`], for unauthenticated clients too: as upstream, their user is `system:anonymous`.
/// [`ApiError::Internal`] with the error of an authorizer that could not decide.
pub(super) async fn permit(
    user: &User,
    info: &RequestInfo,
    uri: &Uri,
    authorizer: &dyn Authorizer,
    audit: &AuditRecord,
    metrics: &AccessMetrics,
) -> Result<(), ApiError> {
    let selectors = Selectors::parse(info, uri);
    let begun = Instant::now();
    let verdict = authorizer.authorize(user, &attributes(info, &selectors)).await;
    metrics.note_authorization(&verdict, begun.elapsed());
    if let Some(error) = verdict.error.as_ref().filter(|_| !verdict.is_allowed()) {
        audit.annotate("authorization.k8s.io/reason", "internal error");
        return Err(ApiError::Internal(error.to_string()));
    }
    if audit.level() > Level::None {
        audit.decides(if verdict.is_allowed() { "allow" } else { "forbid" }, verdict.reason.clone());
    }
    if verdict.is_allowed() {
        return Ok(());
    }
    Err(ApiError::Forbidden(Box::new(refusal(user, info, verdict.reason.to_string()))))
}

/// The selectors of a request, not yet parsed.
#[derive(Default)]
pub(super) struct Selectors<'u> {
    label: Option<Cow<'u, str>>,
    field: Option<Cow<'u, str>>,
}

impl<'u> Selectors<'u> {
    pub(super) fn parse(info: &RequestInfo, uri: &'u Uri) -> Self {
        let mut selectors = Self::default();
        let of_collection =
            matches!(info.verb, RequestVerb::Resource(Verb::List | Verb::Watch | Verb::DeleteCollection));
        for (key, value) in uri.query().filter(|_| of_collection).into_iter().flat_map(pairs) {
            match &*key {
                "labelSelector" => drop(selectors.label.get_or_insert(value)),
                "fieldSelector" => drop(selectors.field.get_or_insert(value)),
                _ => {}
            }
        }
        selectors
    }
}

fn pairs(query: &str) -> form_urlencoded::Parse<'_> {
    form_urlencoded::parse(query.as_bytes())
}

/// The attributes of a request that authorizers get.
pub(super) fn attributes<'r>(info: &'r RequestInfo, selectors: &'r Selectors<'_>) -> Attributes<'r> {
    if !info.is_resource_request {
        return Attributes::Path { verb: info.verb.as_str(), path: &info.path };
    }
    Attributes::Resource(ResourceAttributes {
        verb: verb_of(info),
        group: &info.group,
        version: &info.version,
        resource: &info.resource,
        subresource: info.subresource.as_deref(),
        namespace: info.namespace.as_deref(),
        name: info.name.as_deref(),
        label_selector: selectors.label.as_deref(),
        field_selector: selectors.field.as_deref(),
    })
}

/// The verb of a request. As upstream, it is empty for a method that resources do not have.
pub(super) fn verb_of(info: &RequestInfo) -> &str {
    match &info.verb {
        RequestVerb::Other(_) if info.is_resource_request => "",
        verb => verb.as_str(),
    }
}

fn refusal(user: &User, info: &RequestInfo, reason: String) -> ForbiddenDetail {
    let resource = GroupResource { group: info.group.clone(), resource: info.resource.clone() };
    ForbiddenDetail {
        user: user.name.clone(),
        verb: verb_of(info).to_owned(),
        resource: info.is_resource_request.then_some(resource),
        name: info.name.clone().unwrap_or_default(),
        namespace: info.namespace.clone(),
        path: (!info.is_resource_request).then(|| info.path.clone()),
        subresource: info.subresource.clone(),
        reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;
    use futures::FutureExt as _;
    use futures::future::Either;
    use http::Method;
    use keelson_access::{Decision, PendingVerdict, PrivilegedGroup, Verdict};

    fn check(groups: &[&str], target: &str, expect: Result<(), &str>) {
        let groups = groups.iter().map(ToString::to_string).collect();
        let user = User { name: "alice".to_owned(), groups, ..User::default() };
        let uri: Uri = target.parse().unwrap();
        let info = RequestInfo::parse(&Method::GET, &uri);
        let metrics = Metrics::new();
        let outcome = permit(&user, &info, &uri, &PrivilegedGroup, &AuditRecord::default(), metrics.access())
            .now_or_never()
            .expect("it needs no wait");
        let outcome = outcome.map_err(|error| error.status().message);
        assert_eq!(outcome, expect.map_err(str::to_owned), "{target}");
    }

    #[test]
    fn forbidden_errors_name_user_verb_and_resource() {
        check(&["system:masters"], "/api/v1/pods", Ok(()));
        check(
            &[],
            "/api/v1/pods",
            Err(
                "pods is forbidden: User \"alice\" cannot list resource \"pods\" in API group \"\" at the cluster scope",
            ),
        );
        check(
            &[],
            "/apis/apps/v1/namespaces/a/deployments/d",
            Err(
                "deployments.apps \"d\" is forbidden: User \"alice\" cannot get resource \"deployments\" in API group \
                 \"apps\" in the namespace \"a\"",
            ),
        );
        check(&[], "/foo", Err("forbidden: User \"alice\" cannot get path \"/foo\""));
        check(&["system:unauthenticated"], "/foo", Err("forbidden: User \"alice\" cannot get path \"/foo\""));
    }

    #[test]
    fn a_method_without_meaning_for_a_resource_is_no_verb() {
        let metrics = Metrics::new();
        let told = |target: &str| {
            let uri: Uri = target.parse().unwrap();
            let info = RequestInfo::parse(&Method::OPTIONS, &uri);
            let outcome =
                permit(&User::default(), &info, &uri, &PrivilegedGroup, &AuditRecord::default(), metrics.access())
                    .now_or_never();
            outcome.expect("it needs no wait").unwrap_err().status().message
        };
        let of_resource =
            "pods is forbidden: User \"\" cannot  resource \"pods\" in API group \"\" at the cluster scope";
        assert_eq!(told("/api/v1/pods"), of_resource);
        assert_eq!(told("/foo"), "forbidden: User \"\" cannot options path \"/foo\"");
    }

    /// Permits everyone to read objects with the label `public`, after a wait.
    #[derive(Debug)]
    struct PublicOnly;

    impl Authorizer for PublicOnly {
        fn authorize<'a>(&'a self, _: &'a User, attributes: &'a Attributes<'a>) -> PendingVerdict<'a> {
            let public = matches!(
                attributes,
                Attributes::Resource(ResourceAttributes {
                    label_selector: Some("public=true"),
                    field_selector: None,
                    ..
                })
            );
            Either::Right(Box::pin(async move {
                tokio::task::yield_now().await;
                let decision = if public { Decision::Allow } else { Decision::NoOpinion };
                Verdict::new(decision, "it is not public")
            }))
        }
    }

    #[tokio::test]
    async fn asynchronous_authorizers_receive_the_selectors() {
        let metrics = Metrics::new();
        for (target, allowed) in [
            ("/api/v1/pods?labelSelector=public%3Dtrue", true),
            ("/api/v1/pods?labelSelector=public%3Dtrue&watch=1", true),
            ("/api/v1/pods?labelSelector=public%3Dtrue&fieldSelector=a%3Db", false),
            ("/api/v1/pods", false),
            ("/api/v1/namespaces/a/pods/p?labelSelector=public%3Dtrue", false),
        ] {
            let uri: Uri = target.parse().unwrap();
            let info = RequestInfo::parse(&Method::GET, &uri);
            let outcome =
                permit(&User::default(), &info, &uri, &PublicOnly, &AuditRecord::default(), metrics.access()).await;
            assert_eq!(outcome.is_ok(), allowed, "{target}");
            let told = outcome.err().map_or(String::new(), |error| error.status().message);
            assert_eq!(told.ends_with(": it is not public"), !allowed, "{told}");
        }
    }
}
