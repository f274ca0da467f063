//! Tests the tables of storage classes, attachments, drivers, storage versions and migrations.
//!
//! The tests have an example for each kind and for each form of a cell.

use keelson_meta::json::{Value, json};

use super::check;

const GROUP: &str = "storage.k8s.io";

#[test]
fn the_default_class_is_marked() {
    let row = |name: &str| json!([name, "example.org/disk", "Delete", "Immediate", false, "3d4h"]);
    let class =
        |annotations: Value| json!({"metadata": {"annotations": annotations}, "provisioner": "example.org/disk"});
    check(GROUP, "StorageClass", class(json!({})), row("x"));
    check(
        GROUP,
        "StorageClass",
        class(json!({"storageclass.kubernetes.io/is-default-class": "true"})),
        row("x (default)"),
    );
    check(
        GROUP,
        "StorageClass",
        class(json!({"storageclass.beta.kubernetes.io/is-default-class": "true"})),
        row("x (default)"),
    );
    check(GROUP, "StorageClass", class(json!({"storageclass.kubernetes.io/is-default-class": "yes"})), row("x"));
    let fields = json!({"provisioner": "p", "reclaimPolicy": "Retain", "volumeBindingMode": "WaitForFirstConsumer",
        "allowVolumeExpansion": true});
    check(GROUP, "StorageClass", fields, json!(["x", "p", "Retain", "WaitForFirstConsumer", true, "3d4h"]));
}

#[test]
fn attachments_name_both_ends() {
    let fields = json!({"spec": {"attacher": "example.org/csi", "source": {"persistentVolumeName": "pv1"},
        "nodeName": "n1"},
        "status": {"attached": true}});
    check(GROUP, "VolumeAttachment", fields, json!(["x", "example.org/csi", "pv1", "n1", true, "3d4h"]));
    check(
        GROUP,
        "VolumeAttributesClass",
        json!({"driverName": "example.org/csi"}),
        json!(["x", "example.org/csi", "3d4h"]),
    );
}

#[test]
fn csi_drivers_show_their_requirements() {
    check(GROUP, "CSINode", json!({"spec": {"drivers": [{}, {}]}}), json!(["x", 2, "3d4h"]));
    check(GROUP, "CSIDriver", json!({}), json!(["x", true, false, false, "<unset>", false, "<none>", "3d4h"]));
    let spec = json!({"attachRequired": false, "podInfoOnMount": true, "storageCapacity": true,
        "requiresRepublish": true,
        "tokenRequests": [{"audience": "a"}, {"audience": "b"}], "volumeLifecycleModes": ["Persistent", "Ephemeral"]});
    check(
        GROUP,
        "CSIDriver",
        json!({"spec": spec}),
        json!(["x", false, true, true, "a,b", true, "Persistent,Ephemeral", "3d4h"]),
    );
}

#[test]
fn migrations_show_the_first_condition_that_holds() {
    let row = |resource: &str, state: &str| json!(["x", resource, state, "", "", "3d4h"]);
    let fields = |group: &str, conditions: Value| {
        json!({"spec": {"resource": {"group": group,
        "resource": "things"}}, "status": {"conditions": conditions}})
    };
    let migration = |group: &str, conditions: Value, expected: Value| {
        check("storagemigration.k8s.io", "StorageVersionMigration", fields(group, conditions), expected);
    };
    migration("", json!([]), row("things", "Unknown"));
    migration("example.org", json!([{"type": "Running", "status": "True"}]), row("things.example.org", "Running"));
    let done = json!([{"type": "Running", "status": "False"}, {"type": "Succeeded", "status": "True"}]);
    migration("example.org", done, row("things.example.org", "Succeeded"));
    let progress = json!({"keelson.io/objects-done": "3", "keelson.io/objects-total": "5"});
    check(
        "storagemigration.k8s.io",
        "StorageVersionMigration",
        json!({"metadata": {"annotations": progress}, "spec": {"resource": {"resource": "things"}}}),
        json!(["x", "things", "Unknown", "3", "5", "3d4h"]),
    );
}

#[test]
fn storage_versions_name_their_servers() {
    let servers =
        json!([{"apiServerID": "s1", "encodingVersion": "v1"}, {"apiServerID": "s2", "encodingVersion": "v2"}]);
    let check = |status: Value, expected: Value| {
        check("internal.apiserver.k8s.io", "StorageVersion", json!({"status": status}), expected);
    };
    check(json!({"storageVersions": servers}), json!(["x", "<unset>", "s1=v1,s2=v2", "3d4h"]));
    check(json!({"commonEncodingVersion": "v1"}), json!(["x", "v1", "<unset>", "3d4h"]));
}
