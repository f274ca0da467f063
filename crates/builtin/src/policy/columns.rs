//! The columns of policy: pod disruption budgets.
//!
//! Like upstream, an unset value of a budget is shown as `N/A`.

use keelson_meta::json::Value;
use keelson_tables::column::{AGE, Column, NAME};
use keelson_tables::field_value::{FieldValue, Subject};
use keelson_tables::printer::Printer;

pub(crate) fn printer(kind: &str) -> Option<Printer> {
    (kind == "PodDisruptionBudget").then(|| Printer::new(DISRUPTION_BUDGET, disruption_budget))
}

const DISRUPTION_BUDGET: &[Column<'_>] = &[
    NAME,
    Column::text("Min Available", "The minimum number of pods that must be available."),
    Column::text("Max Unavailable", "The maximum number of pods that may be unavailable."),
    Column::integer("Allowed Disruptions", "Calculated number of pods that may be disrupted at this time."),
    AGE,
];

fn disruption_budget(of: Subject<'_>) -> Vec<Value> {
    let spec = of.at("spec");
    vec![
        of.name(),
        bound(spec.at("minAvailable")),
        bound(spec.at("maxUnavailable")),
        of.at("status").at("disruptionsAllowed").int_cell(),
        of.age(),
    ]
}

/// A number or a percentage.
fn bound(bound: FieldValue<'_>) -> Value {
    bound.printed().map_or_else(|| "N/A".into(), Value::from)
}
