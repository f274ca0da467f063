//! Tests of endpoint slices.
//!
//! Updates test the fields that cannot change.

use keelson_meta::json::{Value, json};

use crate::validating::tests::{check_new, check_update};

#[test]
fn endpoint_slices() {
    let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": "s"},
        "addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}],
        "ports": [{"name": "http", "protocol": "TCP", "port": 80}]});
    check_new(&slice, &[("/addressType", Value::Null)], &["addressType: Required value"]);
    check_new(
        &slice,
        &[("/addressType", json!("IP"))],
        &["addressType: Unsupported value: \"IP\": supported values: \"FQDN\", \"IPv4\", \"IPv6\""],
    );
    check_new(
        &slice,
        &[("/endpoints/0/addresses", json!(["::1"])), ("/ports/-", json!({"name": "http", "protocol": "X"}))],
        &[
            "endpoints[0].addresses[0]: Invalid value: \"::1\": must be a valid IPv4 address",
            "endpoints[0].addresses[0]: Invalid value: \"::1\": may not be in the loopback range (127.0.0.0/8, ::1/128)",
            "ports[1].name: Duplicate value: \"http\"",
            "ports[1].protocol: Unsupported value: \"X\": supported values: \"SCTP\", \"TCP\", \"UDP\"",
        ],
    );
    check_new(
        &slice,
        &[("/endpoints/0", json!({"addresses": [], "hints": {"forZones": [{"name": "a"}, {"name": "a"}]}}))],
        &[
            "endpoints[0].addresses: Required value: must contain at least 1 address",
            "endpoints[0].hints.forZones[1].name: Duplicate value: \"a\"",
        ],
    );
    check_new(
        &slice,
        &[("/endpoints", json!(vec![json!({"addresses": []}); 1001]))],
        &["endpoints: Too many: 1001: must have at most 1000 items"],
    );
    check_update(
        &slice,
        &[("/addressType", json!("FQDN")), ("/endpoints", json!([]))],
        &["addressType: Invalid value: \"FQDN\": field is immutable"],
    );
}
