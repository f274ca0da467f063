//! Samples of the walker: the reported faults and the changes of an object.
//!
//! A sample has an input, an output and a report.

use keelson_meta::Object;
use keelson_meta::json::{Value, json};
use keelson_schema::{Schemas, WalkOptions, WalkReport};

fn walk(value: &Value, options: WalkOptions) -> (Value, WalkReport) {
    let mut object = Object::from_value(value.clone()).expect("a sample is an object");
    let api_version = object.api_version().expect("a sample has an apiVersion");
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let kind = object.kind().expect("a sample has a kind");
    let schema = Schemas::builtin().kind(group, version, kind).expect("a sample is of a built-in kind");
    let mut report = WalkReport::default();
    schema.walk(&mut object, &mut report, options);
    (object.into_value(), report)
}

fn check_stored(given: &Value, expected: &Value) {
    let (stored, report) = walk(given, WalkOptions::STORE);
    assert!(report.is_clean(), "{report:?}");
    // Compares texts, so that the order of fields must be equal.
    assert_eq!(stored.to_string(), expected.to_string());
}

fn check_error(given: &Value, expected: &str) {
    let (_, report) = walk(given, WalkOptions::CHECK);
    assert_eq!(report.type_error().as_deref(), Some(expected), "{given}");
}

fn config_map(mut fields: Value) -> Value {
    fields["apiVersion"] = json!("v1");
    fields["kind"] = json!("ConfigMap");
    fields
}

fn pod(spec: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "spec": spec})
}

#[test]
fn checking_changes_nothing() {
    let given = config_map(json!({"data": {"b": "1", "a": "2"}, "bogus": null, "immutable": false}));
    let (walked, report) = walk(&given, WalkOptions::CHECK);
    assert_eq!(walked.to_string(), given.to_string());
    assert_eq!(report.unknown_fields(), ["bogus"]);
    assert_eq!(report.type_error(), None);
}

#[test]
fn type_errors_read_as_go_writes_them() {
    for (given, expected) in [
        (config_map(json!({"data": {"a": 5}})), "number into Go struct field ConfigMap.data of type string"),
        (config_map(json!({"data": "a"})), "string into Go struct field ConfigMap.data of type map[string]string"),
        (config_map(json!({"immutable": "yes"})), "string into Go struct field ConfigMap.immutable of type bool"),
        (config_map(json!({"metadata": []})), "array into Go struct field ConfigMap.metadata of type v1.ObjectMeta"),
        (
            config_map(json!({"metadata": {"labels": {"a": 5}}})),
            "number into Go struct field ObjectMeta.metadata.labels of type string",
        ),
        (pod(&json!({"containers": {}})), "object into Go struct field PodSpec.spec.containers of type []v1.Container"),
        (
            pod(&json!({"containers": [{"ports": [{"containerPort": "a"}]}]})),
            "string into Go struct field ContainerPort.spec.containers.ports.containerPort of type int32",
        ),
        (
            pod(&json!({"containers": [{"ports": [{"containerPort": 1.5}]}]})),
            "number 1.5 into Go struct field ContainerPort.spec.containers.ports.containerPort of type int32",
        ),
        (
            pod(&json!({"containers": [{"ports": [{"hostPort": 2_147_483_648u64}]}]})),
            "number 2147483648 into Go struct field ContainerPort.spec.containers.ports.hostPort of type int32",
        ),
        (
            pod(&json!({"restartPolicy": 1})),
            "number into Go struct field PodSpec.spec.restartPolicy of type v1.RestartPolicy",
        ),
        (
            pod(&json!({"containers": [{"livenessProbe": {"httpGet": {"port": true}}}]})),
            "bool into Go struct field HTTPGetAction.spec.containers.livenessProbe.ProbeHandler.httpGet.port of type int32",
        ),
        (
            config_map(json!({"metadata": {"creationTimestamp": 5}})),
            "number into Go struct field ObjectMeta.metadata.creationTimestamp of type string",
        ),
    ] {
        check_error(&given, &format!("json: cannot unmarshal {expected}"));
    }
}

#[test]
fn errors_name_the_structures_that_are_embedded_on_the_way() {
    let volume = |volume: Value| pod(&json!({"volumes": [volume]}));
    for (given, expected) in [
        (
            volume(json!({"csi": {"volumeAttributes": {"a": 1}}})),
            "number into Go struct field CSIVolumeSource.spec.volumes.VolumeSource.csi.volumeAttributes of type string",
        ),
        (
            volume(json!({"configMap": {"name": true}})),
            "bool into Go struct field ConfigMapVolumeSource.spec.volumes.VolumeSource.configMap.LocalObjectReference.name of type string",
        ),
        (
            json!({"apiVersion": "v1", "kind": "PersistentVolume", "spec": {"hostPath": true}}),
            "bool into Go struct field PersistentVolumeSpec.spec.PersistentVolumeSource.hostPath of type v1.HostPathVolumeSource",
        ),
        (
            json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": {"leaseDurationSeconds": 1e20}}),
            "number 100000000000000000000 into Go struct field LeaseSpec.spec.leaseDurationSeconds of type int32",
        ),
    ] {
        check_error(&given, &format!("json: cannot unmarshal {expected}"));
    }
}

#[test]
fn bytes_may_be_an_array_of_numbers() {
    let given = config_map(json!({"binaryData": {"a": [], "b": [97, 98, 255], "c": [null]}}));
    let (stored, report) = walk(&given, WalkOptions::STORE);
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(stored["binaryData"], json!({"a": "", "b": "YWL/", "c": "AA=="}));
    for wrong in [json!([256]), json!([-1]), json!([1.5]), json!(["a"]), json!([[1]])] {
        let text = "json: cannot unmarshal array into Go struct field ConfigMap.binaryData of type []uint8";
        check_error(&config_map(json!({"binaryData": {"a": wrong}})), text);
    }
}

#[test]
fn unreadable_values_get_the_errors_of_their_types() {
    check_error(&config_map(json!({"binaryData": {"a": "?"}})), "illegal base64 data at input byte 0");
    let limits = |cpu: Value| pod(&json!({"containers": [{"resources": {"limits": {"cpu": cpu}}}]}));
    let wrong = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
    check_error(&limits(json!("one")), wrong);
    check_error(&limits(json!({})), wrong);
    check_error(
        &config_map(json!({"metadata": {"deletionTimestamp": "soon"}})),
        r#"parsing time "soon" as "2006-01-02T15:04:05Z07:00": cannot parse "soon" as "2006""#,
    );
}

#[test]
fn the_first_type_error_counts_unless_a_type_that_reads_itself_fails() {
    let given = pod(&json!({"hostNetwork": 1, "restartPolicy": 2}));
    check_error(&given, "json: cannot unmarshal number into Go struct field PodSpec.spec.hostNetwork of type bool");
    let given = pod(&json!({"hostNetwork": 1, "overhead": {"cpu": "1mm"}}));
    check_error(&given, "unable to parse quantity's suffix");
}

#[test]
fn unknown_fields_are_reported_with_their_paths_and_pruned() {
    let given = pod(&json!({
        "containers": [{"name": "a", "image": "i"}, {"name": "b", "imagee": "j", "resources": {"limit": {}}}],
        "Volumes": [],
    }));
    let (stored, report) = walk(&given, WalkOptions::STORE);
    assert_eq!(
        report.unknown_fields(),
        ["spec.containers[1].imagee", "spec.containers[1].resources.limit", "spec.Volumes"]
    );
    assert_eq!(report.unknown_field_messages().last().as_deref(), Some("unknown field \"spec.Volumes\""));
    assert_eq!(stored["spec"]["containers"][1], json!({"name": "b", "resources": {}}));
    assert_eq!(stored["spec"].get("Volumes"), None);
    let (again, report) = walk(&stored, WalkOptions::STORE);
    assert!(report.is_clean());
    assert_eq!(again, stored);
}

#[test]
fn pruning_alone_keeps_order_and_values() {
    let given = config_map(json!({"data": {"b": "1", "a": ""}, "bogus": 1, "immutable": false}));
    let options = WalkOptions { prune: true, ..WalkOptions::CHECK };
    let (walked, _) = walk(&given, options);
    let expected = r#"{"data":{"b":"1","a":""},"immutable":false,"apiVersion":"v1","kind":"ConfigMap"}"#;
    assert_eq!(walked.to_string(), expected);
}

#[test]
fn raw_extensions_are_stored_unchanged() {
    let given = json!({"kind": "ControllerRevision", "apiVersion": "apps/v1", "metadata": {},
        "data": {"b": {"z": null, "a": [{}]}, "a": 1}, "revision": 1});
    check_stored(&given, &given);
}

#[test]
fn fields_are_put_in_declared_order_and_maps_are_sorted() {
    let given = json!({"data": {"b": "1", "a": "2"}, "metadata": {"labels": {"y": "1", "x": "2"}, "name": "n"},
        "kind": "ConfigMap", "apiVersion": "v1"});
    let expected = json!({"kind": "ConfigMap", "apiVersion": "v1",
        "metadata": {"name": "n", "labels": {"x": "2", "y": "1"}}, "data": {"a": "2", "b": "1"}});
    check_stored(&given, &expected);
}

#[test]
fn nulls_and_zero_values_go_where_go_leaves_them_out() {
    let given = config_map(json!({"metadata": {"name": "n", "labels": {}, "annotations": null, "finalizers": []},
        "immutable": false, "data": {"a": null}, "binaryData": {}}));
    let expected = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "n"},
        "immutable": false, "data": {"a": ""}});
    check_stored(&given, &expected);
}

#[test]
fn zero_values_that_go_always_writes_are_added() {
    let given = json!({"kind": "Deployment", "apiVersion": "apps/v1", "spec": {"replicas": 0}});
    let expected = json!({"kind": "Deployment", "apiVersion": "apps/v1", "metadata": {},
        "spec": {"replicas": 0, "selector": null,
            "template": {"metadata": {}, "spec": {"containers": null}}, "strategy": {}},
        "status": {}});
    check_stored(&given, &expected);
    let given = json!({"kind": "Role", "apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {}, "rules": []});
    let expected = json!({"kind": "Role", "apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {}, "rules": null});
    check_stored(&given, &expected);
}

#[test]
fn null_items_become_empty_ones() {
    let given = pod(&json!({"containers": [null]}));
    let (stored, report) = walk(&given, WalkOptions::STORE);
    assert!(report.is_clean());
    assert_eq!(stored["spec"]["containers"], json!([{"name": "", "resources": {}}]));
}

#[test]
fn quantities_times_and_bytes_are_written_canonically() {
    let given = pod(&json!({"containers": [
        {"name": "a", "resources": {"limits": {"memory": "1024Mi", "cpu": 0.5, "x": 3, "y": " 1 "}}}]}));
    let (stored, _) = walk(&given, WalkOptions::STORE);
    let limits = &stored["spec"]["containers"][0]["resources"]["limits"];
    assert_eq!(*limits, json!({"cpu": "500m", "memory": "1Gi", "x": "3", "y": "1"}));

    let given = config_map(json!({"metadata": {"creationTimestamp": "2026-01-02T03:04:05+02:00",
        "deletionTimestamp": "2026-01-02T03:04:05.5Z"}, "binaryData": {"a": "YWJj\n"}}));
    let (stored, _) = walk(&given, WalkOptions::STORE);
    assert_eq!(stored["metadata"]["creationTimestamp"], "2026-01-02T01:04:05Z");
    assert_eq!(stored["metadata"]["deletionTimestamp"], "2026-01-02T03:04:05Z");
    assert_eq!(stored["binaryData"]["a"], "YWJj");
}

#[test]
fn defaults_of_the_schema_are_filled_in() {
    let given = pod(&json!({"containers": [{"name": "a", "ports": [{"containerPort": 80}]}]}));
    let ports = |options| walk(&given, options).0["spec"]["containers"][0]["ports"].clone();
    assert_eq!(ports(WalkOptions::STORE), json!([{"containerPort": 80, "protocol": "TCP"}]));
    let only = WalkOptions { defaults: true, ..WalkOptions::CHECK };
    assert_eq!(ports(only), json!([{"containerPort": 80, "protocol": "TCP"}]));
    assert_eq!(ports(WalkOptions { defaults: false, ..WalkOptions::STORE }), json!([{"containerPort": 80}]));
    let given = pod(&json!({"containers": [{"name": "a", "ports": [{"containerPort": 80, "protocol": "UDP"}]}]}));
    let (stored, _) = walk(&given, WalkOptions::STORE);
    assert_eq!(stored["spec"]["containers"][0]["ports"][0]["protocol"], "UDP");
}

#[test]
fn schemas_of_custom_resources_are_read_through_their_choices() {
    let definition = |schema: Value| {
        json!({"kind": "CustomResourceDefinition", "apiVersion": "apiextensions.k8s.io/v1", "metadata": {},
            "spec": {"group": "g", "names": {"plural": "p", "kind": "K"}, "scope": "Namespaced",
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]},
            "status": {"conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": null}})
    };
    let good = definition(json!({"type": "object", "properties": {
        "a": {"type": "object", "default": {"z": 1, "b": null}, "additionalProperties": {"type": "string"}},
        "b": {"type": "object", "additionalProperties": false},
        "c": {"type": "array", "items": {"type": "string", "maxLength": 3}}}}));
    check_stored(&good, &good);
    // As upstream, unknown fields in an object of an either are dropped without a report.
    let (stored, report) = walk(&definition(json!({"items": {"type": "string", "bogus": 1}})), WalkOptions::STORE);
    assert!(report.is_clean());
    assert_eq!(stored["spec"]["versions"][0]["schema"]["openAPIV3Schema"], json!({"items": {"type": "string"}}));
    let (_, report) = walk(&definition(json!({"additionalProperties": {"type": 5}})), WalkOptions::CHECK);
    assert!(report.type_error().is_some_and(|e| e.starts_with("json: cannot unmarshal number")), "{report:?}");
}
