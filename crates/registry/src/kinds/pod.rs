//! Pods: each may stay for a while on a node that is in trouble.

use std::sync::LazyLock;

use hashbrown::HashMap;
use keelson_meta::Object;
use keelson_meta::json::{Map, Value, json};
use keelson_schema::Schemas;

/// How long a pod stays on a node that is not ready or can't be reached.
const TOLERATION_SECONDS: i64 = 300;
const TROUBLES: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

/// Adds a toleration for each trouble of a node that the pod does not speak of.
pub(super) fn tolerate_troubles(pod: &mut Object) {
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
pub(super) fn spec_in_order(pod: &mut Object) {
    static POSITIONS: LazyLock<HashMap<&str, usize>> = LazyLock::new(|| {
        let spec = Schemas::builtin().kind("", "v1", "Pod").and_then(|pod| pod.field("spec"));
        let fields = spec.into_iter().flat_map(keelson_schema::SchemaRef::fields);
        fields.enumerate().map(|(position, field)| (field.field_name(), position)).collect()
    });
    let position = |name: &str| POSITIONS.get(name).copied();
    let Some(Value::Object(spec)) = pod.0.get_mut("spec") else { return };
    if spec.keys().is_sorted_by_key(&position) {
        return;
    }
    let mut members: Vec<_> =
        std::mem::take(spec).into_iter().map(|(name, value)| (position(&name), name, value)).collect();
    members.sort_by_key(|(position, ..)| *position);
    *spec = Map::from_distinct(members.into_iter().map(|(_, name, value)| (name, value)));
}

fn tolerates(toleration: &Value, trouble: &str) -> bool {
    let field = |name: &str| toleration.get(name).and_then(Value::as_str).unwrap_or_default();
    (field("key") == trouble || field("key").is_empty()) && matches!(field("effect"), "NoExecute" | "")
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
}
