//! Validation of the parts of a version: subresources, columns, selectable fields and the deprecation. Schemas are
//! validated in `schema`.
//!
//! Upstream moves a part that all versions share to the definition itself, and validates it there.

use std::collections::HashSet;

use keelson_meta::field_error::FieldError;
use keelson_meta::go_format::is_print;
use keelson_meta::json::Value;
use keelson_schema::field_path;

use super::schema::{self, StoredDefinition};
use crate::validating::at::At;
use crate::validating::type_rules::Run;

/// The parts that can be shared.
const PARTS: [&str; 4] = ["schema", "subresources", "additionalPrinterColumns", "selectableFields"];
const COLUMN_TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: [&str; 8] = ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];

/// The error for a text that is not a path.
const NO_PATH: &str = "must be a simple json path starting with .";

/// The schema of a version; null if it has none.
pub(super) fn schema_of(version: &Value) -> &Value {
    version.get("schema").and_then(|schema| schema.get("openAPIV3Schema")).unwrap_or(&Value::Null)
}

/// Returns true if all versions have the same value in this part. Selectable fields count as shared only together with
/// the schema. Upstream moves them alone too, and then refuses them because the schema is missing.
fn is_shared(versions: &Value, part: &str) -> bool {
    if part == "selectableFields" && !is_shared(versions, "schema") {
        return false;
    }
    let mut parts = versions.as_array().into_iter().flatten().map(|version| version.get(part));
    parts.next().is_some_and(|first| parts.all(|other| other == first))
}

/// The versions without the shared parts.
pub(super) fn hoisted(versions: &Value) -> Value {
    let mut lifted = versions.clone();
    for part in PARTS.into_iter().filter(|part| is_shared(versions, part)) {
        for version in lifted.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
            version.remove(part);
        }
    }
    lifted
}

/// The parts that differ between versions.
pub(super) fn own_parts(versions: &Value) -> Vec<&'static str> {
    PARTS.into_iter().filter(|part| !is_shared(versions, part)).collect()
}

/// Validates the parts of one version; `own` has the parts that differ between versions.
pub(super) fn version_parts(
    version: &At<'_, '_>,
    own: &[&'static str],
    before: &StoredDefinition<'_>,
    run: &mut Run<'_>,
) {
    deprecation(version, run);
    let is_own = |part: &str| own.contains(&part);
    if is_own("schema") {
        let has_status = has_status(version.value);
        schema::validate(
            &version.field("schema").field("openAPIV3Schema"),
            has_status,
            version.field("name").text(),
            before,
            run,
        );
    }
    if is_own("subresources") {
        scale(&version.field("subresources").field("scale"), run);
    }
    if is_own("additionalPrinterColumns") {
        version.field("additionalPrinterColumns").items().for_each(|each| column(&each, run));
    }
    let fields = version.field("selectableFields");
    if is_own("selectableFields") && !fields.is_empty() {
        if is_own("schema") && !schema_of(version.value).is_null() {
            selectable(&fields, schema_of(version.value), run);
        } else {
            fields.invalid(run, "", "may only be set when `version.schema.openAPIV3Schema` is not included");
        }
    }
}

/// Validates the parts that all versions share.
pub(super) fn shared_parts(spec: &At<'_, '_>, run: &mut Run<'_>) {
    let versions = spec.field("versions");
    let first = versions.index(0);
    let shared = |part: &'static str| is_shared(versions.value, part).then(|| first.field(part).value);
    let schemas = shared("schema");
    if let Some(held) = schemas {
        let has_status = versions.list().iter().any(has_status);
        let before = StoredDefinition::new(run);
        let at = spec.field("validation");
        let at = at.holding(held);
        schema::validate(&at.field("openAPIV3Schema"), has_status, first.field("name").text(), &before, run);
    }
    if let Some(held) = shared("subresources") {
        scale(&spec.field("subresources").holding(held).field("scale"), run);
    }
    if let Some(held) = shared("additionalPrinterColumns") {
        spec.field("additionalPrinterColumns").holding(held).items().for_each(|each| column(&each, run));
    }
    if let Some(held) = shared("selectableFields") {
        let at = spec.field("selectableFields");
        let fields = at.holding(held);
        match schema_of(first.value) {
            _ if fields.is_empty() => {}
            schema if !schema.is_null() => selectable(&fields, schema, run),
            _ => fields.invalid(run, "", "may only be set when `validations.schema` is included"),
        }
    }
}

fn has_status(version: &Value) -> bool {
    let status = version.get("subresources").and_then(|subresources| subresources.get("status"));
    status.is_some_and(|status| !status.is_null())
}

/// Validates the selectable fields.
fn selectable(fields: &At<'_, '_>, schema: &Value, run: &mut Run<'_>) {
    const MOST: usize = 8;
    const OF_TYPE: &str = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats \
                           are allowed.";
    let mut seen = HashSet::new();
    for field in fields.items() {
        let path = field.field("jsonPath");
        if path.is_empty() {
            path.required(run, "");
            continue;
        }
        let found = match field_path::resolve(path.text(), schema, false) {
            Ok(found) => found,
            Err(why) => {
                path.invalid(run, path.text(), format!("is an invalid path: {why}"));
                continue;
            }
        };
        if found.root == "metadata" {
            path.invalid(run, path.text(), "must not point to fields in metadata");
        }
        let of = found.schema.get("type").and_then(Value::as_str).unwrap_or_default();
        if !matches!(of, "string" | "boolean" | "integer") {
            path.invalid(run, path.text(), OF_TYPE);
        }
        if !seen.insert(found.path) {
            path.duplicate(run, path.text());
        }
    }
    if seen.len() > MOST {
        run.report(|| FieldError::too_many(fields.path(), seen.len(), MOST));
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
        } else if !path.text().starts_with('.') {
            path.invalid(run, path.text(), NO_PATH);
        } else if !path.text().starts_with(&format!("{part}.")) {
            path.invalid(run, path.text(), format!("should be a json path under {part}"));
        }
    }
    let selector = at.field("labelSelectorPath");
    if !selector.is_empty() && !selector.text().starts_with('.') {
        selector.invalid(run, selector.text(), NO_PATH);
    } else if !selector.is_empty() && ![".spec.", ".status."].iter().any(|part| selector.text().starts_with(part)) {
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
    let path = at.field("jsonPath");
    if path.is_empty() {
        path.called("JSONPath").required(run, "");
    } else if !path.text().starts_with('.') {
        path.called("JSONPath").invalid(run, path.text(), NO_PATH);
    }
}
