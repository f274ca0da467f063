//! The work of a scheduler and of kubelets: binds a pod to the node with the fewest pods, runs it at once, and ends it
//! at once on deletion.
//!
//! If there are no nodes, pods run without one. Only the image decides whether a pod works.

use std::time::SystemTime;

use anyhow::Result;
use keelson_meta::clock::rfc3339;
use serde_json::{Value, json};

use super::api::{Api, PODS, conditions, is_leaving};

/// The prefix of images whose containers never start.
pub const BROKEN_IMAGE: &str = "broken";

/// Moves a pod one step, given all pods and nodes.
pub(super) async fn reconcile(api: &Api, pod: &Value, pods: &[Value], nodes: &[Value]) -> Result<()> {
    if is_leaving(pod) {
        return api.delete(PODS, pod, true).await;
    }
    if waits(pod) && !nodes.is_empty() {
        // One pod per round is bound, so the next round sees the new load of the nodes.
        let is_next = pods.iter().find(|pod| waits(pod)) == Some(pod);
        let load =
            |node: &&Value| pods.iter().filter(|pod| pod["spec"]["nodeName"] == node["metadata"]["name"]).count();
        let open = nodes.iter().filter(|node| node["spec"]["unschedulable"] != true);
        return match open.min_by_key(load) {
            Some(node) if is_next => api.bind(pod, node).await,
            _ => Ok(()),
        };
    }
    api.report(PODS, pod, &status(pod)).await
}

/// Returns true if the pod is ready.
pub(super) fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    !is_leaving(pod) && conditions.iter().any(|known| known["type"] == "Ready" && known["status"] == "True")
}

fn waits(pod: &Value) -> bool {
    pod["spec"]["nodeName"].is_null() && !is_leaving(pod)
}

fn status(pod: &Value) -> Value {
    let started = match pod["status"]["startTime"].as_str() {
        Some(time) => time.to_owned(),
        None => rfc3339(SystemTime::now()),
    };
    let containers = pod["spec"]["containers"].as_array().map(Vec::as_slice).unwrap_or_default();
    let works = |container: &Value| !container["image"].as_str().unwrap_or_default().starts_with(BROKEN_IMAGE);
    let all_work = containers.iter().all(works);
    let container_status = |container: &Value| {
        let runs = works(container);
        let state = match runs {
            true => json!({"running": {"startedAt": started}}),
            false => json!({"waiting": {"reason": "ImagePullBackOff"}}),
        };
        json!({"name": container["name"], "image": container["image"], "imageID": "", "ready": runs, "started": runs,
            "restartCount": 0, "state": state, "lastState": {}})
    };
    let (ready, reason) = if all_work { ("True", "Running") } else { ("False", "ContainersNotReady") };
    let wanted = [
        ("Initialized", "True", "Running"),
        ("Ready", ready, reason),
        ("ContainersReady", ready, reason),
        ("PodScheduled", "True", "Running"),
    ];
    json!({
        "phase": if all_work { "Running" } else { "Pending" }, "startTime": started,
        "conditions": conditions(pod, &wanted, &["lastTransitionTime"]),
        "containerStatuses": containers.iter().map(container_status).collect::<Vec<_>>()
    })
}
