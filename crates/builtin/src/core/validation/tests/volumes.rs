//! Tests of persistent volumes and claims.
//!
//! Each source is tested, and the fields that cannot change once a claim is bound.

use keelson_meta::json::{Value, json};

use crate::validating::tests::{change, check_new, check_update};

fn volume() -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"}, "spec": {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "persistentVolumeReclaimPolicy": "Retain",
        "volumeMode": "Filesystem", "hostPath": {"path": "/tmp", "type": ""}}})
}

fn claim() -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "volumeMode": "Filesystem"},
        "status": {"phase": "Pending"}})
}

#[test]
fn volumes() {
    let check = |changes: &[(&str, Value)], expected: &[&str]| check_new(&volume(), changes, expected);
    check(
        &[("/spec/capacity/storage", json!("0")), ("/spec/accessModes", json!(["Sometimes"]))],
        &[
            "spec.accessModes: Unsupported value: \"Sometimes\": supported values: \"ReadOnlyMany\", \"ReadWriteMany\", \
             \"ReadWriteOnce\", \"ReadWriteOncePod\"",
            "spec.capacity[storage]: Invalid value: \"0\": must be greater than zero",
        ],
    );
    check(&[("/spec/hostPath", Value::Null)], &["spec: Required value: must specify a volume type"]);
    check(
        &[("/spec/hostPath", Value::Null), ("/spec/local", json!({"path": "/x"}))],
        &["spec.nodeAffinity: Required value: Local volume requires node affinity"],
    );
    check_update(
        &volume(),
        &[("/spec/hostPath/path", json!("/other"))],
        &["spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable after creation\n\
           - hostPath.path: \"/tmp\"\n+ hostPath.path: \"/other\"\n"],
    );
    check_update(
        &volume(),
        &[("/spec/volumeMode", json!("Block"))],
        &["volumeMode: Invalid value: \"Block\": field is immutable"],
    );
}

#[test]
fn claims() {
    let check = |changes: &[(&str, Value)], expected: &[&str]| check_new(&claim(), changes, expected);
    check(
        &[("/spec/accessModes", Value::Null)],
        &["spec.accessModes: Required value: at least 1 access mode is required"],
    );
    check(&[("/spec/resources", json!({}))], &["spec.resources[storage]: Required value"]);
    check(
        &[("/spec/accessModes", json!(["ReadWriteOncePod", "ReadOnlyMany"]))],
        &["spec.accessModes: Forbidden: may not use ReadWriteOncePod with other access modes"],
    );
    let detail = "spec: Forbidden: spec is immutable after creation except resources.requests and \
                  volumeAttributesClassName for bound claims";
    check_update(&claim(), &[("/spec/volumeName", json!("v"))], &[]);
    check_update(
        &claim(),
        &[("/spec/resources/requests/storage", json!("2Gi"))],
        &[&format!("{detail}\n- resources.requests.storage: \"1Gi\"\n+ resources.requests.storage: \"2Gi\"\n")],
    );
    let bound = change(&claim(), &[("/status", json!({"phase": "Bound", "capacity": {"storage": "1Gi"}}))]);
    check_update(&bound, &[("/spec/resources/requests/storage", json!("2Gi"))], &[]);
    check_update(
        &bound,
        &[("/spec/resources/requests/storage", json!("500Mi"))],
        &["spec.resources.requests.storage: Forbidden: field can not be less than status.capacity"],
    );
}
