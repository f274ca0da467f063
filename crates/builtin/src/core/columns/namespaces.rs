//! The columns of namespaces.
//!
//! The phase shows that a namespace is being deleted.

use keelson_meta::json::Value;
use keelson_tables::column::{AGE, Column, NAME};
use keelson_tables::field_value::Subject;
use keelson_tables::printer::Printer;

pub(super) const NAMESPACE: Printer = Printer::new(NAMESPACE_COLUMNS, namespace);

const NAMESPACE_COLUMNS: &[Column<'_>] = &[NAME, Column::text("Status", "The status of the namespace"), AGE];

fn namespace(of: Subject<'_>) -> Vec<Value> {
    vec![of.name(), of.at("status").at("phase").cell(), of.age()]
}
