//! Removes the protection finalizers from volumes and claims that no pod uses. The server adds them at creation and
//! leaves their removal to this controller.

use anyhow::Result;
use serde_json::{Value, json};

use super::api::{Api, CLAIMS, VOLUMES, is_leaving};

const PROTECTIONS: [&str; 2] = ["kubernetes.io/pvc-protection", "kubernetes.io/pv-protection"];

/// Removes the finalizers of unused objects that are being deleted.
pub(super) async fn reconcile(api: &Api, pods: &[Value]) -> Result<()> {
    let claims = api.list(CLAIMS).await?;
    for claim in claims.iter().filter(|claim| is_leaving(claim) && !is_used(claim, pods)) {
        api.patch(CLAIMS, claim, "", &unprotected(claim)).await?;
    }
    for volume in api.list(VOLUMES).await?.iter().filter(|volume| is_leaving(volume)) {
        let bound = |claim: &&Value| claim["spec"]["volumeName"] == volume["metadata"]["name"] && !is_leaving(claim);
        if !claims.iter().any(|claim| bound(&claim)) {
            api.patch(VOLUMES, volume, "", &unprotected(volume)).await?;
        }
    }
    Ok(())
}

fn is_used(claim: &Value, pods: &[Value]) -> bool {
    let (name, namespace) = (&claim["metadata"]["name"], &claim["metadata"]["namespace"]);
    let volumes = |pod: &Value| pod["spec"]["volumes"].as_array().cloned().unwrap_or_default();
    let uses = |volume: &Value| volume["persistentVolumeClaim"]["claimName"] == *name;
    pods.iter().any(|pod| pod["metadata"]["namespace"] == *namespace && volumes(pod).iter().any(uses))
}

fn unprotected(object: &Value) -> Value {
    let metadata = &object["metadata"];
    let finalizers = metadata["finalizers"].as_array().map(Vec::as_slice).unwrap_or_default();
    let kept: Vec<&Value> =
        finalizers.iter().filter(|finalizer| !PROTECTIONS.contains(&finalizer.as_str().unwrap_or_default())).collect();
    json!({"metadata": {"resourceVersion": metadata["resourceVersion"], "finalizers": kept}})
}
