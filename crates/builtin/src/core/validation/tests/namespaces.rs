//! Tests of namespaces.
//!
//! Labels set the pod security levels, and the phase follows from the deletion timestamp.

use keelson_meta::json::{Value, json};
use keelson_registry::Validator as _;

use crate::validating::tests::{change, check_below, check_new, object, rules_of, texts};

#[test]
fn namespaces_name_levels_of_security() {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n", "labels": {
        "pod-security.kubernetes.io/enforce": "baseline", "pod-security.kubernetes.io/warn-version": "v1.30"}}});
    let alone = |old: Option<&Value>, changes: &[(&str, Value)]| {
        let new = object(&change(&namespace, changes));
        texts(rules_of(&new).alone(old.map(object).as_ref(), &new))
    };
    assert_eq!(alone(None, &[]), [""; 0]);
    let labels =
        json!({"pod-security.kubernetes.io/enforce": "bogus", "pod-security.kubernetes.io/audit-version": "v1.01"});
    let wrong = change(&namespace, &[("/metadata/labels", labels.clone())]);
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
    check_new(
        &namespace,
        &[("/spec", json!({"finalizers": ["kubernetes", "mine"]}))],
        &[
            "spec.finalizers: Invalid value: \"mine\": name is neither a standard finalizer name nor is it fully qualified",
        ],
    );
}

#[test]
fn a_namespace_is_active_until_it_is_deleted() {
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}, "status": {"phase": "Active"}});
    check_below(
        Some("status"),
        &namespace,
        &[("/status/phase", json!("Terminating"))],
        &["status.Phase: Invalid value: \"Terminating\": may only be 'Active' if `deletionTimestamp` is empty"],
    );
}
