//! Tests of priority classes.
//!
//! Updates cannot change the value.

use keelson_meta::json::json;

use crate::validating::tests::{check_new, check_update};

#[test]
fn priority_classes_have_a_value_for_good() {
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "c"}, "value": 5,
        "preemptionPolicy": "Never"});
    check_new(
        &class,
        &[("/value", json!(1_000_000_001)), ("/preemptionPolicy", json!("Maybe"))],
        &[
            "value: Forbidden: maximum allowed value of a user defined priority is 1000000000",
            "preemptionPolicy: Unsupported value: \"Maybe\": supported values: \"PreemptLowerPriority\", \"Never\"",
        ],
    );
    let reserved =
        "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only.";
    check_new(
        &class,
        &[("/metadata/name", json!("system-x"))],
        &[&format!("{reserved} error: system-x is not a known system priority class")],
    );
    check_new(
        &class,
        &[("/metadata/name", json!("system-node-critical"))],
        &[&format!("{reserved} error: value of system-node-critical PriorityClass must be 2000001000")],
    );
    check_new(&class, &[("/metadata/name", json!("system-node-critical")), ("/value", json!(2_000_001_000))], &[]);
    check_update(
        &class,
        &[("/value", json!(6)), ("/preemptionPolicy", json!("PreemptLowerPriority"))],
        &[
            "value: Forbidden: may not be changed in an update.",
            "preemptionPolicy: Invalid value: \"PreemptLowerPriority\": field is immutable",
        ],
    );
}
