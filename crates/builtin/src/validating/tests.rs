//! Tests the rules by example: a valid object, one change, and the resulting errors with upstream's messages.
//!
//! Objects are in the stored version, with defaults.

mod warnings;

use keelson_meta::Object;
use keelson_meta::json::{Value, json};
use keelson_registry::Validator as _;

use crate::validating::Rules;

/// The rules of an object, by its `apiVersion` and `kind`.
pub(crate) fn rules_of(object: &Object) -> &'static Rules {
    let (group, _) = object.api_version().unwrap().split_once('/').unwrap_or_default();
    Rules::for_kind(group, object.kind().unwrap()).unwrap()
}

pub(crate) fn object(value: &Value) -> Object {
    Object::from_value(value.clone()).unwrap()
}

/// Sets values at JSON pointers; null removes the value.
pub(crate) fn change(object: &Value, changes: &[(&str, Value)]) -> Value {
    let mut changed = object.clone();
    for (pointer, value) in changes {
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        let parent = changed.pointer_mut(parent).unwrap_or_else(|| panic!("{pointer} has no parent"));
        match (parent, value) {
            (Value::Object(tree), Value::Null) => {
                tree.remove(field);
            }
            (Value::Object(tree), value) => {
                tree.insert(field, value.clone());
            }
            (Value::Array(items), value) if field == "-" => items.push(value.clone()),
            (Value::Array(items), value) => items[field.parse::<usize>().unwrap()] = value.clone(),
            (other, _) => panic!("{pointer}: {other}"),
        }
    }
    changed
}

pub(crate) fn texts(faults: Vec<keelson_meta::field_error::FieldError>) -> Vec<String> {
    faults.into_iter().map(|fault| fault.to_string()).collect()
}

/// Checks the errors of an object after the changes. Also checks that it has none before.
pub(crate) fn check_new(valid: &Value, changes: &[(&str, Value)], expected: &[&str]) {
    let before = object(valid);
    assert_eq!(texts(rules_of(&before).create(&before)), [""; 0], "the object is valid");
    let changed = object(&change(valid, changes));
    assert_eq!(texts(rules_of(&changed).create(&changed)), expected, "{changes:?}");
}

/// Checks the errors of an update with these changes.
pub(crate) fn check_update(valid: &Value, changes: &[(&str, Value)], expected: &[&str]) {
    check_below(None, valid, changes, expected);
}

/// Checks the errors of an update of a subresource with these changes.
pub(crate) fn check_below(subresource: Option<&str>, valid: &Value, changes: &[(&str, Value)], expected: &[&str]) {
    let (old, new) = (object(valid), object(&change(valid, changes)));
    assert_eq!(texts(rules_of(&old).update(subresource, &old, &old)), [""; 0], "an update that changes nothing");
    assert_eq!(texts(rules_of(&old).update(subresource, &old, &new)), expected, "{changes:?}");
}

/// The spec of a pod or a template.
pub(crate) fn pod_spec(restart_policy: &str) -> Value {
    json!({
        "containers": [{
            "name": "c",
            "image": "nginx",
            "resources": {},
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
            "imagePullPolicy": "Always",
        }],
        "restartPolicy": restart_policy,
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "securityContext": {},
        "schedulerName": "default-scheduler",
    })
}

/// A template with the label that `selector` matches.
pub(crate) fn template(restart_policy: &str) -> Value {
    json!({"metadata": {"labels": {"app": "web"}}, "spec": pod_spec(restart_policy)})
}

pub(crate) fn selector() -> Value {
    json!({"matchLabels": {"app": "web"}})
}

#[test]
fn a_kind_that_is_not_known_has_no_rules() {
    assert!(Rules::for_kind("example.com", "Widget").is_none() && Rules::for_kind("apps", "Pod").is_none());
}
