//! Tests the tables of the built-in kinds, kind by kind, at one point in time.
//!
//! The clock is fixed, so that ages are the same in every run.

mod apps;
mod autoscaling;
mod batch;
mod core;
mod networking;
mod others;
mod pods;
mod resource;
mod storage;

use std::time::SystemTime;

use keelson_builtin::printer;
use keelson_codec::Outline;
use keelson_meta::Object;
use keelson_meta::clock::parse_rfc3339;
use keelson_meta::json::{Value, json};
use keelson_tables::column::Column;
use keelson_tables::printer::Printer;

/// The time of the tests.
const NOW: &str = "2026-03-10T12:00:00Z";
/// Three days and four hours earlier.
const CREATED: &str = "2026-03-07T08:00:00Z";

fn now() -> SystemTime {
    parse_rfc3339(NOW).unwrap()
}

/// An object with these fields, and metadata that the tests do not check.
fn object(fields: Value) -> Object {
    let mut object = Object::from_value(fields).unwrap();
    if object.name().is_empty() {
        object.set_meta("name", "x");
    }
    object.set_meta("creationTimestamp", CREATED);
    object
}

/// The columns of a kind.
fn columns(group: &str, kind: &str) -> Vec<Column<'static>> {
    let printer: &'static Printer = Box::leak(Box::new(printer(group, kind)));
    printer.columns().into_owned()
}

/// The row of an object.
fn row(group: &str, kind: &str, object: &Object) -> Vec<Value> {
    printer(group, kind).cells(&Outline::read(&serde_json::to_string(object).unwrap()), now())
}

/// Checks the row of an object with these fields.
#[track_caller]
fn check(group: &str, kind: &str, fields: Value, expected: Value) {
    assert_eq!(Value::from(row(group, kind, &object(fields))), expected, "{kind}");
}

/// The cell of the column with this name.
#[track_caller]
fn cell(group: &str, kind: &str, column: &str, fields: Value) -> Value {
    let place = columns(group, kind).iter().position(|c| c.name == column).unwrap();
    row(group, kind, &object(fields)).swap_remove(place)
}

/// All kinds with their own columns.
const KINDS: [(&str, &[&str]); 20] = [
    (
        "",
        &[
            "ComponentStatus",
            "ConfigMap",
            "Endpoints",
            "Event",
            "Namespace",
            "Node",
            "PersistentVolume",
            "PersistentVolumeClaim",
            "Pod",
            "PodTemplate",
            "ReplicationController",
            "ResourceQuota",
            "Secret",
            "Service",
            "ServiceAccount",
            "Status",
        ],
    ),
    (
        "admissionregistration.k8s.io",
        &[
            "MutatingAdmissionPolicy",
            "MutatingAdmissionPolicyBinding",
            "MutatingWebhookConfiguration",
            "ValidatingAdmissionPolicy",
            "ValidatingAdmissionPolicyBinding",
            "ValidatingWebhookConfiguration",
        ],
    ),
    ("apiregistration.k8s.io", &["APIService"]),
    ("apps", &["ControllerRevision", "DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"]),
    ("autoscaling", &["HorizontalPodAutoscaler", "Scale"]),
    ("batch", &["CronJob", "Job"]),
    ("certificates.k8s.io", &["CertificateSigningRequest"]),
    ("coordination.k8s.io", &["Lease", "LeaseCandidate"]),
    ("discovery.k8s.io", &["EndpointSlice"]),
    ("events.k8s.io", &["Event"]),
    ("flowcontrol.apiserver.k8s.io", &["FlowSchema", "PriorityLevelConfiguration"]),
    ("internal.apiserver.k8s.io", &["StorageVersion"]),
    ("networking.k8s.io", &["IPAddress", "Ingress", "IngressClass", "NetworkPolicy", "ServiceCIDR"]),
    ("node.k8s.io", &["RuntimeClass"]),
    ("policy", &["PodDisruptionBudget"]),
    ("rbac.authorization.k8s.io", &["ClusterRoleBinding", "RoleBinding"]),
    (
        "resource.k8s.io",
        &[
            "DeviceClass",
            "DeviceTaintRule",
            "ResourceClaim",
            "ResourceClaimTemplate",
            "ResourcePoolStatusRequest",
            "ResourceSlice",
        ],
    ),
    ("scheduling.k8s.io", &["PriorityClass"]),
    ("storage.k8s.io", &["CSIDriver", "CSINode", "StorageClass", "VolumeAttachment", "VolumeAttributesClass"]),
    ("storagemigration.k8s.io", &["StorageVersionMigration"]),
];

fn kinds() -> impl Iterator<Item = (&'static str, &'static str)> {
    KINDS.iter().flat_map(|(group, kinds)| kinds.iter().map(move |kind| (*group, *kind)))
}

#[test]
fn every_printer_returns_one_cell_per_column() {
    let odd =
        json!({"metadata": 1, "spec": [1, "a", null], "status": "x", "data": 3, "subsets": [null], "webhooks": {}});
    let deeper = json!({
        "metadata": {"name": 3, "creationTimestamp": "soon", "labels": [], "ownerReferences": [1]},
        "spec": {"containers": {}, "rules": [1], "ports": [[]], "metrics": [3], "selector": {"matchExpressions": [1]}},
        "status": {"conditions": [1, {"type": 2}], "containerStatuses": [null], "hard": {"a": {}}}
    });
    for (group, kind) in kinds() {
        // The row of an IPAddress has an age without a column.
        let extra = usize::from(kind == "IPAddress");
        for fields in [json!({}), odd.clone(), deeper.clone()] {
            let object = Object::from_value(fields).unwrap();
            let row = row(group, kind, &object);
            assert_eq!(row.len(), columns(group, kind).len() + extra, "{group} {kind}");
        }
    }
}

#[test]
fn columns_are_named_once_and_know_their_type() {
    for (group, kind) in kinds() {
        let columns = columns(group, kind);
        let mut names: Vec<&str> = columns.iter().map(|column| column.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), columns.len(), "{group} {kind}");
        let known = |column: &Column<'_>| ["string", "integer", "boolean"].contains(&column.kind);
        assert!(columns.iter().all(known), "{group} {kind}");
    }
}

#[test]
fn a_kind_without_a_table_shows_its_name_and_time_of_creation() {
    for (group, kind) in
        [("", "LimitRange"), ("rbac.authorization.k8s.io", "Role"), ("example.org", "Pod"), ("", "Deployment")]
    {
        let names: Vec<(&str, &str, &str)> =
            columns(group, kind).iter().map(|column| (column.name, column.kind, column.format)).collect();
        assert_eq!(names, [("Name", "string", "name"), ("Created At", "date", "")]);
        check(group, kind, json!({}), json!(["x", CREATED]));
    }
}

#[test]
fn ages_are_shown_as_duration_unknown_or_invalid() {
    let age = |metadata: Value| row("", "ServiceAccount", &Object::from_value(json!({"metadata": metadata})).unwrap());
    assert_eq!(age(json!({"name": "x", "creationTimestamp": CREATED})), ["x", "3d4h"]);
    assert_eq!(age(json!({"name": "x", "creationTimestamp": NOW})), ["x", "0s"]);
    assert_eq!(age(json!({"name": "x", "creationTimestamp": null})), ["x", "<unknown>"]);
    assert_eq!(age(json!({"name": "x"})), ["x", "<unknown>"]);
    assert_eq!(age(json!({"name": "x", "creationTimestamp": "2026-03-10T12:01:00Z"})), ["x", "<invalid>"]);
}

#[test]
fn wide_columns_are_known_by_their_priority() {
    let wide: Vec<&str> = columns("", "Pod").iter().filter(|c| c.priority > 0).map(|c| c.name).collect();
    assert_eq!(wide, ["IP", "Node", "Nominated Node", "Readiness Gates"]);
}
