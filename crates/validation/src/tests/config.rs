//! Config maps, secrets, limits, quotas, nodes, namespaces and events.
//!
//! Sizes are tried at their bounds.

use keelson_meta::json::{Value, json};

use super::{check_below, check_new, check_update};

#[test]
fn config_maps_and_secrets() {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": "1"}});
    check_new(&map, &[("/data/..", json!("x"))], &["data[..]: Invalid value: \"..\": must not be '..'"]);
    check_new(
        &map,
        &[("/binaryData", json!({"a": "AA=="}))],
        &["data[a]: Invalid value: \"a\": duplicate of key present in binaryData"],
    );
    check_new(
        &map,
        &[("/data/a", json!("x".repeat(1024 * 1024 + 1)))],
        &[": Too long: may not be more than 1048576 bytes"],
    );
    let fixed = super::change(&map, &[("/immutable", json!(true))]);
    check_update(&fixed, &[("/metadata/labels", json!({"a": "b"}))], &[]);
    check_update(
        &fixed,
        &[("/immutable", json!(false)), ("/data/a", json!("2"))],
        &[
            "immutable: Forbidden: field is immutable when `immutable` is set",
            "data: Forbidden: field is immutable when `immutable` is set",
        ],
    );
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "type": "Opaque"});
    check_update(&secret, &[("/type", json!("other"))], &["type: Invalid value: \"other\": field is immutable"]);
    for (kind, expected) in [
        ("kubernetes.io/tls", &["data[tls.crt]: Required value", "data[tls.key]: Required value"][..]),
        ("kubernetes.io/ssh-auth", &["data[ssh-privatekey]: Required value"]),
        ("kubernetes.io/basic-auth", &["data[username]: Required value", "data[password]: Required value"]),
        ("kubernetes.io/dockerconfigjson", &["data[.dockerconfigjson]: Required value"]),
        (
            "kubernetes.io/service-account-token",
            &["metadata.annotations[kubernetes.io/service-account.name]: Required value"],
        ),
    ] {
        check_new(&secret, &[("/type", json!(kind))], expected);
    }
    check_new(&secret, &[("/type", json!("kubernetes.io/dockercfg")), ("/data", json!({".dockercfg": "e30="}))], &[]);
    check_new(
        &secret,
        &[("/type", json!("kubernetes.io/dockercfg")), ("/data", json!({".dockercfg": "ew=="}))],
        &["data[.dockercfg]: Invalid value: \"<secret contents redacted>\": unexpected end of JSON input"],
    );
}

#[test]
fn limits_and_quotas() {
    let range = json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l"}, "spec": {"limits": [
        {"type": "Container", "min": {"cpu": "100m"}, "max": {"cpu": "2"}, "default": {"cpu": "1"}}]}});
    check_new(
        &range,
        &[("/spec/limits/0/min/cpu", json!("3"))],
        &[
            "spec.limits[0].min[cpu]: Invalid value: \"3\": min value 3 is greater than max value 2",
            "spec.limits[0].default[cpu]: Invalid value: \"3\": min value 3 is greater than default value 1",
        ],
    );
    check_new(
        &range,
        &[("/spec/limits/0/maxLimitRequestRatio", json!({"cpu": "50"}))],
        &[
            "spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: \"50\": ratio 50 is greater than max/min = 20.000000",
        ],
    );
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": {"pods": "10"}}});
    check_new(
        &quota,
        &[("/spec/hard/pods", json!("1500m")), ("/spec/hard/widgets", json!("1"))],
        &[
            "spec.hard[pods]: Invalid value: \"1500m\": must be an integer",
            "spec.hard[widgets]: Invalid value: \"widgets\": must be a standard resource type or fully qualified",
            "spec.hard[widgets]: Invalid value: \"widgets\": must be a standard resource for quota",
        ],
    );
    check_new(
        &quota,
        &[("/spec/scopes", json!(["BestEffort", "NotBestEffort"]))],
        &["spec.scopes: Invalid value: [\"BestEffort\",\"NotBestEffort\"]: conflicting scopes"],
    );
    check_update(
        &quota,
        &[("/spec/scopes", json!(["BestEffort"]))],
        &["spec.scopes: Invalid value: [\"BestEffort\"]: field is immutable"],
    );
}

#[test]
fn nodes_and_namespaces() {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "spec": {"providerID": "a"}});
    check_new(
        &node,
        &[("/spec/taints", json!([{"key": "a", "effect": "Never"}, {"key": "a", "effect": "NoSchedule"}]))],
        &[
            "metadata.taints[0].effect: Unsupported value: \"Never\": supported values: \"NoSchedule\", \"PreferNoSchedule\", \
           \"NoExecute\"",
        ],
    );
    check_update(
        &node,
        &[("/spec/providerID", json!("b"))],
        &["spec.providerID: Forbidden: node updates may not change providerID except from \"\" to valid"],
    );
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}, "status": {"phase": "Active"}});
    check_below(
        Some("status"),
        &namespace,
        &[("/status/phase", json!("Terminating"))],
        &["status.Phase: Invalid value: \"Terminating\": may only be 'Active' if `deletionTimestamp` is empty"],
    );
}

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
