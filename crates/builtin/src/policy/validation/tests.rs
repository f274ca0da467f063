//! Tests of pod disruption budgets.
//!
//! A budget is a number or a percentage.

use keelson_meta::json::json;

use crate::validating::tests::{check_new, selector};

#[test]
fn budgets() {
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"},
        "spec": {"minAvailable": 1, "selector": selector()}});
    check_new(
        &budget,
        &[("/spec/minAvailable", json!("101%"))],
        &["spec.minAvailable: Invalid value: \"101%\": must not be greater than 100%"],
    );
    check_new(
        &budget,
        &[("/spec/minAvailable", json!("some"))],
        &[
            "spec.minAvailable: Invalid value: \"some\": a valid percent string must be a numeric string followed by an ending \
           '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')",
        ],
    );
}
