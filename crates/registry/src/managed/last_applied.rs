//! The transition from client-side to server-side apply: the annotation in which kubectl keeps its last applied
//! configuration.
//!
//! The annotation counts only for kubectl's own field manager. Fields that kubectl owns by the annotation do not
//! conflict. An apply updates the annotation, so that a later client-side apply removes nothing.

use keelson_meta::json::{Map, Value};
use keelson_meta::metadata_rules::ANNOTATIONS_MAX;
use keelson_meta::{Object, go_format};
use keelson_patch::fields::{Conflicts, Duplicates, FieldSet, compare, extract, validate};
use keelson_schema::SchemaRef;

/// The name by which kubectl applies.
pub(super) const MANAGER: &str = "kubectl";
const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Returns nothing if all conflicts are about fields that equal those of the live object's annotation.
///
/// # Errors
/// The other conflicts.
pub(super) fn resolve(
    conflicts: Conflicts,
    schema: SchemaRef<'_>,
    version: &str,
    live: &Value,
) -> Result<(), Conflicts> {
    let Some(owned) = owned(schema, version, live) else { return Err(conflicts) };
    let others: Vec<_> = conflicts.0.into_iter().filter(|it| !owned.contains(it.path.elements())).collect();
    if others.is_empty() { Ok(()) } else { Err(Conflicts(others)) }
}

/// The last applied fields that have not changed since; `None` if they cannot be determined.
fn owned(schema: SchemaRef<'_>, version: &str, live: &Value) -> Option<FieldSet> {
    let annotation = live["metadata"]["annotations"][ANNOTATION].as_str()?;
    let last: Value = serde_json::from_str(annotation).ok()?;
    if last["apiVersion"] != version || validate(schema, &last, Duplicates::Refused).is_err() {
        return None;
    }
    let since = compare(schema, &last, live);
    let owned = extract(schema, &last);
    Some(owned.difference(&since.modified).difference(&since.added).difference(&since.removed))
}

/// Sets the annotation of an object, if it has one, to the applied configuration.
pub(super) fn renew(object: &mut Object, applied: &Value) {
    let Some(Value::Object(annotations)) = object.metadata_mut().get_mut("annotations") else { return };
    if annotations.get(ANNOTATION).and_then(Value::as_str).is_none_or(str::is_empty) {
        return;
    }
    annotations.insert(ANNOTATION, configuration(applied));
    let size: usize = annotations.iter().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum();
    if size > ANNOTATIONS_MAX {
        annotations.remove(ANNOTATION);
    }
}

/// An object as kubectl writes it into the annotation: without the annotation, keys sorted, with a line break.
fn configuration(applied: &Value) -> String {
    let mut applied = applied.clone();
    if let Some(Value::Object(annotations)) = applied.pointer_mut("/metadata/annotations") {
        annotations.remove(ANNOTATION);
    }
    format!("{}\n", go_format::json(&sorted(applied)))
}

fn sorted(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let mut members: Map = members.into_iter().map(|(name, value)| (name, sorted(value))).collect();
            members.sort_keys();
            members.into()
        }
        Value::Array(items) => items.into_iter().map(sorted).collect(),
        scalar => scalar,
    }
}
