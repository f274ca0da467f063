//! The columns of node.k8s.io: runtime classes.
//!
//! The columns are the handler and the age.

use keelson_meta::json::Value;
use keelson_tables::column::{AGE, Column, NAME};
use keelson_tables::field_value::Subject;
use keelson_tables::printer::Printer;

pub(crate) fn printer(kind: &str) -> Option<Printer> {
    (kind == "RuntimeClass").then(|| Printer::new(RUNTIME_CLASS, runtime_class))
}

const RUNTIME_CLASS: &[Column<'_>] = &[NAME, Column::text("Handler", ""), AGE];

fn runtime_class(of: Subject<'_>) -> Vec<Value> {
    vec![of.name(), of.at("handler").cell(), of.age()]
}
