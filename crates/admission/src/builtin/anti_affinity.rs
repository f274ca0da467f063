//! Upstream's plugin LimitPodHardAntiAffinityTopology: required anti-affinity of a pod may use the topology key of a
//! node, but not of anything larger, such as a zone.
//!
//! Preferred anti-affinity is not checked.

use futures::future::BoxFuture;
use keelson_meta::json::Value;
use keelson_meta::{ApiError, Object};
use keelson_registry::{Admission, AdmissionAttributes, AttributesNeeded};

use super::reading::{is_written, items};

const HOST: &str = "kubernetes.io/hostname";
const REQUIRED: [&str; 4] = ["spec", "affinity", "podAntiAffinity", "requiredDuringSchedulingIgnoredDuringExecution"];

/// Refuses pods whose required anti-affinity has another topology key than the node's host name.
#[derive(Debug)]
pub(crate) struct LimitPodHardAntiAffinityTopology;

impl Admission for LimitPodHardAntiAffinityTopology {
    fn name(&self) -> &'static str {
        "LimitPodHardAntiAffinityTopology"
    }

    fn interest(&self, attributes: &AdmissionAttributes<'_>) -> AttributesNeeded {
        if is_written(attributes, "pods") { AttributesNeeded::Object } else { AttributesNeeded::None }
    }

    fn validate<'a>(
        &'a self,
        attributes: &'a AdmissionAttributes<'a>,
        object: Option<&'a Object>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            let terms = items(object.and_then(|pod| pod.get(&REQUIRED))).iter();
            let mut keys = terms.map(|term| term.get("topologyKey").and_then(Value::as_str).unwrap_or_default());
            match keys.find(|key| *key != HOST) {
                None => Ok(()),
                Some(key) => Err(attributes.refused(format!(
                    "affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey {key} but only key {HOST} is allowed"
                ))),
            }
        })
    }
}
