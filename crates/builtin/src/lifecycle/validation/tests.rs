//! Tests of the rules for evictions and requests for them.
//!
//! A target, a requester and an intent are required.

use keelson_meta::json::{Value, json};

use crate::validating::tests::{check_below, check_new, check_update};

const UID: &str = "0f8fad5b-d9cb-469f-a165-70867728950e";

fn object(kind: &str, spec: &Value) -> Value {
    json!({"apiVersion": "lifecycle.k8s.io/v1alpha1", "kind": kind, "metadata": {"name": "r", "namespace": "d"}, "spec": spec})
}

#[test]
fn a_request_names_a_pod_a_requester_and_an_intent() {
    let target = json!({"pod": {"name": "p", "uid": UID}});
    let spec = json!({"target": target, "requester": "a.example.org/drain", "intent": "Eviction"});
    let request = object("EvictionRequest", &spec);
    check_new(
        &request,
        &[("/spec/target", json!({})), ("/spec/requester", json!("")), ("/spec/intent", json!(""))],
        &[
            "spec.target: Invalid value: \"\": must specify one of: `pod`",
            "spec.requester: Required value",
            "spec.intent: Required value",
        ],
    );
    check_new(
        &request,
        &[
            ("/spec/target/pod/uid", json!(UID.to_uppercase())),
            ("/spec/requester", json!("drain")),
            ("/spec/intent", json!("Later")),
        ],
        &[
            "spec.target.pod.uid: Invalid value: \"0F8FAD5B-D9CB-469F-A165-70867728950E\": must be a lowercase UUID in \
             8-4-4-4-12 format",
            "spec.requester: Invalid value: \"drain\": must include a prefix (e.g. 'example.com/key')",
            "spec.intent: Unsupported value: \"Later\": supported values: \"Eviction\", \"Withdrawn\"",
        ],
    );
    check_update(&request, &[("/spec/intent", json!("Withdrawn"))], &[]);
    check_update(
        &request,
        &[("/spec/requester", json!("b.example.org/drain"))],
        &["spec.requester: Invalid value: \"b.example.org/drain\": field is immutable"],
    );
}

#[test]
fn the_status_of_an_eviction_lists_requesters_and_responders() {
    let eviction = object("Eviction", &json!({"target": {"pod": {"name": "p", "uid": UID}}}));
    let mut eviction = eviction;
    eviction.as_object_mut().unwrap().insert("status", json!({}));
    check_below(
        Some("status"),
        &eviction,
        &[
            ("/status/observedGeneration", json!(0)),
            ("/status/requesters", json!([{"name": "a.b/c", "intent": "Never"}])),
            (
                "/status/targetResponders",
                json!([{"name": "c", "state": "Gone"}, {"name": "a.b/c", "priority": 100_001, "state": "Active"}]),
            ),
        ],
        &[
            "status.observedGeneration: Invalid value: 0: must be greater than or equal to 1",
            "status.requesters[0].intent: Unsupported value: \"Never\": supported values: \"Eviction\", \"Withdrawn\"",
            "status.targetResponders[0].name: Invalid value: \"c\": must include a prefix (e.g. 'example.com/key')",
            "status.targetResponders[0].priority: Required value",
            "status.targetResponders[0].state: Unsupported value: \"Gone\": supported values: \"Active\", \"Canceled\", \
             \"Completed\", \"Inactive\", \"Interrupted\"",
            "status.targetResponders[1].priority: Invalid value: 100001: must be between 0 and 100000, inclusive",
        ],
    );
}
