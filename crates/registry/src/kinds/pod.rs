//! Pods: each may stay for a while on a node that is in trouble.

use std::sync::LazyLock;
use std::time::SystemTime;

use keelson_meta::json::{Map, Value, json};
use keelson_meta::{ApiError, Object};
use keelson_schema::{SchemaRef, Schemas};

use super::strategy::{Confined, FieldPath, Strategy};
use super::{classes, quality_of_service};
use crate::grace;
use crate::registry::Registry;
use crate::subresources::{ephemeral_containers, pod_status, resize};
use crate::target::Target;

/// How long a pod stays on a node that is not ready or can't be reached.
const TOLERATION_SECONDS: i64 = 300;
const TROUBLES: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

/// Adds a toleration for each trouble of a node that the pod does not speak of.
fn tolerate_troubles(pod: &mut Object) {
    let Some(spec) = pod.0.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let tolerations = spec.entry("tolerations").or_insert(Value::Null);
    if tolerations.is_null() {
        *tolerations = json!([]);
    }
    let Some(tolerations) = tolerations.as_array_mut() else { return };
    for trouble in TROUBLES {
        if !tolerations.iter().any(|toleration| tolerates(toleration, trouble)) {
            tolerations.push(json!({
                "key": trouble, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": TOLERATION_SECONDS,
            }));
        }
    }
}

/// Puts the members of a pod's `spec` where its schema has them, after some were added. What is in them is in order
/// already, so this is much less work than a walk of the whole pod.
fn spec_in_order(pod: &mut Object) {
    static SPEC: LazyLock<Option<SchemaRef<'static>>> =
        LazyLock::new(|| Schemas::builtin().kind("", "v1", "Pod")?.field("spec"));
    let (Some(schema), Some(Value::Object(spec))) = (*SPEC, pod.0.get_mut("spec")) else { return };
    let mut behind = 0;
    for (name, _, rank) in spec.ranked_mut() {
        let declared = schema.field_near(name, &mut behind).is_some();
        *rank = if declared { u32::try_from(behind).unwrap_or(u32::MAX) } else { 0 };
    }
    spec.sort_by_rank();
}

fn tolerates(toleration: &Value, trouble: &str) -> bool {
    let field = |name: &str| toleration.get(name).and_then(Value::as_str).unwrap_or_default();
    (field("key") == trouble || field("key").is_empty()) && matches!(field("effect"), "NoExecute" | "")
}

/// The strategy of pods.
pub(super) struct Pods;

impl Strategy for Pods {
    fn initial_status(&self, object: &Object, _: SystemTime) -> Map {
        Map::from_iter([
            ("phase".to_owned(), json!("Pending")),
            ("qosClass".to_owned(), json!(quality_of_service(object))),
        ])
    }

    fn admit(&self, registry: &Registry, target: &Target, object: &mut Object) -> Result<bool, ApiError> {
        tolerate_troubles(object);
        classes::pod_priority(registry, target, object)?;
        spec_in_order(object);
        Ok(false)
    }

    fn admit_update(
        &self,
        _: &Registry,
        target: &Target,
        current: &Object,
        next: &mut Object,
    ) -> Result<bool, ApiError> {
        if target.subresource.is_none() {
            tolerate_troubles(next);
        }
        classes::keep_priority(current, next);
        spec_in_order(next);
        Ok(false)
    }

    fn confine(&self, subresource: &str, stored: &Object, sent: Object, _: SystemTime) -> Confined {
        match subresource {
            "ephemeralcontainers" => ephemeral_containers::confine(stored, &sent),
            "resize" => resize::confine(stored, &sent),
            "status" => pod_status::confine(stored, sent),
            _ => Confined::AsSent(sent),
        }
    }

    fn kept(&self, subresource: &str) -> &'static [FieldPath] {
        match subresource {
            "status" => &[&["metadata", "deletionTimestamp"], &["metadata", "ownerReferences"]],
            _ => &[],
        }
    }

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
            tolerate_troubles(&mut pod);
            let tolerations = pod.get(&["spec", "tolerations"]).and_then(Value::as_array).unwrap();
            let keys: Vec<_> = tolerations.iter().map(|it| it["key"].as_str().unwrap_or_default()).collect();
            assert_eq!(keys, expected);
        };
        check(Value::Null, &TROUBLES);
        check(json!([{ "operator": "Exists" }]), &[""]);
        check(json!([{ "key": TROUBLES[1], "effect": "NoExecute" }]), &[TROUBLES[1], TROUBLES[0]]);
        check(json!([{ "key": TROUBLES[0], "effect": "NoSchedule" }]), &[TROUBLES[0], TROUBLES[0], TROUBLES[1]]);
    }

    #[test]
    fn what_was_added_to_a_pod_stands_where_its_schema_has_it() {
        let spec = json!({ "containers": [], "nodeName": "n", "unknown": 1, "tolerations": [], "volumes": [] });
        let mut pod = Object::from_value(json!({ "spec": spec })).unwrap();
        spec_in_order(&mut pod);
        let spec = pod.get(&["spec"]).and_then(Value::as_object).unwrap();
        assert_eq!(spec.keys().collect::<Vec<_>>(), ["unknown", "volumes", "containers", "nodeName", "tolerations"]);
    }
}
