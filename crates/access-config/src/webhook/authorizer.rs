//! Authorization by a webhook, which gets a SubjectAccessReview.
//!
//! If a webhook fails, its failure policy decides: no opinion, or a denial. It never allows then, and the verdict has the
//! error. Responses are cached, with different times for allowed and denied.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures::future::{BoxFuture, Either, ready};
use keelson_access::{Attributes, Authorizer, Decision, HeldRules, PendingVerdict, ResourceAttributes, User, Verdict};
use keelson_codec::json as text;
use keelson_meta::Random;
use keelson_meta::field_selector::{FieldOperator, FieldSelector};
use keelson_meta::json::{Map, Value, json};
use keelson_meta::label_selector::{LabelSelector, Operator};
use keelson_meta::metering::{AtomicHistogram, Buckets};
use keelson_outbound::{Outbound, cut};
use keelson_supervision::error_repeated;

use super::MatchConditions;
use super::client::{ReviewClient, ReviewVersion};
use crate::answers::{Answers, answer_key};
use crate::authorization::{FailurePolicy, WebhookSettings};
use crate::document::ConfigurationError;

/// The largest number of cached responses.
const KEPT: usize = 8192;
/// The total length of names in bytes, above which responses are not cached. Otherwise clients could fill the memory
/// with long names.
const MOST_NAMED: usize = 10_000;
/// The longest reason of a response in bytes; the rest is cut off. Refusals and the audit log show it.
const REASON_BYTES: usize = 4096;

/// The upper bounds of the duration buckets, in seconds: upstream's.
const BUCKETS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// The results of calls, as labels of the metric.
const RESULTS: [&str; 4] = ["success", "error", "timeout", "canceled"];
const SUCCESS: usize = 0;
const ERROR: usize = 1;
const TIMEOUT: usize = 2;
const CANCELED: usize = 3;

/// A webhook that authorizes requests.
#[derive(Debug)]
pub(crate) struct WebhookAuthorizer {
    name: String,
    client: ReviewClient,
    version: ReviewVersion,
    allowed_for: Duration,
    refused_for: Duration,
    on_failure: Decision,
    conditions: MatchConditions,
    kept: Answers<Result<Verdict, String>>,
    counts: Arc<Counters>,
}

/// The counts of a webhook. They survive a change of its settings.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// The durations of calls, by result.
    asked: [Times; RESULTS.len()],
    failed_open: [AtomicU64; RESULTS.len()],
    excluded: AtomicU64,
    unmatched: AtomicU64,
    matching: Matching,
}

/// The durations of evaluations of the conditions.
#[derive(Debug)]
struct Matching(Arc<AtomicHistogram>);

/// Upper bounds of its buckets, in microseconds.
static MATCHING_BUCKETS: Buckets = Buckets::of_durations(&[1_000, 5_000, 10_000, 25_000, 100_000, 200_000, 250_000]);

impl Default for Matching {
    fn default() -> Self {
        Self(Arc::new(AtomicHistogram::new(&MATCHING_BUCKETS)))
    }
}

/// A histogram of durations.
#[derive(Debug, Default)]
struct Times {
    count: AtomicU64,
    micros: AtomicU64,
    buckets: [AtomicU64; BUCKETS.len()],
}

impl Times {
    fn note(&self, took: Duration) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.micros.fetch_add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
        let seconds = took.as_secs_f64();
        if let Some(bucket) = BUCKETS.iter().position(|end| seconds <= *end) {
            self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The calls with one result.
#[derive(Clone, Debug, PartialEq)]
pub struct CallCounts {
    /// The result: `success`, `error`, `timeout` or `canceled`.
    pub result: &'static str,
    /// The number of calls.
    pub count: u64,
    /// The sum of durations in seconds.
    pub seconds: f64,
    /// The upper bounds of buckets in seconds, each with the number of calls in the bucket (not cumulative).
    pub buckets: Vec<(f64, u64)>,
    /// The number of these calls whose request went on to the next authorizer, because the webhook failed.
    pub failed_open: u64,
}

/// The counts of a webhook.
#[derive(Clone, Debug, PartialEq)]
pub struct WebhookCounts {
    /// The name of the webhook in the configuration.
    pub name: String,
    /// The calls, by result.
    pub asked: Vec<CallCounts>,
    /// The number of requests that did not match the conditions.
    pub excluded: u64,
    /// The number of requests whose conditions failed.
    pub unmatched: u64,
}

impl Counters {
    /// The durations of evaluations of the conditions.
    pub(crate) fn matching(&self) -> Arc<AtomicHistogram> {
        self.matching.0.clone()
    }

    pub(crate) fn snapshot(&self, name: &str) -> WebhookCounts {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        WebhookCounts {
            name: name.to_owned(),
            asked: RESULTS
                .into_iter()
                .zip(&self.asked)
                .zip(&self.failed_open)
                .map(|((result, times), open)| CallCounts {
                    result,
                    count: of(&times.count),
                    seconds: Duration::from_micros(of(&times.micros)).as_secs_f64(),
                    buckets: BUCKETS.into_iter().zip(times.buckets.iter().map(of)).collect(),
                    failed_open: of(open),
                })
                .collect(),
            excluded: of(&self.excluded),
            unmatched: of(&self.unmatched),
        }
    }
}

/// A running call. If its caller cancels it, it is counted as canceled.
struct RunningCall<'c> {
    counts: Option<&'c Counters>,
    begun: Instant,
}

impl Drop for RunningCall<'_> {
    fn drop(&mut self) {
        if let Some(counts) = self.counts {
            counts.asked[CANCELED].note(self.begun.elapsed());
        }
    }
}

impl WebhookAuthorizer {
    /// Creates a webhook from its settings. The address is in its kubeconfig.
    pub(crate) fn new(
        name: &str,
        file: &Path,
        settings: &WebhookSettings,
        conditions: MatchConditions,
        counts: Arc<Counters>,
        outbound: &Arc<Outbound>,
        random: Arc<dyn Random>,
    ) -> Result<Self, ConfigurationError> {
        let kept_for = |time: Option<Duration>, keeps: bool| time.filter(|_| keeps).unwrap_or_default();
        Ok(Self {
            name: name.to_owned(),
            client: ReviewClient::of_file(file, settings.timeout(), outbound, random)?,
            version: settings.version(),
            allowed_for: kept_for(settings.authorized_ttl.positive(), settings.cache_authorized),
            refused_for: kept_for(settings.unauthorized_ttl.positive(), settings.cache_unauthorized),
            on_failure: match settings.failure_policy() {
                FailurePolicy::NoOpinion => Decision::NoOpinion,
                FailurePolicy::Deny => Decision::Deny,
            },
            conditions,
            kept: Answers::new(KEPT),
            counts,
        })
    }

    /// Reloads the files with the webhook's address after changes. Never returns.
    pub(crate) async fn follow(&self) {
        self.client.follow().await;
    }

    async fn decide(&self, user: &User, attributes: &Attributes<'_>) -> Verdict {
        if !self.conditions.is_empty() {
            let begun = Instant::now();
            let holds = self.conditions.hold(&condition_request(user, attributes));
            self.counts.matching.0.observe_duration(begun.elapsed());
            match holds {
                Ok(true) => {}
                Ok(false) => {
                    self.counts.excluded.fetch_add(1, Ordering::Relaxed);
                    return Verdict::new(Decision::NoOpinion, "");
                }
                Err(why) => {
                    self.counts.unmatched.fetch_add(1, Ordering::Relaxed);
                    error_repeated!(&self.name; webhook = self.name, why, "a match condition of a webhook failed");
                    return self.failed(why);
                }
            }
        }
        let spec = self.spec(user, attributes);
        let bytes = text::to_vec(&spec);
        let is_kept = named_bytes(attributes) < MOST_NAMED;
        let ask = async {
            let answer = self.ask(spec).await;
            let keep = match &answer {
                Ok(verdict) if verdict.is_allowed() => self.allowed_for,
                Ok(_) => self.refused_for,
                Err(_) => Duration::ZERO,
            };
            (answer, if is_kept { keep } else { Duration::ZERO })
        };
        match self.kept.get(answer_key([&*bytes]), ask).await {
            Ok(verdict) => verdict,
            Err(why) => self.failed(why),
        }
    }

    fn failed(&self, why: String) -> Verdict {
        Verdict::failed(self.on_failure, why)
    }

    async fn ask(&self, spec: Value) -> Result<Verdict, String> {
        let review = json!({
            "kind": "SubjectAccessReview",
            "apiVersion": format!("authorization.k8s.io/{}", self.version.name()),
            "metadata": {},
            "spec": spec,
            "status": { "allowed": false },
        });
        let mut asking = RunningCall { counts: Some(&self.counts), begun: Instant::now() };
        let answer = self.client.ask(&review).await;
        asking.counts = None;
        let result = match &answer {
            Ok(_) => SUCCESS,
            Err(why) if why.contains("context deadline exceeded") => TIMEOUT,
            Err(_) => ERROR,
        };
        self.counts.asked[result].note(asking.begun.elapsed());
        if result != SUCCESS && self.on_failure == Decision::NoOpinion {
            self.counts.failed_open[result].fetch_add(1, Ordering::Relaxed);
        }
        let answer = answer?;
        let status = &answer["status"];
        let is = |field: &str| status[field].as_bool() == Some(true);
        let stated = cut(status["reason"].as_str().unwrap_or_default(), REASON_BYTES);
        let decision = match (is("denied"), is("allowed")) {
            (true, true) => {
                let error = "webhook subject access review returned both allow and deny response".into();
                let reason = stated.to_owned().into();
                return Ok(Verdict { decision: Decision::Deny, reason, error: Some(error) });
            }
            (true, false) => Decision::Deny,
            (false, true) => Decision::Allow,
            (false, false) => Decision::NoOpinion,
        };
        Ok(Verdict::new(decision, stated.to_owned()))
    }

    /// The `spec` of a review.
    fn spec(&self, user: &User, attributes: &Attributes<'_>) -> Value {
        let mut spec = Map::new();
        match attributes {
            Attributes::Resource(resource) => {
                let mut fields = resource_fields(resource, false);
                if let Some(selector) = resource.field_selector.and_then(field_requirements) {
                    fields.insert("fieldSelector", selector);
                }
                if let Some(selector) = resource.label_selector.and_then(label_requirements) {
                    fields.insert("labelSelector", selector);
                }
                spec.insert("resourceAttributes", Value::Object(fields));
            }
            Attributes::Path { verb, path } => {
                let fields = [("path", *path), ("verb", *verb)].into_iter().filter(|(_, value)| !value.is_empty());
                let fields: Map = fields.map(|(name, value)| (name.to_owned(), json!(value))).collect();
                spec.insert("nonResourceAttributes", Value::Object(fields));
            }
        }
        if !user.name.is_empty() {
            spec.insert("user", json!(user.name));
        }
        if !user.groups.is_empty() {
            let name = if self.version == ReviewVersion::V1 { "groups" } else { "group" };
            spec.insert(name, json!(user.groups));
        }
        if !user.extra.is_empty() {
            spec.insert("extra", json!(user.extra));
        }
        if let Some(uid) = user.uid.as_ref().filter(|uid| !uid.is_empty()) {
            spec.insert("uid", json!(uid));
        }
        Value::Object(spec)
    }
}

fn resource_fields(of: &ResourceAttributes<'_>, with_empty: bool) -> Map {
    let fields = [
        ("namespace", of.namespace.unwrap_or_default()),
        ("verb", of.verb),
        ("group", of.group),
        ("version", of.version),
        ("resource", of.resource),
        ("subresource", of.subresource.unwrap_or_default()),
        ("name", of.name.unwrap_or_default()),
    ];
    let stated = fields.into_iter().filter(|(_, value)| with_empty || !value.is_empty());
    stated.map(|(name, value)| (name.to_owned(), json!(value))).collect()
}

/// The variable `request` of conditions. Empty fields are present, so conditions need not test for them.
fn condition_request(user: &User, attributes: &Attributes<'_>) -> Value {
    let mut request = Map::new();
    match attributes {
        Attributes::Resource(resource) => {
            let mut fields = resource_fields(resource, true);
            if let Some(selector) = resource.field_selector.and_then(field_requirements) {
                fields.insert("fieldSelector", selector);
            }
            if let Some(selector) = resource.label_selector.and_then(label_requirements) {
                fields.insert("labelSelector", selector);
            }
            request.insert("resourceAttributes", Value::Object(fields));
        }
        Attributes::Path { verb, path } => {
            request.insert("nonResourceAttributes", json!({ "path": path, "verb": verb }));
        }
    }
    request.insert("user", json!(user.name));
    request.insert("groups", json!(user.groups));
    request.insert("uid", json!(user.uid.as_deref().unwrap_or_default()));
    request.insert("extra", json!(user.extra));
    Value::Object(request)
}

/// The requirements of a label selector. Like upstream, invalid selectors are omitted from a review.
fn label_requirements(selector: &str) -> Option<Value> {
    let selector = LabelSelector::parse(selector).ok().filter(|selector| !selector.is_empty())?;
    let requirements = selector.requirements().iter().filter_map(|requirement| {
        let operator = match requirement.operator() {
            Operator::In | Operator::Equals | Operator::DoubleEquals => "In",
            Operator::NotIn | Operator::NotEquals => "NotIn",
            Operator::Exists => "Exists",
            Operator::DoesNotExist => "DoesNotExist",
            // Reviews cannot express these operators. Without them the review asks for access to more objects.
            Operator::GreaterThan | Operator::LessThan => return None,
        };
        let values: Vec<&str> = requirement.values().collect();
        let mut stated = json!({ "key": requirement.key(), "operator": operator });
        if let Some(fields) = stated.as_object_mut().filter(|_| !values.is_empty()) {
            fields.insert("values", json!(values));
        }
        Some(stated)
    });
    Some(json!({ "requirements": requirements.collect::<Vec<_>>() }))
}

fn field_requirements(selector: &str) -> Option<Value> {
    let selector = FieldSelector::parse(selector).ok().filter(|selector| !selector.is_empty())?;
    let requirements = selector.terms().iter().map(|term| {
        let operator = match term.op {
            FieldOperator::Equal => "In",
            FieldOperator::NotEqual => "NotIn",
        };
        json!({ "key": term.field, "operator": operator, "values": [term.value] })
    });
    Some(json!({ "requirements": requirements.collect::<Vec<_>>() }))
}

/// The total length of names that the client has chosen, in bytes.
fn named_bytes(attributes: &Attributes<'_>) -> usize {
    match attributes {
        Attributes::Path { verb, path } => verb.len() + path.len(),
        Attributes::Resource(of) => {
            let optional = [of.subresource, of.namespace, of.name, of.label_selector, of.field_selector];
            let optional: usize = optional.into_iter().flatten().map(str::len).sum();
            optional + of.verb.len() + of.group.len() + of.version.len() + of.resource.len()
        }
    }
}

impl Authorizer for WebhookAuthorizer {
    fn authorize<'a>(&'a self, user: &'a User, attributes: &'a Attributes<'a>) -> PendingVerdict<'a> {
        Either::Right(Box::pin(self.decide(user, attributes)))
    }

    fn rules<'a>(&'a self, _user: &'a User, _namespace: Option<&'a str>) -> BoxFuture<'a, HeldRules> {
        let unresolved = vec!["webhook authorizer does not support user rule resolution"];
        Box::pin(ready(HeldRules { unresolved, ..HeldRules::default() }))
    }
}
