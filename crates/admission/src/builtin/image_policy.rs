//! Image policies: a backend outside the cluster reviews the images of each new or changed pod.
//!
//! This is upstream's plugin ImagePolicyWebhook. The plugin caches responses by the content of the review. If calling
//! the backend fails, the pod is refused, unless the settings admit it. The plugin reads three things of a response:
//! the decision, its reason, and audit annotations.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use keelson_access_config::{Answers, RETRY_WAIT, ReviewClient, answer_key};
use keelson_codec::json;
use keelson_meta::json::{Map, Value};
use keelson_meta::{ApiError, Object};
use keelson_registry::{Admission, AdmissionAttributes, AttributesNeeded, Operation};

use super::reading::{is_about, is_written, items};

const VERSION: &str = "imagepolicy.k8s.io/v1alpha1";
const KIND: &str = "ImageReview";
/// The plural of pods.
const PODS: &str = "pods";
/// The subresource of pods whose images are reviewed too.
const EPHEMERAL: &str = "ephemeralcontainers";
/// Annotations of a pod whose keys contain this text are sent to the backend.
const SHOWN: &str = ".image-policy.k8s.io/";
/// The annotation of a pod that was allowed without a review.
const FAILED_OPEN: &str = "alpha.image-policy.k8s.io/failed-open";
/// The prefix of the keys of audit annotations.
const AUDIT: &str = "imagepolicywebhook.image-policy.k8s.io/";

/// The timeout of one call.
pub(crate) const CALL_TIME: Duration = Duration::from_secs(30);
/// The largest number of cached responses.
const KEPT: usize = 1024;
/// The longest reason in bytes; the rest is cut off.
const REASON_BYTES: usize = 4096;
/// The largest number of audit annotations in a response, and the longest annotation in bytes. Others are dropped.
const ANNOTATIONS: usize = 32;
const ANNOTATION_BYTES: usize = 1024;

/// The settings of the plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImagePolicy {
    /// The kubeconfig of the backend.
    pub kubeconfig: PathBuf,
    /// The time for which an allowing response is cached.
    pub allowed_for: Duration,
    /// The time for which a refusing response is cached.
    pub refused_for: Duration,
    /// The delay before the second try.
    pub retry_wait: Duration,
    /// True if pods are admitted when the call fails.
    pub allows_on_failure: bool,
}

impl ImagePolicy {
    /// The default settings for a kubeconfig.
    pub(crate) fn new(kubeconfig: PathBuf) -> Self {
        Self {
            kubeconfig,
            allowed_for: Duration::from_secs(300),
            refused_for: Duration::from_secs(30),
            retry_wait: RETRY_WAIT,
            allows_on_failure: false,
        }
    }
}

/// The decision of a backend about images.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Verdict {
    is_allowed: bool,
    reason: String,
    annotations: Vec<(String, String)>,
}

/// Calls the backend for new and changed pods.
#[derive(Debug)]
pub(crate) struct ImagePolicyWebhook {
    settings: ImagePolicy,
    client: Arc<ReviewClient>,
    kept: Answers<Result<Verdict, String>>,
}

impl ImagePolicyWebhook {
    /// Creates the plugin from its settings and the client of its backend.
    pub(crate) fn new(settings: ImagePolicy, client: Arc<ReviewClient>) -> Self {
        Self { settings, client, kept: Answers::new(KEPT) }
    }

    async fn verdict(&self, spec: Value) -> Result<Verdict, String> {
        let asked = answer_key([&*json::to_vec(&spec)]);
        let ask = async {
            let verdict = self.ask(spec).await;
            let keep = match &verdict {
                Ok(verdict) if verdict.is_allowed => self.settings.allowed_for,
                Ok(_) => self.settings.refused_for,
                Err(_) => Duration::ZERO,
            };
            (verdict, keep)
        };
        self.kept.get(asked, ask).await
    }

    async fn ask(&self, spec: Value) -> Result<Verdict, String> {
        let review = keelson_meta::json::json!({
            "kind": KIND, "apiVersion": VERSION, "metadata": {}, "spec": spec, "status": { "allowed": false },
        });
        read(&self.client.ask(&review).await?)
    }

    async fn review(&self, attributes: &AdmissionAttributes<'_>, pod: &Object) -> Result<(), ApiError> {
        let spec = spec(attributes, pod);
        let audit = attributes.caller.audit();
        // The deadline of the whole write ends this wait too.
        let verdict = match self.verdict(spec).await {
            Ok(verdict) => verdict,
            Err(_) if self.settings.allows_on_failure => {
                audit.annotate(format!("{AUDIT}failed-open"), "true".to_owned());
                attributes.reinvocation.mark(FAILED_OPEN, "true");
                return Ok(());
            }
            Err(why) => return Err(attributes.refused(why)),
        };
        for (key, value) in verdict.annotations {
            audit.annotate(format!("{AUDIT}{key}"), value);
        }
        match (verdict.is_allowed, verdict.reason.as_str()) {
            (true, _) => Ok(()),
            (false, "") => Err(attributes.refused("one or more images rejected by webhook backend")),
            (false, reason) => {
                let why = format!("image policy webhook backend denied one or more images: {reason}");
                Err(attributes.refused(why))
            }
        }
    }
}

/// The specification of the review: images of the containers, then of the init containers, or only of the ephemeral
/// ones.
fn spec(attributes: &AdmissionAttributes<'_>, pod: &Object) -> Value {
    let lists: &[&str] = match attributes.subresource() {
        EPHEMERAL => &["ephemeralContainers"],
        _ => &["containers", "initContainers"],
    };
    let containers = lists.iter().flat_map(|list| items(pod.get(&["spec", list])));
    let containers: Vec<Value> = containers.map(shown_container).collect();
    let annotations: Map = pod
        .annotations()
        .filter(|(key, _)| key.contains(SHOWN))
        .map(|(key, value)| (key.to_owned(), Value::from(value)))
        .collect();
    let mut spec = Map::default();
    if !containers.is_empty() {
        spec.insert("containers", containers);
    }
    if !annotations.is_empty() {
        spec.insert("annotations", Value::Object(annotations));
    }
    if let Some(namespace) = attributes.target.namespace.as_deref() {
        spec.insert("namespace", namespace);
    }
    Value::Object(spec)
}

fn shown_container(container: &Value) -> Value {
    let mut shown = Map::default();
    if let Some(image) = container.get("image").and_then(Value::as_str).filter(|image| !image.is_empty()) {
        shown.insert("image", image);
    }
    Value::Object(shown)
}

/// Parses a response. A body that is not a review, or whose `allowed` is not a boolean, is a failure.
fn read(answer: &Value) -> Result<Verdict, String> {
    let is = |field: &str, expected: &str| answer[field].is_null() || answer[field] == expected;
    if !is("kind", KIND) || !is("apiVersion", VERSION) {
        return Err(format!("the answer is not an {KIND} of {VERSION}"));
    }
    let status = &answer["status"];
    let is_allowed = match &status["allowed"] {
        Value::Null => false,
        stated => stated.as_bool().ok_or("status.allowed of the answer is not a boolean")?,
    };
    let reason = match &status["reason"] {
        Value::Null => "",
        stated => stated.as_str().ok_or("status.reason of the answer is not a string")?,
    };
    let reason = reason[..reason.floor_char_boundary(REASON_BYTES)].to_owned();
    let stated = status["auditAnnotations"].as_object().into_iter().flatten();
    let annotations = stated
        .filter_map(|(key, value)| Some((key.to_string(), value.as_str()?.to_owned())))
        .filter(|(key, value)| key.len() + value.len() <= ANNOTATION_BYTES)
        .take(ANNOTATIONS)
        .collect();
    Ok(Verdict { is_allowed, reason, annotations })
}

impl Admission for ImagePolicyWebhook {
    fn name(&self) -> &'static str {
        "ImagePolicyWebhook"
    }

    fn interest(&self, attributes: &AdmissionAttributes<'_>) -> AttributesNeeded {
        let is_update = attributes.operation == Operation::Update;
        let adds_containers = is_update && attributes.subresource() == EPHEMERAL && is_about(attributes, PODS);
        if adds_containers || is_written(attributes, PODS) { AttributesNeeded::Object } else { AttributesNeeded::None }
    }

    fn validate<'a>(
        &'a self,
        attributes: &'a AdmissionAttributes<'a>,
        object: Option<&'a Object>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            match object {
                Some(pod) => self.review(attributes, pod).await,
                None => Ok(()),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use keelson_meta::json::json;

    use super::*;

    #[test]
    fn only_a_review_that_says_so_allows() {
        let check = |answer: Value, expected: Result<bool, &str>| {
            let verdict = read(&answer).map(|verdict| verdict.is_allowed);
            assert_eq!(verdict.as_ref().map_err(String::as_str).copied(), expected, "{answer:?}");
        };
        check(json!({ "status": { "allowed": true } }), Ok(true));
        check(json!({ "kind": KIND, "apiVersion": VERSION, "status": { "allowed": true } }), Ok(true));
        check(json!({ "status": {} }), Ok(false));
        check(json!({}), Ok(false));
        check(json!({ "allowed": true }), Ok(false));
        let no_boolean = Err("status.allowed of the answer is not a boolean");
        check(json!({ "status": { "allowed": "true" } }), no_boolean);
        check(json!({ "status": { "allowed": 1 } }), no_boolean);
        let other = Err("the answer is not an ImageReview of imagepolicy.k8s.io/v1alpha1");
        check(json!({ "kind": "TokenReview", "status": { "allowed": true } }), other);
        check(json!({ "apiVersion": "v1", "status": { "allowed": true } }), other);
        check(json!({ "status": { "reason": 5 } }), Err("status.reason of the answer is not a string"));
    }

    #[test]
    fn a_large_answer_is_kept_in_part() {
        let annotations: Map = (0..1000).map(|number| (format!("a{number}"), json!("x"))).collect();
        let answer = json!({ "status": { "reason": "ä".repeat(1 << 20), "auditAnnotations": annotations } });
        let verdict = read(&answer).unwrap();
        assert_eq!((verdict.reason.len(), verdict.annotations.len()), (REASON_BYTES, ANNOTATIONS));
        let answer = json!({ "status": { "auditAnnotations": { "long": "x".repeat(ANNOTATION_BYTES), "list": [] } } });
        assert_eq!(read(&answer).unwrap().annotations, []);
    }
}
