//! Tests of runtime classes.
//!
//! The handler cannot change.

use keelson_meta::json::json;

use crate::validating::tests::{check_new, check_update};

#[test]
fn runtime_classes() {
    let class =
        json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "c"}, "handler": "runc"});
    check_new(
        &class,
        &[
            ("/overhead", json!({"podFixed": {"widgets": "1"}})),
            ("/scheduling", json!({"tolerations": [{"key": "a", "operator": "Exists", "effect": "Never"}]})),
        ],
        &[
            "overhead.limits[widgets]: Invalid value: \"widgets\": must be a standard resource type or fully qualified",
            "overhead.limits[widgets]: Invalid value: \"widgets\": must be a standard resource for containers",
            "scheduling.tolerations[0].effect: Unsupported value: \"Never\": supported values: \"NoSchedule\", \
             \"PreferNoSchedule\", \"NoExecute\"",
        ],
    );
    check_update(&class, &[("/handler", json!("kata"))], &["handler: Invalid value: \"kata\": field is immutable"]);
}
