//! Subresources of certificate signing requests. Only `/approval` approves or denies a request, and only `/status` sets
//! the certificate. Decisions are final, and the request itself never changes.

use std::time::SystemTime;

use keelson_meta::Object;
use keelson_meta::clock::rfc3339;
use keelson_meta::conditions::{list, list_mut, text};
use keelson_meta::field_error::FieldError;
use keelson_meta::json::{Value, json};
use keelson_registry::strategy::AcceptedPart;

/// The condition types that only `/approval` sets.
const VERDICTS: [&str; 2] = ["Approved", "Denied"];
/// The condition types that are never removed.
const FINAL: [&str; 3] = ["Approved", "Denied", "Failed"];
const CONDITIONS: &str = "status.conditions";
const CERTIFICATE: &str = "status.certificate";

/// Keeps only the changes that `/approval` permits: conditions and metadata.
pub(crate) fn confine_approval(stored: &Object, mut sent: Object, now: SystemTime) -> AcceptedPart {
    date_conditions(stored, &mut sent, now);
    let conditions = sent.get(&["status", "conditions"]).cloned();
    for part in ["spec", "status"] {
        keep(&mut sent, stored, part);
    }
    let status = sent.0.entry("status").or_insert_with(|| json!({}));
    if let Value::Object(status) = status {
        match conditions {
            Some(conditions) => status.insert("conditions", conditions),
            None => status.remove("conditions"),
        };
    }
    let mut errors = conditions_faults(&sent);
    errors.extend(taken_back(stored, &sent));
    AcceptedPart::Cut(sent, errors)
}

/// Keeps only the changes that `/status` permits: the status without the approval conditions.
pub(crate) fn confine_status(stored: &Object, mut sent: Object, now: SystemTime) -> AcceptedPart {
    keep(&mut sent, stored, "spec");
    for verdict in VERDICTS {
        keep_instances(stored, &mut sent, verdict);
    }
    date_conditions(stored, &mut sent, now);
    let mut errors = conditions_faults(&sent);
    errors.extend(taken_back(stored, &sent));
    for verdict in VERDICTS.iter().filter(|verdict| count(&sent, verdict) > count(stored, verdict)) {
        let detail = format!("updates may not add a condition of type \"{verdict}\"");
        errors.push(FieldError::forbidden(CONDITIONS, detail));
    }
    let certificate = |request: &Object| {
        let text = request.get(&["status", "certificate"]).and_then(Value::as_str).unwrap_or_default();
        text.to_owned()
    };
    if !certificate(stored).is_empty() && certificate(stored) != certificate(&sent) {
        errors.push(FieldError::forbidden(CERTIFICATE, "updates may not modify existing certificate content"));
    }
    AcceptedPart::Cut(sent, errors)
}

fn keep(sent: &mut Object, stored: &Object, part: &str) {
    match stored.0.get(part) {
        Some(value) => sent.0.insert(part, value.clone()),
        None => sent.0.remove(part),
    };
}

/// Restores the conditions of a type. If their number differs, they stay as sent, so that validation refuses them.
fn keep_instances(stored: &Object, sent: &mut Object, kind: &str) {
    if count(stored, kind) != count(sent, kind) {
        return;
    }
    let before = list(stored).iter().filter(|condition| text(condition, "type") == kind);
    let after = list_mut(sent).filter(|condition| condition.get("type").and_then(Value::as_str) == Some(kind));
    for (after, before) in after.zip(before.filter_map(Value::as_object)) {
        after.clone_from(before);
    }
}

fn count(request: &Object, kind: &str) -> usize {
    list(request).iter().filter(|condition| text(condition, "type") == kind).count()
}

/// Sets the update and transition times of conditions.
fn date_conditions(stored: &Object, sent: &mut Object, now: SystemTime) {
    let now = json!(rfc3339(now));
    for condition in list_mut(sent) {
        if condition.get("lastUpdateTime").is_none_or(Value::is_null) {
            condition.insert("lastUpdateTime", now.clone());
        }
        if condition.get("lastTransitionTime").is_none_or(Value::is_null) {
            let same = list(stored).iter().find(|known| {
                known.get("type") == condition.get("type") && known.get("status") == condition.get("status")
            });
            let since = same.and_then(|known| known.get("lastTransitionTime")).filter(|since| !since.is_null());
            condition.insert("lastTransitionTime", since.unwrap_or(&now).clone());
        }
    }
}

fn taken_back(stored: &Object, sent: &Object) -> impl Iterator<Item = FieldError> {
    let missing = FINAL.iter().filter(|kind| count(sent, kind) < count(stored, kind));
    let detail = |kind: &&str| format!("updates may not remove a condition of type \"{kind}\"");
    let errors: Vec<FieldError> = missing.map(|kind| FieldError::forbidden(CONDITIONS, detail(kind))).collect();
    errors.into_iter()
}

/// The errors of the conditions themselves.
fn conditions_faults(request: &Object) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut seen: Vec<&str> = Vec::new();
    for (index, condition) in list(request).iter().enumerate() {
        let (kind, status) = (text(condition, "type"), text(condition, "status"));
        let field = |name: &str| format!("{CONDITIONS}[{index}].{name}");
        if kind.is_empty() {
            errors.push(FieldError::required(field("type"), ""));
        }
        let allowed: &[&str] = if FINAL.contains(&kind) { &["True"] } else { &["False", "True", "Unknown"] };
        if status.is_empty() {
            errors.push(FieldError::required(field("status"), ""));
        } else if !allowed.contains(&status) {
            errors.push(FieldError::not_supported(field("status"), status, allowed));
        }
        if VERDICTS.contains(&kind) && seen.iter().any(|other| VERDICTS.contains(other) && *other != kind) {
            let detail = "Approved and Denied conditions are mutually exclusive";
            errors.push(FieldError::invalid(CONDITIONS, kind, detail));
        }
        if seen.contains(&kind) {
            errors.push(FieldError::duplicate(field("type"), kind));
        }
        seen.push(kind);
    }
    errors
}
