//! Tests of storage version migrations.
//!
//! The spec cannot change, and conditions cannot be revoked.

use keelson_meta::json::json;

use crate::validating::tests::{change, check_below, check_new, check_update};

#[test]
fn migrations_of_storage_versions() {
    let condition = |kind: &str, status: &str| json!({"type": kind, "status": status, "reason": "R", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let migration = json!({"apiVersion": "storagemigration.k8s.io/v1beta1", "kind": "StorageVersionMigration",
        "metadata": {"name": "m"}, "spec": {"resource": {"group": "apps", "resource": "deployments"}},
        "status": {"resourceVersion": "12", "conditions": [condition("Running", "True")]}});
    check_new(
        &migration,
        &[("/spec/resource/resource", json!(""))],
        &["spec.resource.resource: Required value: resource is required to be set"],
    );
    check_update(
        &migration,
        &[("/spec/resource/group", json!("batch"))],
        &["spec: Invalid value: {\"Resource\":{\"group\":\"batch\",\"resource\":\"deployments\"}}: field is immutable"],
    );
    let status = Some("status");
    check_below(status, &migration, &[("/status/conditions/-", condition("StorageVersionMigrated", "False"))], &[]);
    check_below(
        status,
        &migration,
        &[("/status/resourceVersion", json!("x1"))],
        &[
            "status.resourceVersion: Invalid value: \"x1\": resource version is not well formed: x1",
            "status.resourceVersion: Invalid value: \"x1\": field is immutable",
        ],
    );
    check_below(
        status,
        &migration,
        &[("/status/conditions/0", json!({"type": "Running", "status": "Perhaps", "reason": "a b"}))],
        &[
            "status.conditions[0].status: Unsupported value: \"Perhaps\": supported values: \"False\", \"True\", \"Unknown\"",
            "status.conditions[0].lastTransitionTime: Required value",
            "status.conditions[0].reason: Invalid value: \"a b\": a condition reason must start with alphabetic character, \
             optionally followed by a string of alphanumeric characters or '_,:', and must end with an alphanumeric \
             character or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', \
             regex used for validation is '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')",
        ],
    );
    let done = json!([condition("Succeeded", "True")]);
    let finished = change(&migration, &[("/status/conditions", done)]);
    let text = serde_json::to_string(&json!([condition("Succeeded", "False")])).unwrap();
    check_below(
        status,
        &finished,
        &[("/status/conditions/0/status", json!("False"))],
        &[&format!(
            "status.conditions: Invalid value: {text}: Success condition cannot be set to false once it is true"
        )],
    );
}
