//! The structure of a schema: each value has a type, stated once and outside of `allOf`, `anyOf`, `oneOf` and `not`.
//!
//! Like upstream, errors are sorted.

use keelson_cel::library::regex;
use keelson_meta::json::{Map, Value, json};

use super::schema::{flag, sorted};
use crate::validating::at::At;
use crate::validating::type_rules::Run;

const JUNCTORS: [&str; 3] = ["anyOf", "allOf", "oneOf"];

/// The position of a schema in a schema.
#[derive(Clone, Copy, PartialEq)]
enum Level {
    Root,
    Field,
    Item,
}

/// The first keyword of a schema that no structural schema may have.
pub(super) fn unsupported(schema: &Value) -> Option<String> {
    let not_empty = |key: &str| schema.get(key).is_some_and(|value| !crate::validating::at::is_empty(value));
    let keywords = ["id", "$schema", "$ref", "patternProperties", "dependencies", "additionalItems", "definitions"];
    let has = |key: &&str| if *key == "additionalItems" { schema.get(*key).is_some() } else { not_empty(key) };
    if let Some(key) = keywords.into_iter().find(has) {
        return Some(format!(
            "OpenAPIV3Schema '{}' is not supported",
            key.strip_prefix("$s").map_or(key, |_| "schema")
        ));
    }
    if schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
        return Some("internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined".to_owned());
    }
    if schema.get("items").and_then(Value::as_array).is_some_and(|items| !items.is_empty()) {
        return Some("OpenAPIV3Schema 'items' must be a schema, but is an array".to_owned());
    }
    super::schema::below(schema).find_map(unsupported)
}

/// Validates a whole schema. Returns true if it is structural.
pub(super) fn validate(at: &At<'_, '_>, run: &mut Run<'_>) -> bool {
    let start = run.faults.len();
    invariants(at, Level::Root, run);
    complete(at, at.value, at, run);
    run.faults[start..].sort_by_cached_key(ToString::to_string);
    run.faults.len() == start
}

fn invariants(at: &At<'_, '_>, level: Level, run: &mut Run<'_>) {
    if at.tree().is_none() {
        return;
    }
    let (of, items, others) = (at.field("type"), at.field("items"), at.field("additionalProperties"));
    if of.text() == "array" && !items.is_set() {
        items.required(run, "must be specified");
    }
    invariants(&items, Level::Item, run);
    for (_, property) in at.field("properties").entries() {
        invariants(&property, Level::Field, run);
    }
    if others.is_set() && level == Level::Root {
        others.forbidden(run, "must not be used at the root");
    }
    invariants(&others, Level::Field, run);
    extensions(at, run);
    of_values(at, is_number_or_text(at.value), first_is_number_or_text(at.value), run);
    let embedded = flag(at.value, "x-kubernetes-embedded-resource");
    kind(at, level, run);
    if embedded && others.is_set() {
        others.forbidden(run, "must not be used if x-kubernetes-embedded-resource is set");
    }
    if level == Level::Root && !matches!(of.text(), "" | "object") {
        of.invalid(run, of.text(), "must be object at the root");
    }
    metadata(at, level, run);
    if embedded && !flag(at.value, "x-kubernetes-preserve-unknown-fields") && at.field("properties").is_empty() {
        let why =
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        at.field("properties").required(run, why);
    }
}

fn kind(at: &At<'_, '_>, level: Level, run: &mut Run<'_>) {
    const OBJECT: &str = "must be object if x-kubernetes-embedded-resource is true";
    let of = at.field("type");
    let open = ["x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields"];
    if flag(at.value, "x-kubernetes-embedded-resource") && of.text() != "object" {
        if of.is_empty() { of.required(run, OBJECT) } else { of.invalid(run, of.text(), OBJECT) }
    } else if of.is_empty() && !open.iter().any(|key| flag(at.value, key)) {
        of.required(
            run,
            match level {
                Level::Root => "must not be empty at the root",
                Level::Field => "must not be empty for specified object fields",
                Level::Item => "must not be empty for specified array items",
            },
        );
    }
}

fn extensions(at: &At<'_, '_>, run: &mut Run<'_>) {
    if !flag(at.value, "x-kubernetes-int-or-string") {
        return;
    }
    for key in ["x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"] {
        if at.field(key).is_true() {
            at.field(key).invalid(run, true, "must be false if x-kubernetes-int-or-string is true");
        }
    }
}

/// Checks the schemas of the fields `kind`, `apiVersion` and `metadata`.
fn metadata(at: &At<'_, '_>, level: Level, run: &mut Run<'_>) {
    let is_whole = level == Level::Root || flag(at.value, "x-kubernetes-embedded-resource");
    let properties = at.field("properties");
    for name in ["kind", "apiVersion"] {
        let property = properties.key(name);
        let of = property.field("type");
        if is_whole && property.is_set() && of.text() != "string" {
            of.invalid(run, of.text(), "must be string");
        }
    }
    let metadata = properties.key("metadata");
    if !metadata.is_set() {
        return;
    }
    let of = metadata.field("type");
    if is_whole && of.text() != "object" {
        of.invalid(run, of.text(), "must be object");
    }
    if level == Level::Root && has_further_keywords(metadata.tree()) {
        let why = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        metadata.forbidden(run, why);
    }
}

/// Returns true if a schema of metadata restricts more than names.
fn has_further_keywords(schema: Option<&Map>) -> bool {
    schema.into_iter().flatten().any(|(key, value)| match key {
        "type" | "default" | "externalDocs" | "example" => false,
        "properties" => {
            value.as_object().is_some_and(|fields| fields.keys().any(|name| !matches!(name, "name" | "generateName")))
        }
        _ => !matches!(value, Value::Null | Value::Bool(false)) && value.as_str() != Some(""),
    })
}

/// Returns true for the `anyOf` of an integer and a string, the only one that may have types.
fn is_number_or_text(schema: &Value) -> bool {
    schema.get("anyOf") == Some(&json!([{"type": "integer"}, {"type": "string"}]))
}

fn first_is_number_or_text(schema: &Value) -> bool {
    schema.get("allOf").and_then(|all| all.get(0)).is_some_and(is_number_or_text)
}

/// Validates the keywords that restrict values. `states_types`: `anyOf` may have types. `first_states_types`: the first
/// schema of `allOf` may have types.
fn of_values(at: &At<'_, '_>, states_types: bool, first_states_types: bool, run: &mut Run<'_>) {
    for junctor in JUNCTORS.into_iter().filter(|junctor| !(states_types && *junctor == "anyOf")) {
        for (index, schema) in at.field(junctor).items().enumerate() {
            combined(&schema, first_states_types && junctor == "allOf" && index == 0, run);
        }
    }
    combined(&at.field("not"), false, run);
    let pattern = at.field("pattern");
    if !pattern.is_empty()
        && let Err(why) = regex::check(pattern.text())
    {
        pattern.invalid(run, pattern.text(), format!("must be a valid regular expression, but isn't: {why}"));
    }
}

/// A schema in `allOf`, `anyOf`, `oneOf` or `not`, which may not declare structure.
fn combined(at: &At<'_, '_>, states_types: bool, run: &mut Run<'_>) {
    if at.tree().is_none() {
        return;
    }
    of_values(at, states_types, false, run);
    combined(&at.field("items"), false, run);
    for (_, property) in at.field("properties").entries() {
        combined(&property, false, run);
    }
    let others = at.field("additionalProperties");
    if others.tree().is_some() {
        others.forbidden(run, "must be undefined to be structural");
    }
    for (key, why) in [
        ("type", "must be empty to be structural"),
        ("title", "must be empty to be structural"),
        ("description", "must be empty to be structural"),
        ("x-kubernetes-list-map-keys", "must be empty to be structural"),
        ("x-kubernetes-validations", "must be empty to be structural"),
        ("default", "must be undefined to be structural"),
        ("x-kubernetes-list-type", "must be undefined to be structural"),
        ("x-kubernetes-map-type", "must be undefined to be structural"),
        ("nullable", "must be false to be structural"),
        ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
        ("x-kubernetes-embedded-resource", "must be false to be structural"),
        ("x-kubernetes-int-or-string", "must be false to be structural"),
    ] {
        let keyword = at.field(key);
        let is_there = match keyword.value {
            Value::Bool(set) => *set || key == "default",
            _ if key == "default" => keyword.is_set(),
            _ => !keyword.is_empty(),
        };
        if is_there {
            keyword.forbidden(run, why);
        }
    }
    let metadata = at.field("properties");
    let metadata = metadata.key("metadata");
    if metadata.is_set() {
        metadata.forbidden(run, "must not be specified in a nested context");
    }
}

/// Checks that every field named in a combined schema is also in the structure. `place` is the path of `structure`.
fn complete(at: &At<'_, '_>, structure: &Value, place: &At<'_, '_>, run: &mut Run<'_>) {
    let not = at.field("not");
    complete_combined(&not, Some(structure), place, run);
    for junctor in JUNCTORS {
        for schema in at.field(junctor).items() {
            complete_combined(&schema, Some(structure), place, run);
        }
    }
}

fn complete_combined(at: &At<'_, '_>, structure: Option<&Value>, place: &At<'_, '_>, run: &mut Run<'_>) {
    if at.tree().is_none() {
        return;
    }
    let Some(structure) = structure.filter(|structure| structure.is_object()) else {
        return place.required(run, format!("because it is defined in {}", at.path()));
    };
    complete(at, structure, place, run);
    complete_combined(&at.field("items"), structure.get("items"), &place.field("items"), run);
    let (properties, places) = (at.field("properties"), place.field("properties"));
    for (name, property) in sorted(&properties) {
        let of_property = structure.get("properties").and_then(|properties| properties.get(name));
        complete_combined(&property, of_property, &places.key(name), run);
    }
}
