//! Valid metadata, and the faults of invalid metadata.
//!
//! Each case changes one part of valid metadata, and expects certain messages.

use super::*;

fn object(metadata: &Value) -> Object {
    Object::from_value(json!({ "metadata": metadata })).expect("an object")
}

fn texts(errors: &[FieldError]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

/// Checks a new object named `a` in the namespace `ns` whose metadata has these further fields.
fn check(more: &Value, expected: &[&str]) {
    let mut made = object(&json!({"name": "a", "namespace": "ns"}));
    for (field, value) in more.as_object().expect("fields of metadata") {
        made.set_meta(field, value.clone());
    }
    assert_eq!(texts(&validate_metadata(&made, true, NameRule::DnsSubdomain)), expected, "{more}");
}

#[test]
fn full_metadata_is_valid() {
    check(
        &json!({
            "generateName": "g-", "generation": 1, "labels": {"app": "web", "example.com/x": ""},
            "annotations": {"Example.COM/note": "any text \n"}, "finalizers": ["example.com/f", "orphan", "kubernetes"],
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u", "controller": true},
                {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "v", "controller": false}
            ],
            "managedFields": [{"manager": "m", "operation": "Apply", "fieldsType": "FieldsV1"}]
        }),
        &[],
    );
}

#[test]
fn names_and_namespaces() {
    check(&json!({"name": ""}), &["metadata.name: Required value: name or generateName is required"]);
    check(&json!({"namespace": ""}), &["metadata.namespace: Required value"]);
    check(&json!({"namespace": "a.b"}), &["metadata.namespace: Invalid value: \"a.b\": must not contain dots"]);
    let errors = validate_metadata(&object(&json!({"name": "a", "namespace": "x"})), false, NameRule::DnsSubdomain);
    assert_eq!(texts(&errors), ["metadata.namespace: Forbidden: not allowed on this type"]);
    let errors = validate_metadata(&object(&json!({"name": "/", "generateName": "%"})), false, NameRule::PathSegment);
    assert_eq!(
        texts(&errors),
        [
            "metadata.generateName: Invalid value: \"%\": may not contain '%'",
            "metadata.name: Invalid value: \"/\": may not contain '/'"
        ]
    );
}

#[test]
fn labels_and_annotations() {
    let errors = validate_metadata(&object(&json!({"name": "a", "labels": {"-a": "b c"}})), false, NameRule::DnsLabel);
    let [key, value] = errors.as_slice() else { panic!("a fault of the key and one of the value: {errors:?}") };
    assert!(key.to_string().starts_with("metadata.labels: Invalid value: \"-a\": name part must consist of"));
    assert!(value.to_string().starts_with("metadata.labels: Invalid value: \"b c\": a valid label must be"));
    check(&json!({"annotations": {"a": "x".repeat(ANNOTATIONS_MAX - 1)}}), &[]);
    check(
        &json!({"annotations": {"a": "x".repeat(ANNOTATIONS_MAX)}}),
        &["metadata.annotations: Too long: may not be more than 262144 bytes"],
    );
    check(&json!({"generation": -1}), &["metadata.generation: Invalid value: -1: must be greater than or equal to 0"]);
}

#[test]
fn finalizers() {
    let plain = "metadata.finalizers[0]: Invalid value: \"mine\": name is neither a standard finalizer name nor is it fully \
                 qualified";
    check(&json!({"finalizers": ["mine"]}), &[plain]);
    let custom = object(&json!({"name": "a", "finalizers": ["mine"]}));
    assert!(validate_custom_metadata(&custom, false, NameRule::DnsSubdomain).is_empty());
    check(
        &json!({"finalizers": ["orphan", "foregroundDeletion"]}),
        &["metadata.finalizers: Invalid value: [\"orphan\",\"foregroundDeletion\"]: finalizer orphan and \
           foregroundDeletion cannot be both set"],
    );
}

#[test]
fn owner_references() {
    check(
        &json!({"ownerReferences": [{}]}),
        &[
            "metadata.ownerReferences.apiVersion: Invalid value: \"\": version must not be empty",
            "metadata.ownerReferences.kind: Invalid value: \"\": must not be empty",
            "metadata.ownerReferences.name: Invalid value: \"\": must not be empty",
            "metadata.ownerReferences.uid: Invalid value: \"\": must not be empty",
        ],
    );
    check(
        &json!({"ownerReferences": [{"uid": "u", "apiVersion": "v1", "kind": "Event", "name": "e", "controller": false}]}),
        &[
            "metadata.ownerReferences: Invalid value: {\"apiVersion\":\"v1\",\"kind\":\"Event\",\"name\":\"e\",\"uid\":\"u\",\
           \"controller\":false}: /v1, Kind=Event is disallowed from being an owner",
        ],
    );
    check(
        &json!({"ownerReferences": [
            {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": true},
            {"apiVersion": "v1", "kind": "Pod", "name": "q", "uid": "v", "controller": true}
        ]}),
        &[
            "metadata.ownerReferences: Invalid value: [{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"name\":\"p\",\"uid\":\"u\",\
           \"controller\":true},{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"name\":\"q\",\"uid\":\"v\",\"controller\":true}]: \
           Only one reference can have Controller set to true. Found \"true\" in references for Pod/p and Pod/q",
        ],
    );
}

/// Each message lists all references. Without a limit, the messages for a large object would have quadratic size.
#[test]
fn of_many_controllers_one_is_reported() {
    let controllers = |count: usize| {
        let one = |number| json!({"apiVersion": "v1", "kind": "Pod", "name": number, "uid": "u", "controller": true});
        let names = (0..count).map(|number| number.to_string());
        let made =
            object(&json!({"name": "a", "namespace": "ns", "ownerReferences": names.map(one).collect::<Vec<_>>()}));
        validate_metadata(&made, true, NameRule::DnsSubdomain).len()
    };
    assert_eq!([2, 3, 10].map(controllers), [1, 2, 9]);
    assert_eq!(controllers(5000), 1);
}

#[test]
fn managed_fields() {
    check(
        &json!({"managedFields": [{"manager": "a\u{1}", "operation": "Do", "fieldsType": "X", "subresource": "s".repeat(257)}]}),
        &[
            "metadata.managedFields[0].operation: Invalid value: \"Do\": must be `Apply` or `Update`",
            "metadata.managedFields[0].fieldsType: Invalid value: \"X\": must be `FieldsV1`",
            "metadata.managedFields[0].manager: Invalid value: \"a\\x01\": invalid character U+0001 (at position 1)",
            "metadata.managedFields[0].subresource: Too long: may not be more than 256 bytes",
        ],
    );
}
