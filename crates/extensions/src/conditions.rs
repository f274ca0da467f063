//! The conditions in the status of a definition, read and set as upstream does.
//!
//! This module does not decide which of them hold.

use std::time::SystemTime;

use keelson_meta::Object;
use keelson_meta::clock::rfc3339;
use keelson_meta::json::{Value, json};

pub(crate) const NAMES_ACCEPTED: &str = "NamesAccepted";
pub(crate) const ESTABLISHED: &str = "Established";
pub(crate) const TERMINATING: &str = "Terminating";
pub(crate) const APPROVAL: &str = "KubernetesAPIApprovalPolicyConformant";
pub(crate) const NON_STRUCTURAL: &str = "NonStructuralSchema";

/// A condition to set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Condition {
    pub(crate) kind: &'static str,
    pub(crate) holds: bool,
    /// True for the status `Unknown`.
    pub(crate) is_unknown: bool,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl Condition {
    pub(crate) fn new(kind: &'static str, holds: bool, reason: &'static str, message: impl Into<String>) -> Self {
        Self { kind, holds, is_unknown: false, reason, message: message.into() }
    }

    /// A condition with the status `Unknown`.
    pub(crate) fn unknown(kind: &'static str, reason: &'static str, message: impl Into<String>) -> Self {
        Self { is_unknown: true, ..Self::new(kind, false, reason, message) }
    }

    fn status(&self) -> &'static str {
        match self.holds {
            _ if self.is_unknown => "Unknown",
            true => "True",
            false => "False",
        }
    }
}

/// Returns true if a condition holds.
pub(crate) fn holds(definition: &Object, kind: &str) -> bool {
    find(definition, kind).is_some_and(|condition| field(condition, "status") == "True")
}

/// A condition, if present.
pub(crate) fn find<'o>(definition: &'o Object, kind: &str) -> Option<&'o Value> {
    let conditions = definition.get(&["status", "conditions"])?.as_array()?;
    conditions.iter().find(|condition| field(condition, "type") == kind)
}

/// Sets a condition, as the last one if it is new. Returns true if anything changed. The time is that of the last
/// change of its status.
pub(crate) fn set(definition: &mut Object, wanted: &Condition, now: SystemTime) -> bool {
    let conditions = conditions_of(definition);
    let Some(known) = conditions.iter_mut().find(|condition| field(condition, "type") == wanted.kind) else {
        conditions.push(json!({
            "type": wanted.kind,
            "status": wanted.status(),
            "lastTransitionTime": rfc3339(now),
            "reason": wanted.reason,
            "message": wanted.message,
        }));
        return true;
    };
    let is_other = field(known, "status") != wanted.status();
    if !is_other && field(known, "reason") == wanted.reason && field(known, "message") == wanted.message {
        return false;
    }
    if is_other || field(known, "lastTransitionTime").is_empty() {
        known["lastTransitionTime"] = json!(rfc3339(now));
    }
    known["status"] = json!(wanted.status());
    known["reason"] = json!(wanted.reason);
    known["message"] = json!(wanted.message);
    true
}

/// Removes a condition. Returns true if it existed.
pub(crate) fn remove(definition: &mut Object, kind: &str) -> bool {
    if find(definition, kind).is_none() {
        return false;
    }
    conditions_of(definition).retain(|condition| field(condition, "type") != kind);
    true
}

fn conditions_of(definition: &mut Object) -> &mut Vec<Value> {
    let status = definition.0.entry("status").or_insert_with(|| json!({}));
    if !status.is_object() {
        *status = json!({});
    }
    let conditions = &mut status["conditions"];
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    conditions.as_array_mut().expect("it was made a list")
}

fn field<'v>(condition: &'v Value, name: &str) -> &'v str {
    condition.get(name).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_condition_keeps_its_place_and_the_time_of_its_status() {
        let mut definition = Object::from_value(json!({ "status": { "conditions": null } })).unwrap();
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let first = Condition::new(NAMES_ACCEPTED, false, "PluralConflict", "taken");
        assert!(set(&mut definition, &first, at(1)));
        assert!(set(&mut definition, &Condition::new(ESTABLISHED, false, "NotAccepted", ""), at(1)));
        assert!(!set(&mut definition, &first, at(2)), "it says that already");
        let time =
            |definition: &Object| field(find(definition, NAMES_ACCEPTED).unwrap(), "lastTransitionTime").to_owned();
        assert!(set(&mut definition, &Condition { reason: "KindConflict", ..first.clone() }, at(3)));
        assert_eq!(time(&definition), "1970-01-01T00:00:01Z");
        assert!(set(&mut definition, &Condition { holds: true, ..first }, at(4)));
        assert_eq!(time(&definition), "1970-01-01T00:00:04Z");
        let kinds: Vec<&str> = definition
            .get(&["status", "conditions"])
            .unwrap()
            .as_array()
            .unwrap()
            .iter()
            .map(|condition| field(condition, "type"))
            .collect();
        assert_eq!(kinds, [NAMES_ACCEPTED, ESTABLISHED]);
        assert!(remove(&mut definition, ESTABLISHED) && !remove(&mut definition, ESTABLISHED));
        assert!(find(&definition, ESTABLISHED).is_none() && holds(&definition, NAMES_ACCEPTED));
        set(&mut definition, &Condition::unknown(NON_STRUCTURAL, "StructuralError", "m"), at(5));
        assert_eq!(field(find(&definition, NON_STRUCTURAL).unwrap(), "status"), "Unknown");
    }
}
