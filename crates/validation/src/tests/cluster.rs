//! Storage, priority classes and leases.
//!
//! What may never change after the creation is tried with updates.

use keelson_meta::json::{Value, json};

use super::{check_new, check_update};

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

#[test]
fn leases_and_candidates() {
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"},
        "spec": {"leaseDurationSeconds": 15, "leaseTransitions": 0, "holderIdentity": "h"}});
    check_new(
        &lease,
        &[
            ("/spec/leaseDurationSeconds", json!(0)),
            ("/spec/leaseTransitions", json!(-1)),
            ("/spec/preferredHolder", json!("x")),
        ],
        &[
            "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
            "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0",
            "spec.preferredHolder: Forbidden: may only be specified if `strategy` is defined",
        ],
    );
    check_new(
        &lease,
        &[("/spec/strategy", json!("Newest"))],
        &["spec.strategy.strategy: Unsupported value: \"Newest\": supported values: \"OldestEmulationVersion\""],
    );
    let candidate = json!({"apiVersion": "coordination.k8s.io/v1beta1", "kind": "LeaseCandidate", "metadata": {"name": "c"},
        "spec": {"leaseName": "l", "binaryVersion": "1.36.0", "emulationVersion": "1.35.0", "strategy": "OldestEmulationVersion"}});
    check_new(
        &candidate,
        &[("/spec/binaryVersion", json!("1.34.0"))],
        &["spec.binaryVersion: Invalid value: \"1.34.0\": must be greater than or equal to `emulationVersion`"],
    );
    check_new(
        &candidate,
        &[("/spec/emulationVersion", Value::Null), ("/spec/binaryVersion", json!("1.36"))],
        &[
            "spec.binaryVersion: Invalid value: \"1.36\": must be a valid semantic version",
            "spec.emulationVersion: Required value: must be specified when `strategy` is 'OldestEmulationVersion'",
        ],
    );
    check_update(
        &candidate,
        &[("/spec/leaseName", json!("m"))],
        &["spec.leaseName: Invalid value: \"m\": field is immutable"],
    );
}

#[test]
fn namespaces_name_levels_of_security() {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n", "labels": {
        "pod-security.kubernetes.io/enforce": "baseline", "pod-security.kubernetes.io/warn-version": "v1.30"}}});
    let alone = |old: Option<&Value>, changes: &[(&str, Value)]| {
        let new = super::object(&super::change(&namespace, changes));
        super::texts(super::rules_of(&new).alone(old.map(super::object).as_ref(), &new))
    };
    assert_eq!(alone(None, &[]), [""; 0]);
    let labels =
        json!({"pod-security.kubernetes.io/enforce": "bogus", "pod-security.kubernetes.io/audit-version": "v1.01"});
    let wrong = super::change(&namespace, &[("/metadata/labels", labels.clone())]);
    assert_eq!(
        alone(None, &[("/metadata/labels", labels.clone())]),
        [
            "metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \"bogus\": must be one of privileged, \
             baseline, restricted",
            "metadata.labels[pod-security.kubernetes.io/audit-version]: Invalid value: \"v1.01\": must be \"latest\" or \
             \"v1.x\"",
        ]
    );
    assert_eq!(alone(Some(&wrong), &[("/metadata/labels", labels)]), [""; 0], "what was there may stay");
    super::check_new(
        &namespace,
        &[("/spec", json!({"finalizers": ["kubernetes", "mine"]}))],
        &[
            "spec.finalizers: Invalid value: \"mine\": name is neither a standard finalizer name nor is it fully qualified",
        ],
    );
}
