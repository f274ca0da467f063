//! Deployments: a replica set for each template, revisions, rolling updates, and the status for `kubectl rollout`.
//!
//! Omitted, since no test needs it: adoption, the history limit, progress deadlines and `minReadySeconds`.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use anyhow::Result;
use serde_json::{Value, json};

use super::api::{Api, DEPLOYMENTS, REPLICA_SETS, conditions, controller_reference, is_leaving, number, share};
use super::sizes::{Limits, Size, roll};

const HASH: &str = "pod-template-hash";
const REVISION: &str = "deployment.kubernetes.io/revision";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Moves a deployment with these replica sets one step.
pub(super) async fn reconcile(api: &Api, deployment: &Value, sets: &[&Value]) -> Result<()> {
    if is_leaving(deployment) {
        return Ok(());
    }
    let hash = template_hash(&deployment["spec"]["template"]);
    let (new, old): (Vec<&Value>, Vec<&Value>) =
        sets.iter().partition(|set| set["metadata"]["labels"][HASH] == hash.as_str());
    let new = new.first().copied();
    let paused = deployment["spec"]["paused"] == true;
    match new {
        Some(new) => {
            number_revision(api, deployment, new, &old).await?;
            resize(api, deployment, new, &old, paused).await?;
        }
        None if paused => {}
        None => {
            let set = replica_set(deployment, &hash, newest(&old) + 1);
            api.create(REPLICA_SETS, &deployment["metadata"]["namespace"], &set).await?;
        }
    }
    report(api, deployment, new, sets, paused).await
}

fn template_hash(template: &Value) -> String {
    let mut hasher = DefaultHasher::new();
    template.to_string().hash(&mut hasher);
    format!("{:x}", hasher.finish())
}

fn revision(object: &Value) -> u64 {
    object["metadata"]["annotations"][REVISION].as_str().and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn newest(sets: &[&Value]) -> u64 {
    sets.iter().map(|set| revision(set)).max().unwrap_or_default()
}

fn replica_set(deployment: &Value, hash: &str, revision: u64) -> Value {
    let (metadata, spec) = (&deployment["metadata"], &deployment["spec"]);
    let mut template = spec["template"].clone();
    template["metadata"]["labels"][HASH] = json!(hash);
    let mut selector = spec["selector"].clone();
    selector["matchLabels"][HASH] = json!(hash);
    let mut annotations = metadata["annotations"].as_object().cloned().unwrap_or_default();
    annotations.remove(LAST_APPLIED);
    annotations.insert(REVISION.to_owned(), json!(revision.to_string()));
    let name = format!("{}-{hash}", metadata["name"].as_str().unwrap_or_default());
    json!({
        "metadata": {"name": name, "labels": template["metadata"]["labels"], "annotations": annotations,
            "ownerReferences": controller_reference(DEPLOYMENTS, deployment)},
        "spec": {"replicas": 0, "selector": selector, "template": template}
    })
}

/// Gives the current set the newest revision, also after a rollback, and copies the number to the deployment. The
/// number is written together with the status, as the real controller does, and causes no rollout.
async fn number_revision(api: &Api, deployment: &Value, new: &Value, old: &[&Value]) -> Result<()> {
    let number = revision(new).max(newest(old) + 1);
    for (kind, object, below) in [(REPLICA_SETS, new, ""), (DEPLOYMENTS, deployment, "/status")] {
        if revision(object) != number {
            let change = json!({"metadata": {"annotations": {REVISION: number.to_string()}}});
            api.patch(kind, object, below, &change).await?;
        }
    }
    Ok(())
}

async fn resize(api: &Api, deployment: &Value, new: &Value, old: &[&Value], paused: bool) -> Result<()> {
    let limits = limits(deployment);
    let recreate = deployment["spec"]["strategy"]["type"] == "Recreate";
    let running = old.iter().any(|set| number(&set["status"]["replicas"]) > 0);
    let sizes: Vec<Size> = old.iter().map(|set| size(set)).collect();
    let (grown, rest) = match recreate {
        true if running => (size(new).wanted, vec![0; old.len()]),
        true => (limits.desired, vec![0; old.len()]),
        // A paused deployment makes no progress. A changed number of replicas still applies if no update is running.
        false if paused && sizes.iter().any(|size| size.wanted > 0) => return Ok(()),
        false => roll(limits, size(new), &sizes),
    };
    for (set, replicas) in old.iter().copied().zip(rest).chain([(new, grown)]) {
        if size(set).wanted != replicas {
            api.patch(REPLICA_SETS, set, "", &json!({"spec": {"replicas": replicas}})).await?;
        }
    }
    Ok(())
}

fn size(set: &Value) -> Size {
    Size { wanted: number(&set["spec"]["replicas"]), available: number(&set["status"]["availableReplicas"]) }
}

fn limits(deployment: &Value) -> Limits {
    let spec = &deployment["spec"];
    let desired = number(&spec["replicas"]);
    let rolling = &spec["strategy"]["rollingUpdate"];
    let surge = share(&rolling["maxSurge"], desired, true);
    let unavailable = share(&rolling["maxUnavailable"], desired, false);
    // If both were zero, no pod could be replaced.
    Limits { desired, surge, unavailable: if surge == 0 { unavailable.max(1) } else { unavailable } }
}

async fn report(api: &Api, deployment: &Value, new: Option<&Value>, sets: &[&Value], paused: bool) -> Result<()> {
    let sum = |field: &str| sets.iter().map(|set| number(&set["status"][field])).sum::<u64>();
    let (replicas, ready, available) = (sum("replicas"), sum("readyReplicas"), sum("availableReplicas"));
    let updated = new.map_or(0, |set| number(&set["status"]["replicas"]));
    let limits = limits(deployment);
    let desired = limits.desired;
    let enough = available >= desired.saturating_sub(limits.unavailable);
    let complete = [replicas, updated, available].iter().all(|count| *count == desired);
    let progress = match (paused, complete) {
        (true, _) => ("Progressing", "Unknown", "DeploymentPaused"),
        (false, true) => ("Progressing", "True", "NewReplicaSetAvailable"),
        (false, false) => ("Progressing", "True", "ReplicaSetUpdated"),
    };
    let enough = match enough {
        true => ("Available", "True", "MinimumReplicasAvailable"),
        false => ("Available", "False", "MinimumReplicasUnavailable"),
    };
    let times = ["lastTransitionTime", "lastUpdateTime"];
    let status = json!({
        "observedGeneration": deployment["metadata"]["generation"], "replicas": replicas, "updatedReplicas": updated,
        "readyReplicas": ready, "availableReplicas": available,
        "unavailableReplicas": replicas.max(desired).saturating_sub(available),
        "conditions": conditions(deployment, &[enough, progress], &times)
    });
    api.report(DEPLOYMENTS, deployment, &status).await
}
