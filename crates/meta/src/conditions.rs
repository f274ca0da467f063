//! Status conditions. An object has one of each type, with the time when its status last changed.
//!
//! Setting a condition to its present status keeps the time. This module must not know the types of conditions.

use std::time::SystemTime;

use crate::Object;
use crate::clock::rfc3339;
use crate::json::{Map, Value, json};

/// Sets the condition with this type. Its transition time changes only with its status.
pub fn set(object: &mut Object, condition: Value, now: SystemTime) {
    let Value::Object(mut condition) = condition else { return };
    let status = object.0.entry("status").or_insert_with(|| json!({}));
    let Value::Object(status) = status else { return };
    let conditions = status.entry("conditions").or_insert_with(|| json!([]));
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Value::Array(conditions) = conditions else { return };
    match conditions.iter_mut().find(|known| known.get("type") == condition.get("type")) {
        Some(known) => {
            let same = known.get("status") == condition.get("status");
            let since = known.get("lastTransitionTime").filter(|_| same).cloned();
            condition.insert("lastTransitionTime", since.unwrap_or_else(|| json!(rfc3339(now))));
            *known = Value::Object(condition);
        }
        None => {
            condition.insert("lastTransitionTime", json!(rfc3339(now)));
            conditions.push(Value::Object(condition));
        }
    }
}

/// Returns true if the condition of this type is `True`.
pub fn is_true(object: &Object, kind: &str) -> bool {
    list(object).iter().any(|condition| text(condition, "type") == kind && text(condition, "status") == "True")
}

/// The conditions of an object.
pub fn list(object: &Object) -> &[Value] {
    object.get(&["status", "conditions"]).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// A text field of a condition. Empty if absent.
pub fn text<'a>(condition: &'a Value, field: &str) -> &'a str {
    condition.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// Mutable conditions of an object.
pub fn list_mut(object: &mut Object) -> impl Iterator<Item = &mut Map> {
    let status = object.0.get_mut("status").and_then(Value::as_object_mut);
    let conditions = status.and_then(|status| status.get_mut("conditions")).and_then(Value::as_array_mut);
    conditions.into_iter().flatten().filter_map(Value::as_object_mut)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_condition_keeps_its_date_while_its_status_stays() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let mut pod = Object::default();
        let mut set_at = |condition: Value, seconds: u64, since: &str| {
            set(&mut pod, condition, at(seconds));
            assert_eq!(list(&pod).len(), 1);
            assert_eq!(text(&list(&pod)[0], "lastTransitionTime"), since);
        };
        set_at(json!({"type": "Ready", "status": "True"}), 0, "1970-01-01T00:00:00Z");
        set_at(json!({"type": "Ready", "status": "True", "reason": "Still"}), 5, "1970-01-01T00:00:00Z");
        set_at(json!({"type": "Ready", "status": "False"}), 9, "1970-01-01T00:00:09Z");
        assert!(!is_true(&pod, "Ready"));
    }
}
