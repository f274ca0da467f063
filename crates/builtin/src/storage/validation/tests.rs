//! Tests of storage classes, CSI drivers, capacities and volume attachments.
//!
//! Updates test the fields that cannot change.

use keelson_meta::json::json;

use crate::validating::tests::{check_new, check_update};

#[test]
fn storage_classes_stay_as_they_are() {
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "c"},
        "provisioner": "Example.com/p", "reclaimPolicy": "Delete", "volumeBindingMode": "Immediate", "parameters": {"a": "b"}});
    check_new(
        &class,
        &[("/provisioner", json!("")), ("/reclaimPolicy", json!("Recycle")), ("/volumeBindingMode", json!("Late"))],
        &[
            "provisioner: Required value",
            "reclaimPolicy: Unsupported value: \"Recycle\": supported values: \"Delete\", \"Retain\"",
            "volumeBindingMode: Unsupported value: \"Late\": supported values: \"Immediate\", \"WaitForFirstConsumer\"",
        ],
    );
    let zone = json!({"matchLabelExpressions": [{"key": "zone", "values": ["a", "a"]}]});
    check_new(
        &class,
        &[("/allowedTopologies", json!([zone, zone]))],
        &[
            "allowedTopologies[0].matchLabelExpressions[0].values[1]: Duplicate value: \"a\"",
            "allowedTopologies[1].matchLabelExpressions[0].values[1]: Duplicate value: \"a\"",
            "allowedTopologies[1].matchLabelExpressions: Duplicate value: \"\"",
        ],
    );
    check_update(
        &class,
        &[
            ("/parameters/a", json!("c")),
            ("/provisioner", json!("p")),
            ("/reclaimPolicy", json!("Retain")),
            ("/volumeBindingMode", json!("WaitForFirstConsumer")),
        ],
        &[
            "parameters: Invalid value: {\"a\":\"c\"}: field is immutable",
            "provisioner: Invalid value: \"p\": field is immutable",
            "reclaimPolicy: Invalid value: \"Retain\": field is immutable",
            "volumeBindingMode: Invalid value: \"WaitForFirstConsumer\": field is immutable",
        ],
    );
    check_update(&class, &[("/allowVolumeExpansion", json!(true))], &[]);
    let attributes = json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttributesClass", "metadata": {"name": "c"},
        "driverName": "d", "parameters": {"a": "b"}});
    check_new(
        &attributes,
        &[("/parameters", json!({}))],
        &["parameters: Required value: must contain at least one key/value pair"],
    );
    check_update(
        &attributes,
        &[("/driverName", json!("e"))],
        &["driverName: Forbidden: updates to driverName are forbidden."],
    );
}

#[test]
fn drivers_of_storage() {
    let driver = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": "d"}, "spec": {
        "attachRequired": true, "podInfoOnMount": false, "storageCapacity": false, "seLinuxMount": false,
        "fsGroupPolicy": "File", "volumeLifecycleModes": ["Persistent"]}});
    check_new(
        &driver,
        &[
            ("/spec/fsGroupPolicy", json!("All")),
            ("/spec/tokenRequests", json!([{"audience": "a", "expirationSeconds": 1}, {"audience": "a"}])),
        ],
        &[
            "spec.fsGroupPolicy: Unsupported value: \"All\": supported values: \"File\", \"None\", \"ReadWriteOnceWithFSType\"",
            "spec.tokenRequests[0].expirationSeconds: Invalid value: 1: may not specify a duration less than 10 minutes",
            "spec.tokenRequests[1].audience: Duplicate value: \"a\"",
        ],
    );
    check_update(
        &driver,
        &[("/spec/attachRequired", json!(false))],
        &["spec.attachedRequired: Invalid value: false: field is immutable"],
    );
    let node = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": "n"},
        "spec": {"drivers": [{"name": "d", "nodeID": "n", "topologyKeys": ["zone"]}]}});
    check_new(
        &node,
        &[("/spec/drivers/-", json!({"name": "d", "nodeID": ""}))],
        &["spec.drivers[1].nodeID: Required value", "spec.drivers[1].name: Duplicate value: \"d\""],
    );
    check_update(&node, &[("/spec/drivers/0/allocatable", json!({"count": 3}))], &[]);
    check_update(
        &node,
        &[("/spec/drivers/0/nodeID", json!("m"))],
        &[
            "spec.drivers: Invalid value: {\"Name\":\"d\",\"NodeID\":\"m\",\"TopologyKeys\":[\"zone\"],\"Allocatable\":null}: \
           field is immutable",
        ],
    );
}

#[test]
fn capacities_and_attachments() {
    let capacity = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIStorageCapacity", "metadata": {"name": "c"},
        "storageClassName": "s", "capacity": "1Gi"});
    check_new(
        &capacity,
        &[("/capacity", json!("-1"))],
        &["capacity: Invalid value: \"-1\": must be greater than or equal to 0"],
    );
    check_update(
        &capacity,
        &[("/storageClassName", json!("t"))],
        &["storageClassName: Invalid value: \"t\": field is immutable"],
    );
    let attachment = json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": "a"},
        "spec": {"attacher": "d", "nodeName": "n", "source": {"persistentVolumeName": "v"}}});
    check_new(
        &attachment,
        &[("/spec/source", json!({})), ("/spec/attacher", json!("A_b"))],
        &[
            "spec.source: Required value: must specify exactly one of inlineVolumeSpec and persistentVolumeName",
            "spec.attacher: Invalid value: \"A_b\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
             characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used \
             for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
        ],
    );
    check_update(
        &attachment,
        &[("/spec/nodeName", json!("m"))],
        &[
            "spec: Invalid value: {\"Attacher\":\"d\",\"Source\":{\"PersistentVolumeName\":\"v\",\"InlineVolumeSpec\":null},\
             \"NodeName\":\"m\"}: field is immutable",
        ],
    );
}
