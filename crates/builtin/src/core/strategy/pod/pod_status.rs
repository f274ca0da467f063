//! The subresource `pods/status` keeps fields that older kubelets do not send.
//!
//! An older kubelet does not know these fields. Without this it would remove them with each report.

use std::collections::HashMap;

use keelson_meta::Object;
use keelson_meta::conditions::list_mut;
use keelson_meta::json::{Map, Value, json};
use keelson_registry::strategy::AcceptedPart;

const GENERATION: &str = "observedGeneration";

/// Keeps the QoS class, which is set at creation, and observed generations that are absent in the update (KEP-5067).
pub(crate) fn confine(stored: &Object, mut sent: Object) -> AcceptedPart {
    let mut known = observed(stored);
    for condition in list_mut(&mut sent) {
        let kind = condition.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
        let before = known.get_mut(&kind).and_then(Vec::pop);
        keep(condition, GENERATION, before.flatten());
    }
    let status = sent.0.entry("status").or_insert_with(|| json!({}));
    if let Value::Object(status) = status {
        for field in ["qosClass", GENERATION] {
            keep(status, field, stored.get(&["status", field]).cloned());
        }
    }
    AcceptedPart::Cut(sent, Vec::new())
}

/// The observed generations of the conditions, by type. Several conditions may have one type; the last one comes first.
fn observed(stored: &Object) -> HashMap<String, Vec<Option<Value>>> {
    let mut known: HashMap<String, Vec<Option<Value>>> = HashMap::new();
    for condition in keelson_meta::conditions::list(stored).iter().rev() {
        let kind = keelson_meta::conditions::text(condition, "type").to_owned();
        known.entry(kind).or_default().push(condition.get(GENERATION).cloned());
    }
    known
}

fn keep(map: &mut Map, field: &str, before: Option<Value>) {
    let stated = map.get(field).is_some_and(|value| !(value.is_null() || *value == json!(0) || *value == json!("")));
    if let (false, Some(before)) = (stated, before) {
        map.insert(field, before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn omitted_observed_generations_and_qos_class_are_kept() {
        let object = |status: Value| Object::from_value(json!({ "status": status })).unwrap();
        let stored = object(json!({"qosClass": "Burstable", "observedGeneration": 3, "conditions": [
            {"type": "Ready", "observedGeneration": 1}, {"type": "Ready", "observedGeneration": 2},
        ]}));
        let sent = object(json!({"observedGeneration": 4, "conditions": [
            {"type": "Ready"}, {"type": "Ready"}, {"type": "Ready"}, {"type": "Other"},
        ]}));
        let AcceptedPart::Cut(confined, _) = confine(&stored, sent) else { panic!("it is cut") };
        assert_eq!(
            confined,
            object(json!({"qosClass": "Burstable", "observedGeneration": 4, "conditions": [
                {"type": "Ready", "observedGeneration": 1}, {"type": "Ready", "observedGeneration": 2},
                {"type": "Ready"}, {"type": "Other"},
            ]}))
        );
    }
}
