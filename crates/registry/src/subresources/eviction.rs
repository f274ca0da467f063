//! `pods/eviction`: a deletion that respects the disruption budget of the pod (KEP-85). `kubectl drain` asks for it.
//!
//! Whether a pod may go without its budget is decided on the state that is deleted, in the same write, so that a pod that
//! becomes ready meanwhile is never lost to a race.

use keelson_meta::json::{Value, json};
use keelson_meta::options::{DeleteOptions, GetOptions};
use keelson_meta::{ApiError, Object};

use super::{budget, conditions, other};
use crate::kinds;
use crate::registry::Registry;
use crate::target::Target;
use crate::write::Change;

impl Registry {
    /// Evicts a pod.
    ///
    /// # Errors
    /// 404 when there is none, 409 when it is not the one that the preconditions name, 429 when its budget has no room.
    pub async fn evict(&self, namespace: &str, name: &str, options: &DeleteOptions) -> Result<(), ApiError> {
        let pods = other(self, "", "pods", Some(namespace))?;
        if self.evict_if(&pods, name, options, is_no_disruption).await? {
            return Ok(());
        }
        let pod = self.get(&pods, name, &GetOptions::default()).await?;
        let pod = pod.object.decode(pod.revision);
        let Some(budget) = self.budget_of(namespace, &pod).await? else {
            return self.evict_if(&pods, name, options, |_| true).await.map(|_| ());
        };
        if !is_ready(&pod) && budget::lets_unready_go(&budget) {
            let gone = self.evict_if(&pods, name, options, |pod| !is_ready(pod)).await?;
            return if gone { Ok(()) } else { Err(budget::unsettled(budget.name())) };
        }
        self.take_disruption(namespace, budget.name(), name, options.dry_run).await?;
        self.evict_if(&pods, name, options, |_| true).await.map(|_| ())
    }

    /// Deletes a pod as evicted if it is as `condition` wants it; tells whether it was.
    async fn evict_if(
        &self,
        pods: &Target,
        name: &str,
        options: &DeleteOptions,
        condition: impl Fn(&Object) -> bool,
    ) -> Result<bool, ApiError> {
        let mut applies = false;
        self.change(pods, name, options.dry_run, |current| {
            let mut pod = current.object.decode(current.revision);
            applies = condition(&pod);
            if !applies {
                pod.remove_meta("resourceVersion");
                return Ok(Change::Put(pod.into()));
            }
            mark(pods, &mut pod, self.now());
            self.deletion(pods, pod, options)
        })
        .await?;
        Ok(applies)
    }
}

/// Says in the status of a pod why it goes (KEP-3329).
fn mark(pods: &Target, pod: &mut Object, now: std::time::SystemTime) {
    let condition = json!({
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    });
    conditions::set(pod, condition, now);
    kinds::in_order(pods, pod);
}

/// Whether a pod does no work that its end would disrupt: it has not begun, is done, or is ending already.
fn is_no_disruption(pod: &Object) -> bool {
    let phase = pod.get(&["status", "phase"]).and_then(Value::as_str).unwrap_or_default();
    matches!(phase, "Succeeded" | "Failed" | "Pending") || pod.deletion_timestamp().is_some()
}

fn is_ready(pod: &Object) -> bool {
    conditions::is_true(pod, "Ready")
}
