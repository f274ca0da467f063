//! The columns of scheduling.k8s.io: priority classes.
//!
//! The columns show fields of the object unchanged.

use keelson_meta::json::Value;
use keelson_tables::column::{AGE, Column, NAME};
use keelson_tables::field_value::Subject;
use keelson_tables::printer::Printer;

use crate::scheduling::column_docs as docs;

pub(crate) fn printer(kind: &str) -> Option<Printer> {
    (kind == "PriorityClass").then(|| Printer::new(PRIORITY_CLASS, priority_class))
}

const PRIORITY_CLASS: &[Column<'_>] = &[
    NAME,
    Column::integer("Value", docs::PRIORITY_CLASS_VALUE),
    Column::boolean("Global-Default", docs::PRIORITY_CLASS_GLOBAL_DEFAULT),
    AGE,
    Column::text("PreemptionPolicy", docs::PRIORITY_CLASS_PREEMPTION_POLICY),
];

fn priority_class(of: Subject<'_>) -> Vec<Value> {
    vec![
        of.name(),
        of.at("value").int_cell(),
        of.at("globalDefault").flag().into(),
        of.age(),
        of.at("preemptionPolicy").cell(),
    ]
}
