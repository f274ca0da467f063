//! storagemigration.k8s.io: storage version migrations.
//!
//! The columns are fields of the object, shown as they are.

use keelson_meta::json::Value;

use crate::column::{Column, UNMARKED_NAME};
use crate::part::{Part, Subject};
use crate::printer::Printer;
use crate::text::with_group;

pub(super) fn printer(kind: &str) -> Option<Printer> {
    (kind == "StorageVersionMigration").then(|| Printer::new(MIGRATION, migration))
}

const MIGRATION: &[Column<'_>] = &[
    UNMARKED_NAME,
    Column::text("Resource", "GroupResource to migrate"),
    Column::text("Status", "Status of the migration"),
];

fn migration(of: Subject<'_>) -> Vec<Value> {
    let resource = of.at("spec").at("resource");
    vec![
        of.name(),
        with_group(resource.at("resource").text(), resource.at("group").text()).into(),
        state(of.at("status").at("conditions")).into(),
    ]
}

/// The first condition that holds and says how far the migration is.
fn state<'a>(conditions: Part<'a>) -> &'a str {
    let mut holding =
        conditions.items().filter(|condition| condition.holds()).map(|condition| condition.at("type").text());
    holding.find(|kind| ["Running", "Failed", "Succeeded"].contains(kind)).unwrap_or("Unknown")
}
