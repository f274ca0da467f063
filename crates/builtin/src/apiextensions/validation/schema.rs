//! Validation of the schema of a definition: the permitted keywords, and the order of all errors.
//!
//! The order is upstream's: structure (`structure`), defaults (`defaults`), keywords, and rules (`rules`). A fault of
//! the stored schema may stay if upstream permits that. An unchanged schema is not validated again.

use std::collections::HashSet;

use keelson_meta::GroupVersionKind;
use keelson_meta::json::{Map, Value};
use keelson_schema::{MAX_DEPTH, Schema, is_known_format};

use super::form::SCHEMA;
use super::rules::Rules;
use super::versions::schema_of;
use super::{defaults, structure};
use crate::validating::at::At;
use crate::validating::type_rules::Run;

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
/// The keywords permitted at the root of a schema with a status subresource. Such a schema applies to the status
/// separately.
const WITH_STATUS: [&str; 22] = [
    "Description",
    "Type",
    "Format",
    "Title",
    "Maximum",
    "ExclusiveMaximum",
    "Minimum",
    "ExclusiveMinimum",
    "MaxLength",
    "MinLength",
    "Pattern",
    "MaxItems",
    "MinItems",
    "UniqueItems",
    "MultipleOf",
    "Required",
    "Items",
    "Properties",
    "ExternalDocs",
    "Example",
    "XPreserveUnknownFields",
    "XValidations",
];

/// The stored definition.
#[derive(Clone, Copy)]
pub(super) struct StoredDefinition<'v> {
    versions: &'v [Value],
}

impl<'v> StoredDefinition<'v> {
    pub(super) fn new(run: &Run<'v>) -> Self {
        let versions = run.before.and_then(|before| before.get(&["spec", "versions"])).and_then(Value::as_array);
        Self { versions: versions.map_or(&[], Vec::as_slice) }
    }

    /// Returns true if a condition holds for a stored schema, so that the new one may have the same fault.
    pub(super) fn had(&self, is: impl Fn(&Value) -> bool) -> bool {
        self.versions.iter().any(|version| any(schema_of(version), &is, 0))
    }

    /// Returns true if a stored version had no schema, so that the new one may have none.
    pub(super) fn lacks_schema(&self) -> bool {
        self.versions.iter().any(|version| schema_of(version).is_null())
    }

    fn is_unchanged(&self, version: &str, schema: &Value) -> bool {
        let named = |before: &&Value| before.get("name").and_then(Value::as_str) == Some(version);
        self.versions.iter().find(named).is_some_and(|before| schema_of(before) == schema)
    }
}

/// Validates the schema of a version, or the shared schema. `has_status` is true if there is a status subresource.
pub(super) fn validate(
    at: &At<'_, '_>,
    has_status: bool,
    version: &str,
    before: &StoredDefinition<'_>,
    run: &mut Run<'_>,
) {
    if at.tree().is_none() {
        return;
    }
    let start = run.faults.len();
    if has_status {
        beside_status(at, run);
    }
    if before.is_unchanged(version, at.value) {
        return;
    }
    if is_too_deep(at.value, 0) {
        return at.refused(run, format!("must not have more than {MAX_DEPTH} schemas inside of each other"));
    }
    if at.field("nullable").is_true() {
        at.field("nullable").forbidden(run, "nullable cannot be true at the root");
    }
    let unsupported = structure::unsupported(at.value);
    let is_sound = unsupported.is_none() && structure::validate(at, run) && defaults::validate(at, before, run);
    let mut judging = SchemaValidation { before, rules: is_sound.then(Rules::default) };
    keywords(at, SchemaContext::ROOT, &mut judging, run);
    let rules = judging.rules.unwrap_or_default();
    rules.report(run);
    if let Some(why) = unsupported.filter(|_| run.faults.len() == start) {
        at.invalid(run, "", why);
    }
    rules.report_costs(at, run);
    if run.faults.len() == start
        && let Err(error) = Schema::structural(&GroupVersionKind::default(), at.value)
        && let Some(parent) = at.parent()
    {
        parent.invalid(run, "", format!("error building validator: {error}"));
    }
}

fn beside_status(at: &At<'_, '_>, run: &mut Run<'_>) {
    let kind = at.field("type");
    let stands = |key: &str| at.tree().is_some_and(|schema| schema.get(key).is_some_and(|value| !is_zero(value)));
    for (name, key) in SCHEMA.fields().filter(|(_, key)| stands(key)) {
        if name == "Type" && kind.text() != "object" {
            let why =
                "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
            return kind.invalid(run, kind.text(), why);
        }
        if !WITH_STATUS.contains(&name) {
            let allowed = WITH_STATUS.join(" ");
            let why = format!(
                "only [{allowed}] fields are allowed at the root of the schema if the status subresource is enabled"
            );
            debug_assert!(!key.is_empty(), "every field has a name");
            return at.invalid(run, SCHEMA.print(at.value), why);
        }
    }
}

/// Returns true for the zero value of a Go type.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}

/// All direct subschemas of a schema.
pub(super) fn below(schema: &Value) -> impl Iterator<Item = &Value> {
    let one = ["items", "additionalProperties", "additionalItems", "not"].into_iter().filter_map(|key| schema.get(key));
    let one = one.flat_map(|value| value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice));
    let lists = ["allOf", "anyOf", "oneOf"].into_iter().filter_map(|key| schema.get(key)?.as_array()).flatten();
    let maps = ["properties", "patternProperties", "definitions", "dependencies"]
        .into_iter()
        .filter_map(|key| schema.get(key)?.as_object())
        .flat_map(Map::values);
    one.chain(lists).chain(maps).filter(|schema| schema.is_object())
}

pub(super) fn is_too_deep(schema: &Value, depth: usize) -> bool {
    depth > MAX_DEPTH || below(schema).any(|schema| is_too_deep(schema, depth + 1))
}

/// Returns true if a condition holds for the schema or a subschema.
fn any(schema: &Value, is: &impl Fn(&Value) -> bool, depth: usize) -> bool {
    depth <= MAX_DEPTH && (is(schema) || below(schema).any(|schema| any(schema, is, depth + 1)))
}

/// The names of the unknown formats in a schema.
pub(crate) fn unknown_formats(schema: &Value) -> HashSet<&str> {
    let mut found = HashSet::new();
    gather_formats(schema, &mut found, 0);
    found
}

fn gather_formats<'v>(schema: &'v Value, found: &mut HashSet<&'v str>, depth: usize) {
    if depth > MAX_DEPTH {
        return;
    }
    let text = |key: &str| schema.get(key).and_then(Value::as_str).unwrap_or_default();
    let (of, format) = (text("type"), text("format"));
    if !of.is_empty() && !format.is_empty() && !is_known_format(of, format) {
        found.insert(format);
    }
    below(schema).for_each(|schema| gather_formats(schema, found, depth + 1));
}

/// The state while one schema is validated.
pub(super) struct SchemaValidation<'b> {
    before: &'b StoredDefinition<'b>,
    /// The errors and costs of rules; `None` if rules are not validated.
    rules: Option<Rules>,
}

/// The position of a subschema in the whole schema.
#[derive(Clone, Copy)]
pub(super) struct SchemaContext<'v, 'p> {
    is_root: bool,
    is_in_metadata: bool,
    no_default: Option<NoDefault<'v>>,
    /// An enclosing list or map whose items have no keys, so that old and new items cannot be correlated.
    pub(super) uncorrelated: Option<&'p At<'v, 'p>>,
    has_expressions: bool,
    /// The largest number of values here, if all enclosing lists and maps have limits.
    pub(super) count: Option<u64>,
}

/// The reason why a default is not permitted here.
#[derive(Clone, Copy)]
enum NoDefault<'v> {
    TopLevel(&'v str),
    InMetadata,
}

impl SchemaContext<'_, '_> {
    const ROOT: Self = Self {
        is_root: true,
        is_in_metadata: false,
        no_default: None,
        uncorrelated: None,
        has_expressions: true,
        count: Some(1),
    };

    /// Returns true if the values here are objects with their own metadata.
    pub(super) fn is_whole(&self, schema: &Value) -> bool {
        self.is_root || flag(schema, "x-kubernetes-embedded-resource")
    }

    /// The position of a schema in `allOf`, `anyOf`, `oneOf` or `not`.
    fn beside(self) -> Self {
        Self { is_root: false, has_expressions: false, ..self }
    }

    fn below(self, parent: &Value) -> Self {
        let most = |key: &str| {
            let most = parent.get(key)?;
            most.as_i64().map(|most| most.max(0).unsigned_abs())
        };
        let factor = match parent.get("type").and_then(Value::as_str) {
            Some("object") if parent.get("additionalProperties").is_some() => most("maxProperties"),
            Some("array") => most("maxItems"),
            _ => Some(1),
        };
        let count = self.count.zip(factor).map(|(count, factor)| count.saturating_mul(factor));
        Self { is_root: false, count, ..self }
    }
}

pub(super) fn flag(schema: &Value, key: &str) -> bool {
    schema.get(key).and_then(Value::as_bool).unwrap_or_default()
}

fn keywords<'v>(at: &At<'v, '_>, place: SchemaContext<'v, '_>, judging: &mut SchemaValidation<'_>, run: &mut Run<'_>) {
    if at.tree().is_none() || run.is_full() {
        return;
    }
    let start = run.faults.len();
    unsupported(at, &place, judging, run);
    if at.field("uniqueItems").is_true() {
        let why = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        at.field("uniqueItems").forbidden(run, why);
    }
    members(at, &place, judging, run);
    let beside = place.beside();
    keywords(&at.field("not"), beside, judging, run);
    for junctor in ["allOf", "oneOf", "anyOf"] {
        at.field(junctor).items().for_each(|schema| keywords(&schema, beside, judging, run));
    }
    for (_, schema) in sorted(&at.field("definitions")) {
        keywords(&schema, beside, judging, run);
    }
    let items = at.field("items");
    let mut of_items = place.below(at.value);
    if at.field("x-kubernetes-list-type").text() != "map" {
        of_items.uncorrelated = of_items.uncorrelated.or(Some(at));
    }
    keywords(&items, of_items, judging, run);
    items.items().for_each(|schema| keywords(&schema, of_items, judging, run));
    for (_, schema) in sorted(&at.field("dependencies")) {
        keywords(&schema, beside, judging, run);
    }
    extensions(at, judging, run);
    let are_sound = super::rules::stated(at, run) && run.faults.len() == start;
    if let Some(rules) = judging.rules.as_mut().filter(|_| are_sound && place.has_expressions) {
        rules.validate(at, &place);
    }
}

/// The entries of a map, sorted by name.
pub(super) fn sorted<'v, 'p>(at: &'p At<'v, '_>) -> Vec<(&'v str, At<'v, 'p>)> {
    let mut entries: Vec<_> = at.entries().collect();
    entries.sort_unstable_by_key(|(name, _)| *name);
    entries
}

fn members<'v>(at: &At<'v, '_>, place: &SchemaContext<'v, '_>, judging: &mut SchemaValidation<'_>, run: &mut Run<'_>) {
    let (properties, others) = (at.field("properties"), at.field("additionalProperties"));
    if !properties.is_empty() && others.is_set() && !others.is_true() {
        others.forbidden(run, "additionalProperties and properties are mutual exclusive");
    }
    let mut of_others = place.below(at.value);
    if place.is_in_metadata {
        of_others.no_default = Some(NoDefault::InMetadata);
    }
    keywords(&others, of_others, judging, run);
    let map_type = at.field("x-kubernetes-map-type");
    for (name, property) in sorted(&properties) {
        let mut of_property = place.below(at.value);
        if !matches!(map_type.text(), "" | "granular" | "atomic") {
            of_property.uncorrelated = of_property.uncorrelated.or(Some(at));
        }
        if place.is_whole(at.value) && matches!(name, "metadata" | "kind" | "apiVersion") {
            of_property.is_in_metadata = true;
            if place.is_root {
                of_property.no_default = Some(NoDefault::TopLevel(name));
            }
        }
        keywords(&property, of_property, judging, run);
    }
}

/// Reports keywords and values that definitions may not have.
fn unsupported(at: &At<'_, '_>, place: &SchemaContext<'_, '_>, judging: &SchemaValidation<'_>, run: &mut Run<'_>) {
    let is_unknown = |schema: &Value| {
        let of = schema.get("type").and_then(Value::as_str).unwrap_or_default();
        !of.is_empty() && !TYPES.contains(&of)
    };
    let of = at.field("type");
    if is_unknown(at.value) && !judging.before.had(is_unknown) {
        of.not_supported(run, of.text(), &TYPES);
    }
    match place.no_default {
        Some(reason) if at.field("default").is_set() => {
            let why = match reason {
                NoDefault::TopLevel(property) => format!("must not be set in top-level {property}"),
                NoDefault::InMetadata => {
                    "must not be set inside additionalProperties applying to object metadata".to_owned()
                }
            };
            at.field("default").forbidden(run, why);
        }
        _ => {}
    }
    for key in ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"] {
        let keyword = at.field(key);
        let is_there = if key == "additionalItems" { keyword.is_set() } else { !keyword.is_empty() };
        if is_there {
            keyword.forbidden(run, format!("{key} is not supported"));
        }
    }
    if of.text() == "null" {
        of.forbidden(run, "type cannot be set to null, use nullable as an alternative");
    }
    if !at.field("items").list().is_empty() {
        at.field("items").forbidden(run, "items must be a schema object and not an array");
    }
    let embedded = at.field("x-kubernetes-embedded-resource");
    if place.is_in_metadata && embedded.is_true() {
        embedded.forbidden(run, "must not be used inside of resource meta");
    }
}

fn extensions(at: &At<'_, '_>, judging: &SchemaValidation<'_>, run: &mut Run<'_>) {
    let preserves = at.field("x-kubernetes-preserve-unknown-fields");
    if preserves.value == &Value::Bool(false) {
        preserves.invalid(run, false, "must be true or undefined");
    }
    let map_type = at.field("x-kubernetes-map-type");
    if map_type.is_set() {
        of_type(at, "object", "must be object if x-kubernetes-map-type is specified", run);
        if !matches!(map_type.text(), "atomic" | "granular") {
            map_type.not_supported(run, map_type.text(), &["atomic", "granular"]);
        }
    }
    let list_type = at.field("x-kubernetes-list-type");
    if list_type.is_set() {
        if of_type(at, "array", "must be array if x-kubernetes-list-type is specified", run)
            && has_atoms_missing(at.value)
            && !judging.before.had(has_atoms_missing)
        {
            items_of_set(at, run);
        }
        if !matches!(list_type.text(), "atomic" | "set" | "map") {
            list_type.not_supported(run, list_type.text(), &["atomic", "set", "map"]);
        }
    }
    let keys = at.field("x-kubernetes-list-map-keys");
    if !keys.is_empty() && list_type.text() != "map" {
        const MAP: &str = "must be map if x-kubernetes-list-map-keys is non-empty";
        if list_type.is_set() { list_type.invalid(run, list_type.text(), MAP) } else { list_type.required(run, MAP) }
    }
    if list_type.text() == "map" {
        list_of_type_map(at, run);
    }
    let told_apart = has_items_missing(at.value);
    if told_apart && !judging.before.had(has_items_missing) {
        list_type_map_items(at, run);
    }
}

/// Checks that the schema has the type that an extension requires.
fn of_type(at: &At<'_, '_>, wanted: &str, why: &str, run: &mut Run<'_>) -> bool {
    let of = at.field("type");
    match of.text() {
        found if found == wanted => return true,
        "" => of.required(run, why),
        found => of.invalid(run, found, why),
    }
    false
}

fn text<'v>(schema: Option<&'v Value>, key: &str) -> &'v str {
    schema.and_then(|schema| schema.get(key)).and_then(Value::as_str).unwrap_or_default()
}

/// Returns true if items of a set are not atomic, so that parts of them could be changed.
fn has_atoms_missing(schema: &Value) -> bool {
    let items = schema.get("items");
    text(Some(schema), "x-kubernetes-list-type") == "set"
        && match text(items, "type") {
            "array" => !matches!(text(items, "x-kubernetes-list-type"), "" | "atomic"),
            "object" => text(items, "x-kubernetes-map-type") != "atomic",
            _ => false,
        }
}

fn items_of_set(at: &At<'_, '_>, run: &mut Run<'_>) {
    const ATOMIC: &str = "must be atomic as item of a list with x-kubernetes-list-type=set";
    let items = at.field("items");
    let list_type = items.field("x-kubernetes-list-type");
    if items.field("type").text() == "array" {
        list_type.invalid(run, list_type.text(), ATOMIC);
    } else {
        // Upstream prints the list type in the error about the map type.
        items.field("x-kubernetes-map-type").invalid(run, list_type.shown(), ATOMIC);
    }
}

fn list_of_type_map(at: &At<'_, '_>, run: &mut Run<'_>) {
    let (items, keys) = (at.field("items"), at.field("x-kubernetes-list-map-keys"));
    if keys.is_empty() {
        keys.required(run, "must not be empty if x-kubernetes-list-type is map");
    }
    if !items.is_set() {
        return items.required(run, "must have a schema if x-kubernetes-list-type is map");
    }
    if items.tree().is_none() {
        return items.refused(run, "must only have a single schema if x-kubernetes-list-type is map");
    }
    let of = items.field("type");
    if of.text() != "object" {
        return of.invalid(run, of.text(), "must be object if parent array's x-kubernetes-list-type is map");
    }
    let mut seen = HashSet::new();
    let properties = items.field("properties");
    for key in keys.items() {
        let property = properties.key(key.text());
        if !property.is_set() {
            keys.invalid(run, keys.shown(), "entries must all be names of item properties");
        } else if matches!(property.field("type").text(), "array" | "object") {
            let why = "must be a scalar type if parent array's x-kubernetes-list-type is map";
            property.field("type").invalid(run, of.text(), why);
        }
        if !seen.insert(key.text()) {
            keys.invalid(run, keys.shown(), "must not contain duplicate entries");
        }
    }
}

/// Returns true if items of a set or map may be null, or their keys null or absent.
fn has_items_missing(schema: &Value) -> bool {
    let Some(items) = schema.get("items").filter(|items| items.is_object()) else { return false };
    match text(Some(schema), "x-kubernetes-list-type") {
        "set" => flag(items, "nullable"),
        "map" => {
            let keys = schema.get("x-kubernetes-list-map-keys").and_then(Value::as_array).into_iter().flatten();
            let mut properties =
                keys.filter_map(|key| Some((key.as_str()?, items.get("properties")?.get(key.as_str()?)?)));
            flag(items, "nullable")
                || properties.any(|(key, property)| flag(property, "nullable") || may_be_missing(items, key, property))
        }
        _ => false,
    }
}

fn may_be_missing(items: &Value, key: &str, property: &Value) -> bool {
    let required = items.get("required").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    !required.iter().any(|name| name.as_str() == Some(key)) && property.get("default").is_none()
}

fn list_type_map_items(at: &At<'_, '_>, run: &mut Run<'_>) {
    let (items, list_type) = (at.field("items"), at.field("x-kubernetes-list-type"));
    let nullable = items.field("nullable");
    if nullable.is_true() {
        nullable.forbidden(run, format!("cannot be nullable when x-kubernetes-list-type is {}", list_type.text()));
    }
    if list_type.text() != "map" {
        return;
    }
    let properties = items.field("properties");
    for key in at.field("x-kubernetes-list-map-keys").items() {
        let property = properties.key(key.text());
        if !property.is_set() {
            continue;
        }
        if may_be_missing(items.value, key.text(), property.value) {
            let why =
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            property.field("default").required(run, why);
        }
        if property.field("nullable").is_true() {
            let why = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            property.field("nullable").forbidden(run, why);
        }
    }
}
