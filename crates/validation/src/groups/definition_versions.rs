//! The parts of a version of a custom resource: schema, subresources, columns and the word that it is deprecated.
//!
//! Upstream lifts a part that all versions have alike to the definition as a whole, and judges it there.

use keelson_meta::go_format::is_print;
use keelson_meta::json::Value;

use crate::at::At;
use crate::shape::Run;

/// The parts that can be lifted: the name in a version, and the name in the whole.
const PARTS: [(&str, &str); 4] = [
    ("schema", "validation"),
    ("subresources", "subresources"),
    ("additionalPrinterColumns", "additionalPrinterColumns"),
    ("selectableFields", "selectableFields"),
];
const COLUMN_TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: [&str; 8] = ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];

/// The schema of a version; null for none.
pub(super) fn schema_of(version: &Value) -> &Value {
    version.get("schema").and_then(|schema| schema.get("openAPIV3Schema")).unwrap_or(&Value::Null)
}

fn is_shared(versions: &Value, part: &str) -> bool {
    let mut parts = versions.as_array().into_iter().flatten().map(|version| version.get(part));
    parts.next().is_some_and(|first| parts.all(|other| other == first))
}

/// The versions without what is lifted from them.
pub(super) fn hoisted(versions: &Value) -> Value {
    let mut lifted = versions.clone();
    for (part, _) in PARTS.iter().filter(|(part, _)| is_shared(versions, part)) {
        for version in lifted.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
            version.remove(part);
        }
    }
    lifted
}

/// The parts that versions do not have alike.
pub(super) fn own_parts(versions: &Value) -> Vec<&'static str> {
    PARTS.iter().map(|(part, _)| *part).filter(|part| !is_shared(versions, part)).collect()
}

/// What a version says for itself; `own` are the parts that versions do not have alike.
pub(super) fn version_parts(version: &At<'_, '_>, own: &[&'static str], run: &mut Run<'_>) {
    deprecation(version, run);
    for part in own {
        judge(part, &version.field(part), run);
    }
}

/// What all versions say.
pub(super) fn shared_parts(spec: &At<'_, '_>, run: &mut Run<'_>) {
    let versions = spec.field("versions");
    let first = versions.index(0);
    for (part, whole) in PARTS.iter().filter(|(part, _)| is_shared(versions.value, part)) {
        judge(part, &spec.field(whole).holding(first.field(part).value), run);
    }
}

fn judge(part: &str, at: &At<'_, '_>, run: &mut Run<'_>) {
    match part {
        "schema" => schema(&at.field("openAPIV3Schema"), Level::Root, run),
        "subresources" => scale(&at.field("scale"), run),
        "additionalPrinterColumns" => at.items().for_each(|each| column(&each, run)),
        _ => at.items().for_each(|each| selectable(&each, run)),
    }
}

fn selectable(at: &At<'_, '_>, run: &mut Run<'_>) {
    let path = at.field("jsonPath");
    if path.is_empty() {
        path.required(run, "");
    }
}

/// Where in a schema a schema stands.
#[derive(Clone, Copy, PartialEq)]
enum Level {
    Root,
    Field,
    Item,
}

fn schema(at: &At<'_, '_>, level: Level, run: &mut Run<'_>) {
    if at.tree().is_none() {
        return;
    }
    let (kind, items) = (at.field("type"), at.field("items"));
    if kind.text() == "array" && !items.is_set() {
        items.required(run, "must be specified");
    }
    let [embedded, number_or_text, open] =
        ["x-kubernetes-embedded-resource", "x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields"]
            .map(|name| at.field(name).is_true());
    schema(&items, Level::Item, run);
    let [properties, others] = ["properties", "additionalProperties"].map(|name| at.field(name));
    for (_, property) in properties.entries() {
        schema(&property, Level::Field, run);
    }
    schema(&others, Level::Field, run);
    if embedded && kind.text() != "object" {
        const OBJECT: &str = "must be object if x-kubernetes-embedded-resource is true";
        if kind.is_empty() { kind.required(run, OBJECT) } else { kind.invalid(run, kind.text(), OBJECT) }
    } else if kind.is_empty() && !number_or_text && !open {
        kind.required(
            run,
            match level {
                Level::Root => "must not be empty at the root",
                Level::Field => "must not be empty for specified object fields",
                Level::Item => "must not be empty for specified array items",
            },
        );
    }
    if level == Level::Root && !matches!(kind.text(), "" | "object") {
        kind.invalid(run, kind.text(), "must be object at the root");
    }
}

fn deprecation(version: &At<'_, '_>, run: &mut Run<'_>) {
    const MOST: usize = 256;
    let warning = version.field("deprecationWarning");
    let text = warning.text();
    if !warning.is_set() {
        return;
    }
    if !version.field("deprecated").is_true() {
        return warning.invalid(run, text, "can only be set for deprecated versions");
    }
    if text.len() > MOST {
        warning.invalid(run, text, format!("must be <= {MOST} characters long"));
    }
    if text.is_empty() {
        warning.invalid(run, text, "must not be an empty string");
    }
    if let Some((index, _)) = text.char_indices().find(|(_, c)| !is_print(*c)) {
        let detail =
            format!("must only contain printable UTF-8 characters; non-printable character found at index {index}");
        warning.invalid(run, text, detail);
    }
}

fn scale(at: &At<'_, '_>, run: &mut Run<'_>) {
    if !at.is_set() {
        return;
    }
    for (name, part) in [("specReplicasPath", ".spec"), ("statusReplicasPath", ".status")] {
        let path = at.field(name);
        if path.is_empty() {
            path.required(run, "");
        } else if !path.text().starts_with(&format!("{part}.")) {
            path.invalid(run, path.text(), format!("should be a json path under {part}"));
        }
    }
    let selector = at.field("labelSelectorPath");
    if !selector.is_empty() && ![".spec.", ".status."].iter().any(|part| selector.text().starts_with(part)) {
        selector.invalid(run, selector.text(), "should be a json path under either .spec or .status");
    }
}

fn column(at: &At<'_, '_>, run: &mut Run<'_>) {
    let [name, kind, format] = ["name", "type", "format"].map(|name| at.field(name));
    if name.is_empty() {
        name.required(run, "");
    }
    let types = || format!("must be one of {}", COLUMN_TYPES.join(","));
    if kind.is_empty() {
        kind.required(run, types());
    } else if !COLUMN_TYPES.contains(&kind.text()) {
        kind.invalid(run, kind.text(), types());
    }
    if !format.is_empty() && !COLUMN_FORMATS.contains(&format.text()) {
        format.invalid(run, format.text(), format!("must be one of {}", COLUMN_FORMATS.join(",")));
    }
    if at.field("jsonPath").is_empty() {
        at.field("JSONPath").required(run, "");
    }
}
