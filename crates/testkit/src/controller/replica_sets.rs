//! Replica sets: creates and deletes pods to reach the wanted number, and writes the counts to the status.
//!
//! This controller covers only the parts of the real one that tests need.

use anyhow::Result;
use serde_json::{Value, json};

use super::api::{Api, PODS, REPLICA_SETS, controller_reference, is_leaving, number};
use super::pods::is_ready;

/// Moves a replica set one step, given its pods.
pub(super) async fn reconcile(api: &Api, set: &Value, pods: &[&Value]) -> Result<()> {
    let mut pods: Vec<&Value> = pods.iter().copied().filter(|pod| !is_leaving(pod)).collect();
    // Pods that are not ready come first; they are deleted first.
    pods.sort_by_key(|pod| is_ready(pod));
    if !is_leaving(set) {
        let wanted = usize::try_from(number(&set["spec"]["replicas"]))?;
        for _ in pods.len()..wanted {
            api.create(PODS, &set["metadata"]["namespace"], &pod(set)).await?;
        }
        for pod in &pods[..pods.len().saturating_sub(wanted)] {
            api.delete(PODS, pod, false).await?;
        }
    }
    let ready = pods.iter().filter(|pod| is_ready(pod)).count();
    let status = json!({
        "observedGeneration": set["metadata"]["generation"], "replicas": pods.len(), "fullyLabeledReplicas": pods.len(),
        "readyReplicas": ready, "availableReplicas": ready
    });
    api.report(REPLICA_SETS, set, &status).await
}

fn pod(set: &Value) -> Value {
    let template = &set["spec"]["template"];
    let mut metadata = template["metadata"].clone();
    metadata["generateName"] = json!(format!("{}-", set["metadata"]["name"].as_str().unwrap_or_default()));
    metadata["ownerReferences"] = controller_reference(REPLICA_SETS, set);
    json!({"metadata": metadata, "spec": template["spec"]})
}
