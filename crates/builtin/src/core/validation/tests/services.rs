//! Tests of services and endpoints.
//!
//! Types, families and ports are tested together, since their rules depend on each other.

use keelson_meta::json::{Value, json};

use crate::validating::tests::{change, check_below, check_new, check_update};

fn service() -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {
        "type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster", "clusterIP": "10.0.0.1",
        "clusterIPs": ["10.0.0.1"], "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "selector": {"app": "web"},
        "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}]}})
}

#[test]
fn ports_are_named_and_unique() {
    let check = |changes: &[(&str, Value)], expected: &[&str]| check_new(&service(), changes, expected);
    check(&[("/spec/ports", Value::Null)], &["spec.ports: Required value"]);
    check(
        &[("/spec/ports/-", json!({"port": 80, "protocol": "TCP", "targetPort": "web"}))],
        &[
            "spec.ports[0].name: Required value",
            "spec.ports[1].name: Required value",
            "spec.ports[1]: Duplicate value: \
             {\"Name\":\"\",\"Protocol\":\"TCP\",\"AppProtocol\":null,\"Port\":80,\"TargetPort\":0,\"NodePort\":0}",
        ],
    );
    check(
        &[("/spec/ports/0/port", json!(0)), ("/spec/ports/0/nodePort", json!(30000))],
        &[
            "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
            "spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'",
        ],
    );
}

#[test]
fn types_and_addresses_fit() {
    let check = |changes: &[(&str, Value)], expected: &[&str]| check_new(&service(), changes, expected);
    check(
        &[("/spec/type", json!("Magic"))],
        &[
            "spec.type: Unsupported value: \"Magic\": supported values: \"ClusterIP\", \"ExternalName\", \"LoadBalancer\", \
           \"NodePort\"",
        ],
    );
    check(
        &[("/spec/clusterIP", json!("10.0.0.2"))],
        &["spec.clusterIPs: Invalid value: [\"10.0.0.1\"]: first value must match `clusterIP`"],
    );
    check(
        &[("/spec/sessionAffinity", json!("Sticky"))],
        &["spec.sessionAffinity: Unsupported value: \"Sticky\": supported values: \"ClientIP\", \"None\""],
    );
    check(
        &[("/spec/externalIPs", json!(["127.0.0.1"])), ("/spec/externalTrafficPolicy", json!("Cluster"))],
        &["spec.externalIPs[0]: Invalid value: \"127.0.0.1\": may not be in the loopback range (127.0.0.0/8, ::1/128)"],
    );
    check(
        &[("/spec/type", json!("ExternalName"))],
        &[
            "spec.clusterIPs: Forbidden: may not be set for ExternalName services",
            "spec.ipFamilies: Forbidden: may not be set for ExternalName services",
            "spec.ipFamilyPolicy: Forbidden: may not be set for ExternalName services",
            "spec.externalName: Required value",
        ],
    );
    check(
        &[("/spec/ipFamilies", json!(["IPv6"]))],
        &["spec.clusterIPs[0]: Invalid value: \"10.0.0.1\": expected an IPv6 value as indicated by `ipFamilies[0]`"],
    );
}

#[test]
fn addresses_stay() {
    check_update(
        &service(),
        &[("/spec/clusterIP", json!("10.0.0.2")), ("/spec/clusterIPs", json!(["10.0.0.2"]))],
        &["spec.clusterIPs[0]: Invalid value: [\"10.0.0.2\"]: may not change once set"],
    );
    check_update(
        &service(),
        &[("/spec/clusterIP", Value::Null), ("/spec/clusterIPs", Value::Null)],
        &["spec.clusterIPs[0]: Invalid value: null: primary clusterIP can not be unset"],
    );
    let node_port =
        change(&service(), &[("/spec/type", json!("NodePort")), ("/spec/externalTrafficPolicy", json!("Cluster"))]);
    check_update(&node_port, &[("/spec/ports/0/port", json!(81))], &[]);
    check_below(
        Some("status"),
        &node_port,
        &[("/status", json!({"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}))],
        &["status.loadBalancer.ingress: Forbidden: may only be used when `spec.type` is 'LoadBalancer'"],
    );
}

#[test]
fn endpoints() {
    let valid = json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "e"}, "subsets": [
        {"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 80, "protocol": "TCP"}]}]});
    check_new(
        &valid,
        &[("/subsets/0/addresses/0/ip", json!("10.0"))],
        &[
            "subsets[0].addresses[0].ip: Invalid value: \"10.0\": must be a valid IP address, (e.g. 10.9.8.7 or \
             2001:db8::ffff)",
            "subsets[0].addresses[0].ip: Invalid value: \"10.0\": must be a valid IP address",
        ],
    );
    check_new(
        &valid,
        &[("/subsets/0/addresses", Value::Null)],
        &["subsets[0]: Required value: must specify `addresses` or `notReadyAddresses`"],
    );
}
