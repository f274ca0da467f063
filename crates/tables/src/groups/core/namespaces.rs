//! Namespaces.
//!
//! The phase says whether one is being emptied.

use keelson_meta::json::Value;

use crate::column::{AGE, Column, NAME};
use crate::field_value::Subject;
use crate::printer::Printer;

pub(super) const NAMESPACE: Printer = Printer::new(NAMESPACE_COLUMNS, namespace);

const NAMESPACE_COLUMNS: &[Column<'_>] = &[NAME, Column::text("Status", "The status of the namespace"), AGE];

fn namespace(of: Subject<'_>) -> Vec<Value> {
    vec![of.name(), of.at("status").at("phase").cell(), of.age()]
}
