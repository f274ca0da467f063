//! The columns of definitions: scope, served versions and names.
//!
//! Kubernetes has them since 1.37. Older releases show the name and the creation time.

use keelson_meta::clock::rfc3339;
use keelson_meta::json::Value;
use keelson_tables::column::{CREATED_AT, Column, NAME};
use keelson_tables::field_value::{FieldValue, Subject};
use keelson_tables::printer::Printer;

pub(crate) fn printer(kind: &str) -> Option<Printer> {
    (kind == "CustomResourceDefinition").then(|| Printer::new(DEFINITION, definition))
}

const DEFINITION: &[Column<'_>] = &[
    NAME,
    Column::text("Scope", "Cluster/Namespaced"),
    Column::text("Versions", "Served versions"),
    CREATED_AT,
    Column::text("Group", "API group").wide(),
    Column::text("Kind", "CustomResource kind").wide(),
    Column::text("ShortNames", "Short names").wide(),
    Column::boolean("Established", "Established status").wide(),
];

fn definition(of: Subject<'_>) -> Vec<Value> {
    let (spec, names) = (of.at("spec"), of.at("spec").at("names"));
    let mut versions: Vec<String> = spec
        .at("versions")
        .items()
        .filter(|version| version.at("served").flag())
        .map(|version| {
            let mark = if version.at("storage").flag() { "(storage)" } else { "" };
            format!("{}{mark}", version.at("name").text())
        })
        .collect();
    versions.sort_unstable();
    let short_names: Vec<&str> = names.at("shortNames").items().map(FieldValue::text).collect();
    let created = of.at("metadata").at("creationTimestamp").time().map(rfc3339).unwrap_or_default();
    vec![
        of.name(),
        spec.at("scope").cell(),
        versions.join(",").into(),
        created.into(),
        spec.at("group").cell(),
        names.at("kind").cell(),
        short_names.join(",").into(),
        of.at("status").at("conditions").condition("Established").holds().into(),
    ]
}
