//! Strategy of pods: QoS class, priority, and default tolerations.
//!
//! By default a pod tolerates a node that is not ready or unreachable for some minutes. Subresources of pods limit the
//! fields that a client may change.

mod app_armor;
mod ephemeral_containers;
mod label_keys;
mod pod_status;
mod resize;

use std::time::SystemTime;

use keelson_meta::clock::rfc3339;
use keelson_meta::json::{Map, Value, json};
use keelson_meta::pod_resources::quality_of_service;
use keelson_meta::{ApiError, Object};
use keelson_registry::strategy::{
    AcceptedPart, ClosedFields, CreateStrategy, DeleteStrategy, EACH, FieldPath, UpdateStrategy,
};
use keelson_registry::{BuiltinStagePlugin, Registry, Target, Warnings, grace};

use crate::scheduling::strategy as scheduling;

/// The fields of a pod that feature gates guard: those of its spec and of its status.
pub(super) fn gated_fields() -> Vec<ClosedFields> {
    const STATUS: FieldPath = &["status"];
    const IMAGES: &[FieldPath] = &[
        &["containerStatuses", EACH, "volumeMounts", EACH, "volumeStatus"],
        &["initContainerStatuses", EACH, "volumeMounts", EACH, "volumeStatus"],
        &["ephemeralContainerStatuses", EACH, "volumeMounts", EACH, "volumeStatus"],
    ];
    let mut fields = super::template::gated_fields(&["spec"]);
    fields.extend([
        ClosedFields::new("DRANodeAllocatableResources", STATUS, &[&["nodeAllocatableResourceClaimStatuses"]]),
        ClosedFields::new("ImageVolumeWithDigest", STATUS, IMAGES),
        ClosedFields::new("CSIVolumeHealth", STATUS, &[&["volumeHealth"]]),
    ]);
    fields
}

const TROUBLES: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

/// Adds a toleration for each of these taints that the pod does not tolerate, for its number of seconds. Returns true
/// if it added one.
fn tolerate_troubles(pod: &mut Object, seconds: [i64; 2]) -> bool {
    let Some(spec) = pod.0.get_mut("spec").and_then(Value::as_object_mut) else { return false };
    let tolerations = spec.entry("tolerations").or_insert(Value::Null);
    if tolerations.is_null() {
        *tolerations = json!([]);
    }
    let Some(tolerations) = tolerations.as_array_mut() else { return false };
    let stated = tolerations.len();
    for (trouble, seconds) in TROUBLES.into_iter().zip(seconds) {
        if !tolerations.iter().any(|toleration| tolerates(toleration, trouble)) {
            tolerations.push(json!({
                "key": trouble, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds,
            }));
        }
    }
    tolerations.len() > stated
}

fn tolerates(toleration: &Value, trouble: &str) -> bool {
    let field = |name: &str| toleration.get(name).and_then(Value::as_str).unwrap_or_default();
    (field("key") == trouble || field("key").is_empty()) && matches!(field("effect"), "NoExecute" | "")
}

/// Returns true if the pod has a scheduling gate.
fn is_gated(pod: &Object) -> bool {
    pod.get(&["spec", "schedulingGates"]).and_then(Value::as_array).is_some_and(|gates| !gates.is_empty())
}

/// The strategy of pods.
pub(super) struct Pods;

impl CreateStrategy for Pods {
    fn initial_status(&self, object: &Object, now: SystemTime) -> Map {
        let mut status = Map::from_iter([("phase".to_owned(), json!("Pending"))]);
        if is_gated(object) {
            let waits = json!({
                "type": "PodScheduled",
                "status": "False",
                "lastTransitionTime": rfc3339(now),
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            });
            status.insert("conditions", json!([waits]));
        }
        status.insert("qosClass", json!(quality_of_service(object)));
        status
    }

    fn admit(&self, registry: &Registry, target: &Target, object: &mut Object) -> Result<bool, ApiError> {
        // The priority may refuse the pod, so it comes first.
        let has_priority =
            registry.does(BuiltinStagePlugin::Priority) && scheduling::pod_priority(registry, target, object)?;
        let tolerates_more = registry.does(BuiltinStagePlugin::DefaultTolerationSeconds)
            && tolerate_troubles(object, registry.config().toleration_seconds);
        Ok(has_priority || tolerates_more)
    }

    fn prepare_create(&self, object: &mut Object, warnings: &Warnings) -> bool {
        let is_merged = label_keys::merge(object);
        app_armor::read_annotations(object, warnings) | is_merged
    }
}

impl UpdateStrategy for Pods {
    fn admit_update(
        &self,
        registry: &Registry,
        target: &Target,
        current: &Object,
        next: &mut Object,
    ) -> Result<bool, ApiError> {
        let tolerates_more = target.subresource.is_none()
            && registry.does(BuiltinStagePlugin::DefaultTolerationSeconds)
            && tolerate_troubles(next, registry.config().toleration_seconds);
        let keeps_priority = registry.does(BuiltinStagePlugin::Priority) && scheduling::keep_priority(current, next);
        Ok(keeps_priority || tolerates_more)
    }

    fn confine(&self, subresource: &str, stored: &Object, sent: Object, _: SystemTime) -> AcceptedPart {
        match subresource {
            "ephemeralcontainers" => ephemeral_containers::confine(stored, &sent),
            "resize" => resize::confine(stored, &sent),
            "status" => pod_status::confine(stored, sent),
            _ => AcceptedPart::AsSent(sent),
        }
    }

    fn kept(&self, subresource: &str) -> &'static [FieldPath] {
        match subresource {
            "status" => &[&["metadata", "deletionTimestamp"], &["metadata", "ownerReferences"]],
            _ => &[],
        }
    }
}

impl DeleteStrategy for Pods {
    fn is_graceful(&self) -> bool {
        true
    }

    fn may_go(&self, object: &Object) -> bool {
        grace::is_over(object)
    }

    fn returns_deleted(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn a_pod_gets_the_tolerations_that_it_does_not_state() {
        let check = |stated: Value, expected: &[&str]| {
            let mut pod = Object::from_value(json!({ "spec": { "tolerations": stated } })).unwrap();
            tolerate_troubles(&mut pod, [300, 300]);
            let tolerations = pod.get(&["spec", "tolerations"]).and_then(Value::as_array).unwrap();
            let keys: Vec<_> = tolerations.iter().map(|it| it["key"].as_str().unwrap_or_default()).collect();
            assert_eq!(keys, expected);
        };
        check(Value::Null, &TROUBLES);
        check(json!([{ "operator": "Exists" }]), &[""]);
        check(json!([{ "key": TROUBLES[1], "effect": "NoExecute" }]), &[TROUBLES[1], TROUBLES[0]]);
        check(json!([{ "key": TROUBLES[0], "effect": "NoSchedule" }]), &[TROUBLES[0], TROUBLES[0], TROUBLES[1]]);
    }
}
