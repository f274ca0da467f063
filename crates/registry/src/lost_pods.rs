//! Pods that no kubelet will end, because their node is gone or will not come back.
//!
//! A kubelet confirms the end of a deleted pod. If none will, a controller ends the pod here: its status becomes
//! failed, and it is deleted.

use keelson_cache::Entry;
use keelson_meta::json::{Value, json};
use keelson_meta::options::{DeleteOptions, Preconditions};
use keelson_meta::{ApiError, Object, conditions};

use crate::admission::{Operation, WriteOptions};
use crate::caller::Caller;
use crate::registry::Registry;
use crate::target::Target;
use crate::write::{Edit, Update, WriteRequest};

impl Registry {
    /// Ends such a pod in one write: sets its phase to failed, unless it has ended by itself, and deletes it.
    /// Controllers whose finalizers are on pods (jobs) see that it failed. `condition` is the reason and the message of
    /// its `DisruptionTarget` condition (KEP-3329).
    ///
    /// # Errors
    /// 404 when it is gone, 409 when another pod has its name.
    pub async fn end_lost_pod(
        &self,
        pods: &Target,
        name: &str,
        uid: &str,
        condition: Option<(&str, &str)>,
        caller: &Caller,
    ) -> Result<(), ApiError> {
        let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
        let options = DeleteOptions { grace_period_seconds: Some(0), preconditions, ..DeleteOptions::default() };
        let mut end = Edit::new(|registry: &Registry, live: &Entry| {
            let mut pod = live.object().decode(live.revision);
            if !has_ended(&pod) {
                registry.fail(&mut pod, condition);
            }
            let change = registry.deletion(pods, pod.into(), &options)?;
            Ok(Update::Change(change, Some(Operation::Delete)))
        });
        let request = WriteRequest::new(pods, name, caller, WriteOptions::Delete(&options));
        self.write(&request, &mut end).await.map(|_| ())
    }

    fn fail(&self, pod: &mut Object, condition: Option<(&str, &str)>) {
        let status = pod.0.entry("status").or_insert_with(|| json!({}));
        if let Value::Object(status) = status {
            status.insert("phase", json!("Failed"));
        }
        if let Some((reason, message)) = condition {
            let condition =
                json!({ "type": "DisruptionTarget", "status": "True", "reason": reason, "message": message });
            conditions::set(pod, condition, self.now());
        }
    }
}

fn has_ended(pod: &Object) -> bool {
    let phase = pod.get(&["status", "phase"]).and_then(Value::as_str);
    matches!(phase, Some("Succeeded" | "Failed"))
}
