//! Disruption budgets in an eviction: finds the budget of a pod, and checks that it permits a disruption.
//!
//! The budget's controller counts pods. An eviction uses one of the permitted disruptions and records the pod in the
//! same write, so that no two evictions use the same disruption.

use std::time::SystemTime;

use async_trait::async_trait;
use keelson_access::user::API_SERVER;
use keelson_cache::Entry;
use keelson_meta::clock::rfc3339;
use keelson_meta::json::{Value, json};
use keelson_meta::label_selector::LabelSelector;
use keelson_meta::options::ListOptions;
use keelson_meta::status::StatusCause;
use keelson_meta::{ApiError, GroupResource, Object, conditions};

use super::reading::Reading;
use crate::admission::WriteOptions;
use crate::caller::Caller;
use crate::config::PartialRights;
use crate::intake::fit;
use crate::registry::Registry;
use crate::target::Target;
use crate::update::replacement;
use crate::write::{Change, Live, Update, UpdateFn, WriteRequest, existing};

/// The largest number of evictions that a budget's controller has not seen yet.
const MAX_DISRUPTED_PODS: usize = 2000;
/// The `Retry-After` if the budget's controller has not caught up, in seconds.
const RETRY_SECONDS: u32 = 10;

impl Registry {
    /// The budget that covers a pod, if any.
    ///
    /// # Errors
    /// 500 if several budgets do: which of them counts is not defined.
    pub(super) async fn budget_of(&self, namespace: &str, pod: &Object) -> Result<Option<Object>, ApiError> {
        let budgets = self.target("policy", "poddisruptionbudgets")?.in_namespace(Some(namespace));
        let entries = self
            .read_list(&budgets, &ListOptions::default(), API_SERVER, PartialRights::AsOthers)
            .await?
            .items
            .into_entries()
            .await?;
        let (mut found, mut reading) = (None, Reading::default());
        for entry in &entries {
            let budget = reading.decode(entry).await;
            if guards(&budget, pod) && found.replace(budget).is_some() {
                return Err(ApiError::Unclassified(
                    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
                        .to_owned(),
                ));
            }
        }
        Ok(found)
    }

    /// Uses one disruption of a budget, for a pod. A pod for which one is used already takes no other: its evictions may
    /// come at the same time.
    ///
    /// # Errors
    /// 429 if no disruption is left or the budget has not been counted yet, 403 if its status is inconsistent.
    pub(super) async fn take_disruption(
        &self,
        namespace: &str,
        budget: &str,
        pod: &Object,
        caller: &Caller,
    ) -> Result<(), ApiError> {
        let mut budgets = self.target("policy", "poddisruptionbudgets")?.in_namespace(Some(namespace));
        budgets = budgets.below("status");
        // The server itself changes the count.
        let server = Caller::server().until(caller.deadline()).rehearsing_if(caller.is_dry_run());
        let request = WriteRequest::new(&budgets, budget, &server, WriteOptions::None);
        let mut take = TakeDisruption { budgets: &budgets, budget, pod };
        self.write(&request, &mut take).await.map(|_| ())
    }
}

/// The write that uses one disruption of a budget, for a pod.
struct TakeDisruption<'t> {
    budgets: &'t Target,
    budget: &'t str,
    pod: &'t Object,
}

#[async_trait]
impl UpdateFn for TakeDisruption<'_> {
    async fn propose<'s>(&'s mut self, registry: &'s Registry, live: Option<&'s Entry>) -> Result<Update, ApiError> {
        let entry = existing(live)?;
        let live = Live::in_version_of(self.budgets, entry).await?;
        if has_place(&live.object, self.pod) {
            return Ok(Update::Change(Change::Keep(entry.object().clone(), entry.revision), None));
        }
        check(&live.object)?;
        let mut next = decremented(&live.object, self.pod.name(), registry.now());
        fit(self.budgets, &mut next)?;
        replacement(self.budgets, self.budget, live, next)
    }
}

/// 429: the budget has not been counted yet, or it was counted while the pod became ready.
pub(super) fn unsettled(budget: &str) -> ApiError {
    ApiError::EvictionRefused {
        cause: format!("The disruption budget {budget} is still being processed by the server."),
        retry_after_seconds: RETRY_SECONDS,
    }
}

/// Returns true if a budget permits evicting a pod that is not ready, without counting it.
pub(super) fn lets_unready_go(budget: &Object) -> bool {
    let policy = budget.get(&["spec", "unhealthyPodEvictionPolicy"]).and_then(Value::as_str);
    let (healthy, desired) = (count(budget, "currentHealthy"), count(budget, "desiredHealthy"));
    policy == Some("AlwaysAllow") || (healthy >= desired && desired > 0)
}

fn guards(budget: &Object, pod: &Object) -> bool {
    let selector = budget.get(&["spec", "selector"]).and_then(LabelSelector::of_object);
    selector.is_some_and(|selector| selector.selects(pod))
}

fn count(budget: &Object, field: &str) -> i64 {
    budget.get(&["status", field]).and_then(Value::as_i64).unwrap_or_default()
}

/// Returns true if the budget has a disruption for this pod. An entry from before its creation is about an earlier pod
/// of the same name.
fn has_place(budget: &Object, pod: &Object) -> bool {
    let evicted = budget.get(&["status", "disruptedPods", pod.name()]).and_then(Value::as_str);
    evicted.zip(pod.creation_timestamp()).is_some_and(|(evicted, created)| evicted > created)
}

fn check(budget: &Object) -> Result<(), ApiError> {
    let name = budget.name();
    let disorder = |message: &str, cause: &str| {
        let resource = GroupResource { group: "policy".to_owned(), resource: "poddisruptionbudget".to_owned() };
        let message = message.to_owned();
        let cause = StatusCause {
            reason: "DisruptionBudget".to_owned(),
            message: format!("The disruption budget {name} does not allow evicting pods currently: {cause}"),
            ..StatusCause::default()
        };
        Err(ApiError::Refused { resource, name: name.to_owned(), message, causes: vec![cause] })
    };
    if count(budget, "observedGeneration") < budget.generation().unwrap_or_default() {
        return Err(unsettled(name));
    }
    let allowed = count(budget, "disruptionsAllowed");
    if allowed < 0 {
        let message = "pdb disruptions allowed is negative";
        return disorder(message, message);
    }
    let disrupted = budget.get(&["status", "disruptedPods"]).and_then(Value::as_object);
    if disrupted.is_some_and(|pods| pods.len() > MAX_DISRUPTED_PODS) {
        let message = "DisruptedPods map too big - too many evictions not confirmed by PDB controller";
        return disorder(message, "too many pending evictions not confirmed by PDB controller");
    }
    if allowed == 0 {
        return Err(ApiError::EvictionRefused { cause: exhausted(budget), retry_after_seconds: 0 });
    }
    Ok(())
}

/// The reason why a budget permits no disruption: a failure of its controller, the number of healthy pods, or the reason
/// in its condition.
fn exhausted(budget: &Object) -> String {
    let name = budget.name();
    let conditions = budget.get(&["status", "conditions"]).and_then(Value::as_array);
    let text =
        |condition: &Value, field: &str| condition.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let condition = conditions.into_iter().flatten().find(|condition| text(condition, "type") == "DisruptionAllowed");
    let stated = condition.filter(|condition| text(condition, "status") == "False");
    let stated = stated.map(|condition| (text(condition, "reason"), text(condition, "message")));
    let stated = stated.filter(|(_, message)| !message.is_empty());
    let (desired, healthy) = (count(budget, "desiredHealthy"), count(budget, "currentHealthy"));
    match stated {
        // The counts are unreliable after a failure.
        Some((reason, message)) if reason == "SyncFailed" => {
            format!(
                "The disruption budget {name} does not allow evicting pods currently because it failed sync: {message}"
            )
        }
        _ if healthy <= desired => {
            format!("The disruption budget {name} needs {desired} healthy pods and has {healthy} currently")
        }
        Some((reason, message)) => {
            format!("The disruption budget {name} does not allow evicting pods currently ({reason}): {message}")
        }
        None => format!("The disruption budget {name} does not allow evicting pods currently"),
    }
}

fn decremented(current: &Object, pod: &str, now: SystemTime) -> Object {
    let mut next = current.clone();
    let left = count(current, "disruptionsAllowed") - 1;
    let status = next.0.entry("status").or_insert_with(|| json!({}));
    if let Value::Object(status) = status {
        status.insert("disruptionsAllowed", json!(left));
        let disrupted = status.entry("disruptedPods").or_insert_with(|| json!({}));
        if let Value::Object(disrupted) = disrupted {
            disrupted.insert(pod, json!(rfc3339(now)));
            disrupted.sort_keys();
        }
    }
    if left == 0 {
        let condition = json!({
            "type": "DisruptionAllowed",
            "status": "False",
            "reason": "InsufficientPods",
            "message": "",
            "observedGeneration": count(current, "observedGeneration"),
        });
        conditions::set(&mut next, condition, now);
    }
    next
}
