//! Label keys of affinity terms and spread constraints. In a new pod, each key becomes a requirement for the pod's own
//! value (KEP-3633, KEP-3243).
//!
//! The scheduler reads only the selector. Keys that the pod has no label for add nothing. Terms without a selector stay
//! as they are.

use keelson_meta::Object;
use keelson_meta::json::{Map, Value, json};

/// The lists of affinity terms, and the field of an item that contains the term.
const TERMS: [(&str, Option<&str>); 2] = [
    ("preferredDuringSchedulingIgnoredDuringExecution", Some("podAffinityTerm")),
    ("requiredDuringSchedulingIgnoredDuringExecution", None),
];

/// Adds an expression to the selectors for each key. Returns true if it added one.
pub(super) fn merge(pod: &mut Object) -> bool {
    let has = |path: &[&str]| pod.get(path).is_some_and(|value| !value.is_null());
    if !has(&["spec", "affinity"]) && !has(&["spec", "topologySpreadConstraints"]) {
        return false;
    }
    let labels = pod.get(&["metadata", "labels"]).and_then(Value::as_object).cloned().unwrap_or_default();
    let Some(spec) = pod.0.get_mut("spec").and_then(Value::as_object_mut) else { return false };
    let mut is_changed = false;
    for constraint in items(spec.get_mut("topologySpreadConstraints")) {
        is_changed |= merge_keys(constraint, &[("matchLabelKeys", "In")], &labels);
    }
    let Some(affinity) = spec.get_mut("affinity").and_then(Value::as_object_mut) else { return is_changed };
    for kind in ["podAffinity", "podAntiAffinity"] {
        let Some(kind) = affinity.get_mut(kind).and_then(Value::as_object_mut) else { continue };
        for (list, field) in TERMS {
            for item in items(kind.get_mut(list)) {
                let term = match field {
                    Some(field) => item.get_mut(field).and_then(Value::as_object_mut),
                    None => Some(item),
                };
                let keys = [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")];
                is_changed |= term.is_some_and(|term| merge_keys(term, &keys, &labels));
            }
        }
    }
    is_changed
}

fn items(list: Option<&mut Value>) -> impl Iterator<Item = &mut Map> {
    list.and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
}

fn merge_keys(term: &mut Map, lists: &[(&str, &str)], labels: &Map) -> bool {
    let mut expressions = Vec::new();
    for (list, operator) in lists {
        let keys = term.get(list).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
        let stated = keys.filter_map(|key| Some((key, labels.get(key)?)));
        expressions
            .extend(stated.map(|(key, value)| json!({ "key": key, "operator": *operator, "values": [value.clone()] })));
    }
    let Some(selector) = term.get_mut("labelSelector").and_then(Value::as_object_mut) else { return false };
    if expressions.is_empty() {
        return false;
    }
    let known = selector.entry("matchExpressions").or_insert(Value::Null);
    if known.is_null() {
        *known = json!([]);
    }
    known.as_array_mut().map(|known| known.append(&mut expressions)).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_selects_by_its_own_labels() {
        let term = |selector: Value| json!({ "topologyKey": "zone", "labelSelector": selector, "matchLabelKeys": ["app", "none"], "mismatchLabelKeys": ["tenant"] });
        let spread = json!({ "matchLabelKeys": ["app"], "labelSelector": { "matchLabels": { "a": "b" } } });
        let mut pod = Object::from_value(json!({
            "metadata": { "labels": { "app": "web", "tenant": "t" } },
            "spec": {
                "affinity": {
                    "podAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [term(json!({})), term(Value::Null)] },
                    "podAntiAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [
                        { "weight": 1, "podAffinityTerm": term(json!({ "matchExpressions": [{ "key": "x", "operator": "Exists" }] })) }] },
                },
                "topologySpreadConstraints": [spread, {}],
            },
        }))
        .unwrap();
        assert!(merge(&mut pod));
        let (web, not_t) = (
            json!({ "key": "app", "operator": "In", "values": ["web"] }),
            json!({ "key": "tenant", "operator": "NotIn", "values": ["t"] }),
        );
        let at = |pointer: &str| Value::Object(pod.0.clone()).pointer(pointer).cloned().unwrap_or_default();
        let affinity = "/spec/affinity/podAffinity/requiredDuringSchedulingIgnoredDuringExecution";
        assert_eq!(at(&format!("{affinity}/0/labelSelector/matchExpressions")), json!([web, not_t]));
        assert_eq!(at(&format!("{affinity}/1/labelSelector")), Value::Null, "nothing stays nothing");
        let anti = "/spec/affinity/podAntiAffinity/preferredDuringSchedulingIgnoredDuringExecution/0/podAffinityTerm";
        let exists = json!({ "key": "x", "operator": "Exists" });
        assert_eq!(at(&format!("{anti}/labelSelector/matchExpressions")), json!([exists, web, not_t]));
        assert_eq!(at("/spec/topologySpreadConstraints/0/labelSelector/matchExpressions"), json!([web]));
        let mut plain = Object::from_value(json!({ "spec": { "containers": [] } })).unwrap();
        assert!(!merge(&mut plain));
    }
}
