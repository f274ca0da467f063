//! Migration objects: their resource, progress and conditions.
//!
//! Conditions, reasons and texts are kube-controller-manager's.

use std::time::SystemTime;

use keelson_meta::clock::rfc3339;
use keelson_meta::json::{Value, json};
use keelson_meta::{GroupResource, Object, Revision};

/// The label of migrations created by the controller.
pub const AUTOMATIC_LABEL: &str = "keelson.io/automatic";
/// Annotations with the number of objects to rewrite, and of those rewritten.
const TOTAL_ANNOTATION: &str = "keelson.io/objects-total";
const DONE_ANNOTATION: &str = "keelson.io/objects-done";
/// The longest message of a condition.
const MESSAGE_BYTES: usize = 32_768;

/// The content of a condition.
pub(super) struct Condition<'c> {
    pub(super) kind: &'c str,
    pub(super) holds: bool,
    pub(super) reason: &'c str,
    pub(super) message: String,
    pub(super) observed_generation: Option<i64>,
}

/// The end of a migration.
#[derive(Clone, Debug)]
pub enum End {
    /// All objects were rewritten.
    Succeeded,
    /// The migration can't continue, for this reason.
    Failed(String),
}

/// The resource of a migration.
pub fn subject(migration: &Object) -> GroupResource {
    let text = |field: &str| migration.get(&["spec", "resource", field]).and_then(Value::as_str).unwrap_or_default();
    GroupResource { group: text("group").to_owned(), resource: text("resource").to_owned() }
}

/// Returns true if it has succeeded or failed.
pub fn has_ended(migration: &Object) -> bool {
    holds(migration, "Succeeded") || holds(migration, "Failed")
}

/// Returns true if it has begun and not ended.
pub fn is_running(migration: &Object) -> bool {
    holds(migration, "Running")
}

/// Returns true if the object has this condition with status `True`.
pub(super) fn holds(object: &Object, kind: &str) -> bool {
    condition(object, kind).is_some_and(|condition| condition["status"] == *"True")
}

fn condition<'o>(object: &'o Object, kind: &str) -> Option<&'o Value> {
    let conditions = object.get(&["status", "conditions"])?.as_array()?;
    conditions.iter().find(|condition| condition["type"] == *kind)
}

/// Sets the condition of a running migration, with the reason of a delay if there is one.
pub fn say_running(migration: &mut Object, hindrance: Option<&str>, now: SystemTime) -> bool {
    let mut message = "The migration is running".to_owned();
    if let Some(hindrance) = hindrance {
        message.push_str(": ");
        message.push_str(hindrance);
    }
    let running =
        Condition { kind: "Running", holds: true, reason: "MigrationRunning", message, observed_generation: None };
    set_condition(migration, &running, now)
}

/// Records the revision from which all objects are up to date.
pub(super) fn say_revision(migration: &mut Object, revision: Revision) -> bool {
    if migration.get(&["status", "resourceVersion"]).is_some() {
        return false;
    }
    if let Some(status) = migration.0.entry("status").or_insert_with(|| json!({})).as_object_mut() {
        status.insert("resourceVersion".to_owned(), revision.to_string());
    }
    true
}

/// Sets the conditions of an ended migration.
pub fn say_ended(migration: &mut Object, end: &End, now: SystemTime) {
    let message = "Migration completed".to_owned();
    let over =
        Condition { kind: "Running", holds: false, reason: "MigrationCompleted", message, observed_generation: None };
    set_condition(migration, &over, now);
    let (kind, reason, message) = match end {
        End::Succeeded => ("Succeeded", "StorageVersionMigrationSucceeded", String::new()),
        End::Failed(why) => ("Failed", "StorageVersionMigrationFailed", why.clone()),
    };
    set_condition(migration, &Condition { kind, holds: true, reason, message, observed_generation: None }, now);
}

/// Records the progress. Returns true if the object changed.
pub fn say_progress(migration: &mut Object, done: usize, total: usize) -> bool {
    let before = migration.meta("annotations").cloned().filter(Value::is_object).unwrap_or_else(|| json!({}));
    let mut annotations = before.clone();
    annotations[DONE_ANNOTATION] = done.to_string().into();
    annotations[TOTAL_ANNOTATION] = total.to_string().into();
    let changed = annotations != before;
    migration.set_meta("annotations", annotations);
    changed
}

/// The number of objects recorded when the migration started.
pub fn stated_total(migration: &Object) -> Option<usize> {
    let (_, total) = migration.annotations().find(|(key, _)| *key == TOTAL_ANNOTATION)?;
    total.parse().ok()
}

/// Sets a condition, after all others if it is new. Returns true if the object changed. Its transition time changes
/// only with its status.
pub(super) fn set_condition(object: &mut Object, wanted: &Condition<'_>, now: SystemTime) -> bool {
    let status = if wanted.holds { "True" } else { "False" };
    let known = condition(object, wanted.kind);
    let since =
        known.filter(|known| known["status"] == *status).and_then(|known| known.get("lastTransitionTime")).cloned();
    let mut next = json!({
        "type": wanted.kind,
        "status": status,
        "lastTransitionTime": since.unwrap_or_else(|| rfc3339(now).into()),
        "reason": wanted.reason,
        "message": shortened(&wanted.message),
    });
    if let Some(generation) = wanted.observed_generation {
        next["observedGeneration"] = generation.into();
    }
    if known == Some(&next) {
        return false;
    }
    let Some(status) = object.0.entry("status").or_insert_with(|| json!({})).as_object_mut() else { return false };
    let conditions = status.entry("conditions").or_insert_with(|| json!([]));
    let Some(conditions) = conditions.as_array_mut() else { return false };
    match conditions.iter_mut().find(|condition| condition["type"] == *wanted.kind) {
        Some(known) => *known = next,
        None => conditions.push(next),
    }
    true
}

fn shortened(message: &str) -> &str {
    let mut end = message.len().min(MESSAGE_BYTES);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    &message[..end]
}
