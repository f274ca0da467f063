//! The columns of storagemigration.k8s.io: storage version migrations.
//!
//! The columns show fields of the object unchanged. The progress is in annotations, which are not shown.

use keelson_meta::json::Value;
use keelson_tables::column::{AGE, Column, UNMARKED_NAME};
use keelson_tables::field_value::{FieldValue, Subject};
use keelson_tables::printer::Printer;
use keelson_tables::text::with_group;

pub(crate) fn printer(kind: &str) -> Option<Printer> {
    (kind == "StorageVersionMigration").then(|| Printer::new(MIGRATION, migration))
}

const MIGRATION: &[Column<'_>] = &[
    UNMARKED_NAME,
    Column::text("Resource", "GroupResource to migrate"),
    Column::text("Status", "Status of the migration"),
    Column::text("Done", "The number of these objects that have been rewritten"),
    Column::text("Total", "The number of objects found for rewriting"),
    AGE,
];

fn migration(of: Subject<'_>) -> Vec<Value> {
    let resource = of.at("spec").at("resource");
    let progress = of.at("metadata").at("annotations");
    vec![
        of.name(),
        with_group(resource.at("resource").text(), resource.at("group").text()).into(),
        state(of.at("status").at("conditions")).into(),
        progress.at("keelson.io/objects-done").text().into(),
        progress.at("keelson.io/objects-total").text().into(),
        of.age(),
    ]
}

/// The type of the first condition that is true and shows the state of the migration.
fn state<'a>(conditions: FieldValue<'a>) -> &'a str {
    let mut holding =
        conditions.items().filter(|condition| condition.holds()).map(|condition| condition.at("type").text());
    holding.find(|kind| ["Running", "Failed", "Succeeded"].contains(kind)).unwrap_or("Unknown")
}
