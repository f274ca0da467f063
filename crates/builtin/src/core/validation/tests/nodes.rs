//! Tests of nodes.
//!
//! Updates test the fields that cannot change.

use keelson_meta::json::json;

use crate::validating::tests::{check_new, check_update};

#[test]
fn taints_are_validated_and_the_provider_id_is_immutable() {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "spec": {"providerID": "a"}});
    check_new(
        &node,
        &[("/spec/taints", json!([{"key": "a", "effect": "Never"}, {"key": "a", "effect": "NoSchedule"}]))],
        &[
            "metadata.taints[0].effect: Unsupported value: \"Never\": supported values: \"NoSchedule\", \"PreferNoSchedule\", \
           \"NoExecute\"",
        ],
    );
    check_update(
        &node,
        &[("/spec/providerID", json!("b"))],
        &["spec.providerID: Forbidden: node updates may not change providerID except from \"\" to valid"],
    );
}
