//! The columns of resource quotas: used and permitted amounts. Limit ranges have the default columns.
//!
//! Resources are sorted by name.

use keelson_meta::json::Value;
use keelson_tables::column::{AGE, Column, NAME};
use keelson_tables::field_value::Subject;
use keelson_tables::printer::Printer;
use keelson_tables::text::join;

use crate::core::column_docs as docs;

pub(super) const RESOURCE_QUOTA: Printer = Printer::new(RESOURCE_QUOTA_COLUMNS, resource_quota);

const RESOURCE_QUOTA_COLUMNS: &[Column<'_>] = &[
    NAME,
    Column::text("Request", "Request represents a minimum amount of cpu/memory that a container may consume."),
    Column::text("Limit", docs::RESOURCE_QUOTA_LIMIT),
    AGE,
];

/// The used and permitted amount of each resource. Limits are in a column of their own.
fn resource_quota(of: Subject<'_>) -> Vec<Value> {
    let status = of.at("status");
    let mut hard: Vec<_> = status.at("hard").entries().collect();
    hard.sort_unstable_by_key(|(resource, _)| *resource);
    let uses = |limits: bool| {
        let of_sort = hard.iter().filter(|(resource, _)| resource.starts_with("limits.") == limits);
        let used = |resource: &str| status.at("used").at(resource).quantity();
        join(of_sort.map(|(resource, most)| format!("{resource}: {}/{}", used(resource), most.quantity())), ", ")
    };
    vec![of.name(), uses(false).into(), uses(true).into(), of.age()]
}
