//! Validation of the defaults in a schema. The schema must accept each default unchanged.
//!
//! An object with defaults in its metadata must have valid metadata. Like upstream, defaults for values of maps are not
//! validated.

use keelson_meta::json::{Map, Value, json};
use keelson_schema::{Budget, DefaultSchema};

use super::schema::{StoredDefinition, flag, sorted};
use crate::validating::at::At;
use crate::validating::type_rules::Run;

/// Validates all defaults of a schema. Returns true if they are valid.
pub(super) fn validate(at: &At<'_, '_>, before: &StoredDefinition<'_>, run: &mut Run<'_>) -> bool {
    let start = run.faults.len();
    let mut judging = DefaultValidation { before, budget: Budget::FULL, outer: None, run };
    judging.schema(at, true, EnclosingObject { schema: at.value, is_resource: true, way: None });
    judging.run.faults.len() == start
}

/// The innermost enclosing object with metadata: its schema, and the path to the value.
#[derive(Clone, Copy)]
struct EnclosingObject<'w> {
    schema: &'w Value,
    /// True for the root schema.
    is_resource: bool,
    /// The path within the metadata, kind or apiVersion of that object; `None` outside of them.
    way: Option<&'w PathSteps<'w>>,
}

/// The last step of a path, and the steps before it.
struct PathSteps<'w> {
    before: Option<&'w PathSteps<'w>>,
    /// The field name; `None` for an item of a list.
    field: Option<&'w str>,
}

impl PathSteps<'_> {
    /// Wraps a value in the objects and lists of this path.
    fn around(&self, value: Value) -> Value {
        let held = match self.field {
            Some(name) => {
                let mut map = Map::new();
                map.insert(name, value);
                Value::Object(map)
            }
            None => Value::Array(vec![value]),
        };
        match self.before {
            Some(before) => before.around(held),
            None => held,
        }
    }
}

struct DefaultValidation<'j, 'r> {
    before: &'j StoredDefinition<'j>,
    /// The remaining budget for all defaults of the schema.
    budget: Budget,
    /// The last compiled schema of an enclosing object, with its address.
    outer: Option<(*const Value, DefaultSchema)>,
    run: &'j mut Run<'r>,
}

impl DefaultValidation<'_, '_> {
    fn schema(&mut self, at: &At<'_, '_>, is_root: bool, around: EnclosingObject<'_>) {
        if at.tree().is_none() || self.run.is_full() || self.budget.is_spent() {
            return;
        }
        let is_whole = is_root || flag(at.value, "x-kubernetes-embedded-resource");
        let whole =
            if is_whole { EnclosingObject { schema: at.value, is_resource: is_root, way: None } } else { around };
        if at.field("default").is_set() {
            self.default(at, is_root, &whole);
        }
        let step = PathSteps { before: whole.way, field: None };
        self.schema(&at.field("items"), false, EnclosingObject { way: whole.way.map(|_| &step), ..whole });
        for (name, property) in sorted(&at.field("properties")) {
            let step = PathSteps { before: whole.way, field: Some(name) };
            let enters = is_whole && matches!(name, "metadata" | "apiVersion" | "kind");
            let way = if enters || whole.way.is_some() { Some(&step) } else { None };
            self.schema(&property, false, EnclosingObject { way, ..whole });
        }
    }

    fn default(&mut self, at: &At<'_, '_>, is_root: bool, whole: &EnclosingObject<'_>) {
        let default = at.field("default");
        // If the schema cannot be compiled, another check reports the keyword.
        let Ok(part) = DefaultSchema::compile(at.value, is_root) else { return };
        let path = default.path();
        let faults = match whole.way {
            None => {
                let checked = part.validate(default.value, &path, &mut self.budget);
                if checked.has_unknown_fields && !self.before.had(has_unknown_fields) {
                    default.invalid(self.run, default.shown(), "must not have unknown fields");
                }
                checked.faults
            }
            Some(way) => {
                let mut around = way.around(default.value.clone());
                if let Some(object) = around.as_object_mut() {
                    for (name, value) in [("apiVersion", "validation/v1"), ("kind", "Validation")] {
                        if !object.contains_key(name) {
                            object.insert(name, json!(value));
                        }
                    }
                }
                let Some(outer) = self.outer(whole) else { return };
                let faults = part.validate_in_metadata(default.value, &around, &outer, &path, &mut self.budget);
                self.outer = Some((whole.schema, outer));
                faults
            }
        };
        faults.into_iter().for_each(|fault| self.run.report(|| fault));
    }

    /// The compiled schema of the enclosing object. Several defaults share it.
    fn outer(&mut self, whole: &EnclosingObject<'_>) -> Option<DefaultSchema> {
        match self.outer.take().filter(|(schema, _)| std::ptr::eq(*schema, whole.schema)) {
            Some((_, part)) => Some(part),
            None => DefaultSchema::compile(whole.schema, whole.is_resource).ok(),
        }
    }
}

/// Returns true if the default of a schema has fields that the schema does not have.
fn has_unknown_fields(schema: &Value) -> bool {
    let Some(default) = schema.get("default") else { return false };
    DefaultSchema::compile(schema, false)
        .is_ok_and(|part| part.validate(default, "", &mut { Budget::FULL }).has_unknown_fields)
}
