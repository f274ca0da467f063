//! The plugin for validating policies: turns their results into a refusal, warnings and audit annotations.
//!
//! All policies are evaluated. Like upstream, the first refusal is returned.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use keelson_access::follow::Follower;
use keelson_cache::Cache;
use keelson_meta::go_format;
use keelson_meta::json::{Value, json};
use keelson_meta::status::{StatusCause, StatusDetails};
use keelson_meta::{ApiError, Object, Status};
use keelson_registry::{Admission, AdmissionAttributes, AttributesNeeded, Target};
use keelson_supervision::warn_repeated;
use tracing::{Instrument as _, debug_span};

use super::judgement::{PolicyResult, Refusal, judge};
use super::parameters::{self, Decoded};
use super::policy::{Binding, Policy};
use super::seen::PolicyInput;
use super::stats::{PolicyError, PolicyKey, PolicyStats};
use super::{Bound, Policies, PolicyLists, follow, interest, is_about, policy_lists};
use crate::manifests::Manifests;
use crate::matching::Endpoint;
use crate::shown::AdmissionObjects;
use crate::told::told_name;

/// The audit annotation with the refusals.
const FAILURES: &str = "validation.policy.admission.k8s.io/validation_failure";

/// The maximum number of refusals in the annotation. 50 of them have about 10 KiB.
const MAX_FAILURES: usize = 50;

/// The admission plugin.
pub(crate) struct ValidatingPolicies {
    policies: Follower<Policies>,
    /// The policies of manifests, if there is a directory.
    manifests: Option<Arc<Manifests>>,
    decoded: Decoded,
    stats: Arc<PolicyStats>,
}

impl fmt::Debug for ValidatingPolicies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ValidatingPolicies").finish_non_exhaustive()
    }
}

impl ValidatingPolicies {
    pub(crate) fn new(
        cache: &Arc<Cache>,
        stats: Arc<PolicyStats>,
        manifests: Option<Arc<Manifests>>,
    ) -> Result<Self, ApiError> {
        let policies = follow(cache, "validatingadmissionpolicies", "validatingadmissionpolicybindings")?;
        Ok(Self { policies, manifests, decoded: Decoded::default(), stats })
    }

    fn bound(&self) -> PolicyLists {
        policy_lists(self.manifests.as_ref(), &self.policies)
    }
}

impl Admission for ValidatingPolicies {
    fn name(&self) -> &'static str {
        "ValidatingAdmissionPolicy"
    }

    fn interest(&self, attributes: &AdmissionAttributes<'_>) -> AttributesNeeded {
        interest(&self.bound(), attributes)
    }

    fn validate<'a>(
        &'a self,
        attributes: &'a AdmissionAttributes<'a>,
        object: Option<&'a Object>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            let (decoded, stats) = (&self.decoded, &*self.stats);
            let (seen, denied, noted) = (None, None, Vec::new());
            let mut judging = PolicyRequest { attributes, object, decoded, stats, seen, denied, noted };
            for bound in self.bound().iter().flat_map(|list| list.iter()) {
                let policy = bound.policy.name.as_str();
                judging.policy(bound).instrument(debug_span!("policy", policy, stage = "validate")).await;
            }
            judging.end()
        })
    }
}

/// One request, while all policies are evaluated.
struct PolicyRequest<'a> {
    attributes: &'a AdmissionAttributes<'a>,
    object: Option<&'a Object>,
    decoded: &'a Decoded,
    stats: &'a PolicyStats,
    /// The input of the last policy. Most policies share the same endpoint, so it is reused.
    seen: Option<(Endpoint, AdmissionObjects, PolicyInput<'a>)>,
    /// The first refusal, with its text.
    denied: Option<Refusal>,
    /// The refusals for the audit annotation, at most [`MAX_FAILURES`].
    noted: Vec<Value>,
}

/// One policy that is evaluated for a request.
struct PolicyEvaluation<'p> {
    policy: &'p Policy,
    endpoint: Endpoint,
    /// The resource of the parameters.
    params: Option<Target>,
}

impl PolicyRequest<'_> {
    /// Evaluates one policy with all its bindings.
    async fn policy(&mut self, bound: &Bound) {
        let (policy, attributes) = (&*bound.policy, self.attributes);
        let Some(endpoint) = policy.matching.endpoint(attributes) else { return };
        let asked = match policy.matching.selects(attributes, self.object) {
            Ok(false) => return,
            Ok(true) => parameters::place(attributes, policy),
            Err(error) => Err(error.to_string()),
        };
        let asking = match asked {
            Ok(params) => PolicyEvaluation { policy, endpoint, params },
            Err(why) => return self.fail(policy, None, format!("failed to configure policy: {why}")),
        };
        let mut annotations: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for binding in &bound.bindings {
            match self.binding(&asking, binding).await {
                Ok(judgements) => {
                    for (judgement, took) in judgements {
                        self.count(policy, binding, &judgement, took);
                        self.take_up(policy, binding, judgement, &mut annotations);
                    }
                }
                Err(why) => self.fail(policy, Some(binding), format!("failed to configure binding: {why}")),
            }
        }
        for (key, values) in annotations {
            attributes.caller.audit().annotate(format!("{}/{key}", policy.name), values.join(", "));
        }
    }

    /// Evaluates a policy for one binding: once for each parameter object.
    ///
    /// # Errors
    /// The reason why the policy cannot be evaluated.
    async fn binding(
        &mut self,
        asking: &PolicyEvaluation<'_>,
        binding: &Binding,
    ) -> Result<Vec<(PolicyResult, Duration)>, String> {
        let (attributes, object) = (self.attributes, self.object);
        let text = |error: ApiError| error.to_string();
        if !is_about(binding, attributes, object).map_err(text)? {
            return Ok(Vec::new());
        }
        let params = parameters::collect(attributes, asking.params.as_ref(), binding, self.decoded).await?;
        if self.seen.as_ref().is_none_or(|(endpoint, ..)| *endpoint != asking.endpoint) {
            let shown = AdmissionObjects::new(attributes, &asking.endpoint, object).await;
            let shown = shown.map_err(|error| format!("failed to convert object version: {error}"))?;
            let seen = PolicyInput::new(attributes, &asking.endpoint, self.decoded, self.stats).await.map_err(text)?;
            self.seen = Some((asking.endpoint.clone(), shown, seen));
        }
        let Some((_, shown, seen)) = &self.seen else { return Ok(Vec::new()) };
        let policy = asking.policy;
        let judged = params.iter().filter_map(|params| {
            let begun = Instant::now();
            let run = seen.run(policy, shown, (object, attributes.old), params.as_deref(), |run| judge(policy, run));
            let judgement = match run {
                Ok(judgement) => judgement?,
                Err(_) if policy.fails_open => {
                    PolicyResult { passed: vec![PolicyError::Invalid], ..PolicyResult::default() }
                }
                Err(why) => PolicyResult { refusals: vec![(0, Refusal::new(why))], ..PolicyResult::default() },
            };
            Some((judgement, begun.elapsed()))
        });
        Ok(judged.collect())
    }

    /// Counts the expressions of a policy, by the action of the binding.
    fn count(&self, policy: &Policy, binding: &Binding, judgement: &PolicyResult, took: Duration) {
        let PolicyResult { passed, refusals, faults, .. } = judgement;
        let expressions = (passed.len() + refusals.len() + faults.len()).max(1);
        let each = took / u32::try_from(expressions).unwrap_or(u32::MAX);
        let note = |error: PolicyError, action: &'static str| {
            let (policy, binding) = (policy.name.clone(), binding.name.clone());
            self.stats.validated(&PolicyKey { policy, binding, error, action }, each);
        };
        passed.iter().for_each(|error| note(*error, "allow"));
        for (_, refusal) in refusals {
            let actions = [(binding.denies, "deny"), (binding.audits, "audit"), (binding.warns, "warn")];
            actions.into_iter().filter(|(is_done, _)| *is_done).for_each(|(_, action)| note(refusal.error, action));
        }
        faults.iter().for_each(|_| note(PolicyError::Invalid, "deny"));
    }

    fn take_up(
        &mut self,
        policy: &Policy,
        binding: &Binding,
        judgement: PolicyResult,
        annotations: &mut BTreeMap<String, Vec<String>>,
    ) {
        let caller = self.attributes.caller;
        for (place, refusal) in judgement.refusals {
            if binding.warns {
                let (policy, binding, message) = (&policy.name, &binding.name, &refusal.message);
                caller.warnings().add(format!(
                    "Validation failed for ValidatingAdmissionPolicy '{policy}' with binding '{binding}': {message}"
                ));
            }
            if binding.audits && self.noted.len() == MAX_FAILURES {
                let resource = self.attributes.target.group_resource();
                warn_repeated!(&resource; %resource, limit = MAX_FAILURES, "the audit annotation of policies leaves out refusals");
            } else if binding.audits {
                self.noted.push(json!({
                    "message": refusal.message, "policy": policy.name, "binding": binding.name,
                    "expressionIndex": place, "validationActions": binding.actions,
                }));
            }
            if binding.denies {
                self.deny(policy, Some(binding), refusal);
            }
        }
        for fault in judgement.faults {
            self.deny(policy, Some(binding), Refusal::new(fault));
        }
        for (key, value) in judgement.annotations {
            let values = annotations.entry(key).or_default();
            if !values.contains(&value) {
                values.push(value);
            }
        }
    }

    fn fail(&mut self, policy: &Policy, binding: Option<&Binding>, why: String) {
        if !policy.fails_open {
            self.deny(policy, binding, Refusal::new(why));
        }
    }

    fn deny(&mut self, policy: &Policy, binding: Option<&Binding>, refusal: Refusal) {
        let policy = &policy.name;
        let by = binding.map(|binding| format!(" with binding '{}'", binding.name)).unwrap_or_default();
        let message = format!("ValidatingAdmissionPolicy '{policy}'{by} denied request: {}", refusal.message);
        self.denied.get_or_insert(Refusal { message, ..refusal });
    }

    fn end(self) -> Result<(), ApiError> {
        if !self.noted.is_empty() {
            self.attributes.caller.audit().annotate(FAILURES, go_format::json(&Value::Array(self.noted)));
        }
        match self.denied {
            None => Ok(()),
            Some(refusal) => Err(refused(self.attributes, self.object, refusal)),
        }
    }
}

/// The error for a refusal. The text is that of a 403, whatever the reason is.
fn refused(attributes: &AdmissionAttributes<'_>, object: Option<&Object>, refusal: Refusal) -> ApiError {
    let (resource, name) = (attributes.target.group_resource(), told_name(attributes.name, object));
    let reason = refusal.reason.unwrap_or_else(|| "Invalid".to_owned());
    let code = match reason.as_str() {
        "Forbidden" => 403,
        "Unauthorized" => 401,
        "RequestEntityTooLarge" => 413,
        _ => 422,
    };
    let message = format!("{resource} \"{name}\" is forbidden: {}", refusal.message);
    let mut status = Status::failure(code, Some(&reason), message);
    let causes = vec![StatusCause { message: refusal.message, ..StatusCause::default() }];
    let (group, kind) = (resource.group, resource.resource);
    status.details = Some(StatusDetails { name, group, kind, causes, ..StatusDetails::default() });
    ApiError::Answered(Box::new(status))
}
