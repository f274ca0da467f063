//! Disruption budgets: the number of pods that may be evicted now.
//!
//! A pod that an eviction names counts as gone, even before its deletion is visible.

use anyhow::Result;
use serde_json::{Map, Value, json};

use super::api::{Api, BUDGETS, is_leaving, share};
use super::pods::is_ready;

/// Updates the counts of a budget.
pub(super) async fn reconcile(api: &Api, budget: &Value, pods: &[Value]) -> Result<()> {
    let spec = &budget["spec"];
    let chosen = spec["selector"]["matchLabels"].as_object().cloned().unwrap_or_default();
    let matches = |pod: &&Value| {
        let metadata = &pod["metadata"];
        metadata["namespace"] == budget["metadata"]["namespace"]
            && chosen.iter().all(|(name, value)| metadata["labels"][name] == *value)
    };
    let staying: Vec<&Value> = pods.iter().filter(matches).filter(|pod| !is_leaving(pod)).collect();
    let name = |pod: &Value| pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let mut evicted = budget["status"]["disruptedPods"].as_object().cloned().unwrap_or_default();
    // A merge patch removes null members.
    for (known, since) in &mut evicted {
        if !staying.iter().any(|pod| name(pod) == *known) {
            *since = Value::Null;
        }
    }
    let healthy = staying.iter().filter(|pod| is_ready(pod) && !is_named(&evicted, &name(pod))).count() as u64;
    let expected = staying.len() as u64;
    let desired = match &spec["minAvailable"] {
        Value::Null => expected.saturating_sub(share(&spec["maxUnavailable"], expected, true)),
        least => share(least, expected, true),
    };
    let mut status = json!({
        "observedGeneration": budget["metadata"]["generation"], "currentHealthy": healthy, "desiredHealthy": desired,
        "expectedPods": expected, "disruptionsAllowed": healthy.saturating_sub(desired)
    });
    if evicted.values().any(Value::is_null) {
        status["disruptedPods"] = Value::Object(evicted);
    }
    api.report(BUDGETS, budget, &status).await
}

fn is_named(evicted: &Map<String, Value>, pod: &str) -> bool {
    evicted.get(pod).is_some_and(|since| !since.is_null())
}
