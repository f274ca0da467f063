//! Tests of events of both groups.
//!
//! The newer group is tested with values that only the older one accepts.

use keelson_meta::json::{Value, json};

use crate::validating::tests::{check_new, check_update};

#[test]
fn events_of_both_groups() {
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": "default"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"}, "reason": "R", "type": "Normal"});
    check_new(
        &event,
        &[("/involvedObject/namespace", json!("other"))],
        &["involvedObject.namespace: Invalid value: \"other\": does not match event.namespace"],
    );
    check_update(&event, &[("/reason", json!("S"))], &[]);
    let newer = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e", "namespace": "default"},
        "involvedObject": {"namespace": "default"}, "reason": "R", "type": "Normal", "action": "A",
        "eventTime": "2026-01-01T00:00:00.000000Z", "reportingComponent": "example.com/c", "reportingInstance": "i"});
    check_new(
        &newer,
        &[("/eventTime", Value::Null), ("/type", json!("Odd"))],
        &["eventTime: Required value", "type: Invalid value: \"\": has invalid value: Odd"],
    );
    check_update(&newer, &[("/reason", json!("S"))], &["reason: Invalid value: \"S\": field is immutable"]);
}
