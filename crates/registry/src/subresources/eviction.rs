//! `pods/eviction`: a deletion that respects the disruption budget of the pod (KEP-85), as `kubectl drain` requests it.
//!
//! An eviction without a budget is decided on the state that is deleted, in the same write. A pod that becomes ready in
//! between is therefore not evicted without its budget.

use keelson_cache::Entry;
use keelson_meta::json::{Value, json};
use keelson_meta::options::{DeleteOptions, GetOptions};
use keelson_meta::{ApiError, Object, conditions};

use super::budget;
use crate::admission::WriteOptions;
use crate::caller::Caller;
use crate::registry::Registry;
use crate::target::Target;
use crate::write::{Change, Edit, Update, WriteRequest};

impl Registry {
    /// Evicts the pod of the target's URL, with the options of a posted Eviction.
    ///
    /// # Errors
    /// 404 if the pod does not exist, 409 if it does not match the preconditions, 429 if its budget permits no
    /// disruption.
    pub async fn evict(
        &self,
        target: &Target,
        name: &str,
        mut eviction: Object,
        caller: &Caller,
    ) -> Result<(), ApiError> {
        self.check_namespace(target, name).await?;
        self.admit_posted(target, caller, &mut eviction).await?;
        let options = &delete_options(&eviction)?;
        let caller = &caller.clone().rehearsing_if(options.dry_run);
        let namespace = target.namespace.as_deref().unwrap_or_default();
        let pods = self.target("", "pods")?.in_namespace(Some(namespace));
        if self.evict_if(&pods, name, caller, options, is_no_disruption).await? {
            return Ok(());
        }
        let pod = self.read(&pods, name, &GetOptions::default()).await?;
        let pod = pod.object().decode(pod.revision);
        let Some(budget) = self.budget_of(namespace, &pod).await? else {
            return self.evict_if(&pods, name, caller, options, |_| true).await.map(|_| ());
        };
        if !is_ready(&pod) && budget::lets_unready_go(&budget) {
            let gone = self.evict_if(&pods, name, caller, options, |pod| !is_ready(pod)).await?;
            return if gone { Ok(()) } else { Err(budget::unsettled(budget.name())) };
        }
        // A deletion that is refused in any case must not use up the budget.
        self.deletion(&pods, pod.clone().into(), options)?;
        self.take_disruption(namespace, budget.name(), &pod, caller).await?;
        self.evict_if(&pods, name, caller, options, |_| true).await.map(|_| ())
    }

    /// Deletes a pod as evicted if it meets `condition`. Returns true if it did.
    async fn evict_if(
        &self,
        pods: &Target,
        name: &str,
        caller: &Caller,
        options: &DeleteOptions,
        condition: impl Fn(&Object) -> bool + Send + Sync,
    ) -> Result<bool, ApiError> {
        let mut applies = false;
        let mut evict = Edit::new(|registry: &Registry, live: &Entry| {
            let mut pod = live.object().decode(live.revision);
            applies = condition(&pod);
            if !applies {
                return Ok(Update::Change(Change::Keep(live.object().clone(), live.revision), None));
            }
            mark(&mut pod, registry.now());
            // Admission ran for the eviction.
            Ok(Update::Change(registry.deletion(pods, pod.into(), options)?, None))
        });
        let request = WriteRequest::new(pods, name, caller, WriteOptions::Delete(options));
        self.write(&request, &mut evict).await?;
        drop(evict);
        Ok(applies)
    }
}

/// The options of the deletion.
fn delete_options(eviction: &Object) -> Result<DeleteOptions, ApiError> {
    match eviction.0.get("deleteOptions").cloned().and_then(Object::from_value) {
        Some(stated) => DeleteOptions::from_object(&stated),
        None => Ok(DeleteOptions::default()),
    }
}

/// Adds the reason of the deletion to the status of a pod (KEP-3329).
fn mark(pod: &mut Object, now: std::time::SystemTime) {
    let condition = json!({
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    });
    conditions::set(pod, condition, now);
}

/// Returns true if evicting a pod disrupts nothing: it has not started, has ended, or is being deleted.
fn is_no_disruption(pod: &Object) -> bool {
    let phase = pod.get(&["status", "phase"]).and_then(Value::as_str).unwrap_or_default();
    matches!(phase, "Succeeded" | "Failed" | "Pending") || pod.deletion_timestamp().is_some()
}

fn is_ready(pod: &Object) -> bool {
    conditions::is_true(pod, "Ready")
}
