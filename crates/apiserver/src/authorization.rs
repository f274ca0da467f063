//! Delegated authorization: the main server decides (`SubjectAccessReview`), and its answer is valid for ten seconds.
//!
//! Members of `system:masters` and health checks need no review, as upstream.

use std::time::Duration;

use futures::future::{Either, ready};
use k8s_openapi::api::authorization::v1::{
    FieldSelectorAttributes, LabelSelectorAttributes, NonResourceAttributes, ResourceAttributes as AskedResource,
    SubjectAccessReview, SubjectAccessReviewSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use keelson_access::{
    Attributes, Authorizer, Decision, PendingVerdict, PrivilegedGroup, ResourceAttributes, User, Verdict,
};
use keelson_supervision::warn_repeated;
use kube::Client;
use kube::api::{Api, PostParams};

use crate::answers::Answers;

/// The time limit of a review, as upstream.
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// The health check paths, which every client may read.
const HEALTH_PATHS: [&str; 3] = ["/livez", "/readyz", "/healthz"];

/// Authorizes requests by reviews at the main server.
pub(crate) struct AccessReviews {
    api: Api<SubjectAccessReview>,
    answers: Answers<Verdict>,
}

impl AccessReviews {
    pub(crate) fn new(client: Client) -> Self {
        Self { api: Api::all(client), answers: Answers::default() }
    }

    async fn ask(&self, spec: SubjectAccessReviewSpec) -> Verdict {
        let question = serde_json::to_string(&spec).unwrap_or_default();
        if let Some(known) = self.answers.get(&question) {
            return known;
        }
        let review = SubjectAccessReview { metadata: ObjectMeta::default(), spec, status: None };
        let params = PostParams::default();
        let asked = tokio::time::timeout(ANSWER_TIME, self.api.create(&params, &review)).await;
        let verdict = match asked {
            Ok(Ok(answer)) => {
                let status = answer.status.unwrap_or_default();
                let decision = match (status.allowed, status.denied.unwrap_or_default()) {
                    (true, true) => return failed("the review is both allowed and denied"),
                    (true, false) => Decision::Allow,
                    (false, true) => Decision::Deny,
                    (false, false) => Decision::NoOpinion,
                };
                Verdict::new(decision, status.reason.unwrap_or_default())
            }
            Ok(Err(error)) => return failed(&error.to_string()),
            Err(_) => return failed(&format!("no answer in {ANSWER_TIME:?}")),
        };
        self.answers.keep(question, verdict.clone());
        verdict
    }
}

/// The verdict without an answer: nothing is allowed. The next request tries again. The client gets no details of the
/// main server, which only the log has.
fn failed(cause: &str) -> Verdict {
    warn_repeated!(""; cause, "access reviews at the main server fail");
    Verdict::failed(Decision::NoOpinion, "the access review at the main server failed")
}

impl Authorizer for AccessReviews {
    fn authorize<'a>(&'a self, user: &'a User, attributes: &'a Attributes<'a>) -> PendingVerdict<'a> {
        if matches!(attributes, Attributes::Path { verb: "get", path } if HEALTH_PATHS.contains(path)) {
            return Either::Left(ready(Verdict::new(Decision::Allow, "")));
        }
        match PrivilegedGroup.authorize(user, attributes) {
            Either::Left(decided) if decided.clone().into_inner().is_allowed() => Either::Left(decided),
            _ => Either::Right(Box::pin(self.ask(question(user, attributes)))),
        }
    }
}

fn question(user: &User, attributes: &Attributes<'_>) -> SubjectAccessReviewSpec {
    let (resource, path) = match attributes {
        Attributes::Resource(resource) => (Some(about(resource)), None),
        Attributes::Path { verb, path } => {
            (None, Some(NonResourceAttributes { path: Some((*path).to_owned()), verb: Some((*verb).to_owned()) }))
        }
    };
    SubjectAccessReviewSpec {
        user: Some(user.name.clone()),
        uid: user.uid.clone(),
        groups: (!user.groups.is_empty()).then(|| user.groups.clone()),
        extra: (!user.extra.is_empty()).then(|| user.extra.clone()),
        resource_attributes: resource,
        non_resource_attributes: path,
    }
}

fn about(attributes: &ResourceAttributes<'_>) -> AskedResource {
    let text = |text: &str| Some(text.to_owned());
    let selector = |selector: Option<&str>| selector.filter(|selector| !selector.is_empty()).and_then(text);
    AskedResource {
        verb: text(attributes.verb),
        group: text(attributes.group),
        version: text(attributes.version),
        resource: text(attributes.resource),
        subresource: attributes.subresource.and_then(text),
        namespace: attributes.namespace.and_then(text),
        name: attributes.name.and_then(text),
        field_selector: selector(attributes.field_selector)
            .map(|raw| FieldSelectorAttributes { raw_selector: Some(raw), requirements: None }),
        label_selector: selector(attributes.label_selector)
            .map(|raw| LabelSelectorAttributes { raw_selector: Some(raw), requirements: None }),
    }
}

impl std::fmt::Debug for AccessReviews {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AccessReviews").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use keelson_testkit::{HookReply, HookServer};
    use serde_json::json;

    use super::*;

    /// The verdict about a path if the main server answers a review with this status. `None` closes the connection.
    async fn verdict(status: Option<serde_json::Value>) -> Verdict {
        let answer = move || match &status {
            Some(status) => HookReply::Json(json!({
                "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "metadata": {}, "spec": {},
                "status": status,
            })),
            None => HookReply::Closes,
        };
        let main = HookServer::start(&["127.0.0.1"], move |_| std::future::ready(answer())).await;
        let mut config = kube::Config::new(main.url("/").parse().unwrap());
        config.accept_invalid_certs = true;
        let reviews = AccessReviews::new(Client::try_from(config).unwrap());
        let user = User { name: "ann".to_owned(), ..User::default() };
        reviews.authorize(&user, &Attributes::Path { verb: "get", path: "/apis" }).await
    }

    #[tokio::test]
    async fn a_review_decides_and_a_missing_or_contradictory_one_is_an_error() {
        let decided = async |status| verdict(Some(status)).await;
        let allowed = decided(json!({ "allowed": true, "reason": "it is ann" })).await;
        assert_eq!(allowed, Verdict::new(Decision::Allow, "it is ann"));
        let denied = decided(json!({ "allowed": false, "denied": true, "reason": "no" })).await;
        assert_eq!(denied, Verdict::new(Decision::Deny, "no"));
        assert_eq!(decided(json!({ "allowed": false })).await, Verdict::new(Decision::NoOpinion, ""));
        for unanswered in [decided(json!({ "allowed": true, "denied": true })).await, verdict(None).await] {
            let error = "the access review at the main server failed";
            assert_eq!(unanswered, Verdict::failed(Decision::NoOpinion, error));
        }
    }
}
