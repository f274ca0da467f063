//! Tests of device classes, claims, device taints and resource slices.
//!
//! Requests, constraints and attributes are tested one change at a time.

use keelson_meta::json::{Value, json};

use crate::validating::tests::{check_below, check_new, check_update};

fn claim() -> Value {
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"}, "spec": {"devices": {
        "requests": [{"name": "a", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}}]}}})
}

#[test]
fn claims_ask_for_devices_and_stay() {
    let at = |field: &str| format!("/spec/devices/{field}");
    check_new(
        &claim(),
        &[(&at("requests/0/exactly/count"), json!(0)), (&at("requests/0/exactly/deviceClassName"), json!(""))],
        &[
            "spec.devices.requests[0].exactly.deviceClassName: Required value",
            "spec.devices.requests[0].exactly.count: Invalid value: 0: must be greater than zero",
        ],
    );
    check_new(
        &claim(),
        &[(&at("requests/-"), json!({"name": "a"}))],
        &[
            "spec.devices.requests[1]: Required value: exactly one of `exactly` or `firstAvailable` is required",
            "spec.devices.requests[1]: Duplicate value: \"a\"",
        ],
    );
    check_new(
        &claim(),
        &[
            (&at("constraints"), json!([{"requests": ["b"], "matchAttribute": "model"}])),
            (&at("config"), json!([{"requests": ["a", "a"], "opaque": {"driver": "d.example.com", "parameters": 7}}])),
        ],
        &[
            "spec.devices.constraints[0].requests[0]: Invalid value: \"b\": must be the name of a request in the claim or the \
             name of a request and a subrequest separated by '/'",
            "spec.devices.constraints[0].matchAttribute: Invalid value: \"model\": a fully qualified name must be a domain \
             and a name separated by a slash",
            "spec.devices.config[0].requests[1]: Duplicate value: \"a\"",
            "spec.devices.config[0].opaque.parameters: Invalid value: \"<value omitted>\": must be a valid JSON object",
        ],
    );
    let toleration = json!([{"key": "a", "operator": "Exists", "value": "b", "effect": "Never"}]);
    check_new(
        &claim(),
        &[(&at("requests/0/exactly/tolerations"), toleration)],
        &[
            "spec.devices.requests[0].exactly.tolerations[0].value: Invalid value: \"b\": must be empty for operator `Exists`",
            "spec.devices.requests[0].exactly.tolerations[0].effect: Unsupported value: \"Never\": supported values: \
             \"NoExecute\", \"NoSchedule\", \"None\"",
        ],
    );
    check_update(
        &claim(),
        &[("/spec", json!({"devices": {}}))],
        &["spec: Invalid value: {\"devices\":{}}: field is immutable"],
    );
}

#[test]
fn claim_status_validates_allocation_and_reservations() {
    check_below(
        Some("status"),
        &claim(),
        &[(
            "/status",
            json!({"reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}, {"resource": "pods", "uid": "u"}]}),
        )],
        &[
            "status.reservedFor[1].name: Required value",
            "status.reservedFor[1]: Duplicate value: \"u\"",
            "status.reservedFor: Forbidden: may not be specified when `allocated` is not set",
        ],
    );
    let result = json!({"request": "a", "driver": "d.example.com", "pool": "p", "device": "d"});
    let allocation = json!({"devices": {"results": [result]}});
    check_below(Some("status"), &claim(), &[("/status", json!({"allocation": allocation}))], &[]);
    let mut allocated = claim();
    allocated["status"] = json!({"allocation": allocation});
    check_below(Some("status"), &allocated, &[("/status", json!({}))], &[]);
    let mut other = allocation.clone();
    other["devices"]["results"][0]["request"] = json!("b");
    check_below(
        Some("status"),
        &allocated,
        &[("/status/allocation", other.clone())],
        &[
            "status.allocation: Invalid value: {\"devices\":{\"results\":[{\"request\":\"b\",\"driver\":\"d.example.com\",\"pool\":\"p\",\"device\":\"d\"}]}}: field is immutable",
        ],
    );
    check_below(
        Some("status"),
        &claim(),
        &[(
            "/status",
            json!({"allocation": other, "devices": [{"driver": "d.example.com", "pool": "p", "device": "x"}]}),
        )],
        &[
            "status.devices[0]: Invalid value: \"d.example.com/p/x\": must be an allocated device in the claim",
            "status.allocation.devices.results[0].request: Invalid value: \"b\": must be the name of a request in the claim \
             or the name of a request and a subrequest separated by '/'",
        ],
    );
}

#[test]
fn classes_and_taints() {
    let class =
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "c"}, "spec": {}});
    check_new(
        &class,
        &[
            ("/spec/selectors", json!([{}])),
            ("/spec/config", json!([{}])),
            ("/spec/extendedResourceName", json!("cpu")),
        ],
        &[
            "spec.selectors[0].cel: Required value",
            "spec.config[0].opaque: Required value",
            "spec.extendedResourceName: Invalid value: \"cpu\": must be a valid extended resource name",
        ],
    );
    let by = |expression: &str| json!([{"cel": {"expression": expression}}]);
    let driver = "device.driver == 'gpu.example.com' && device.attributes['gpu.example.com'].healthy";
    check_new(&class, &[("/spec/selectors", by(driver))], &[]);
    check_new(
        &class,
        &[("/spec/selectors", by("device.driver"))],
        &[
            "spec.selectors[0].cel.expression: Invalid value: \"device.driver\": must evaluate to bool or the unknown type, not \
           string",
        ],
    );
    check_new(
        &class,
        &[("/spec/selectors", by("gpu.x"))],
        &[
            "spec.selectors[0].cel.expression: Invalid value: \"gpu.x\": compilation failed: ERROR: <input>:1:1: undeclared \
           reference to 'gpu' (in container '')\n | gpu.x\n | ^",
        ],
    );
    let rule = json!({"apiVersion": "resource.k8s.io/v1alpha3", "kind": "DeviceTaintRule", "metadata": {"name": "r"},
        "spec": {"taint": {"key": "a", "effect": "NoSchedule"}}});
    check_new(
        &rule,
        &[("/spec/taint/effect", json!("Never")), ("/spec/deviceSelector", json!({"driver": ""}))],
        &[
            "spec.deviceSelector.driver: Required value",
            "spec.taint.effect: Unsupported value: \"Never\": supported values: \"NoExecute\", \"NoSchedule\", \"None\"",
        ],
    );
    let request = json!({"apiVersion": "resource.k8s.io/v1alpha3", "kind": "ResourcePoolStatusRequest",
        "metadata": {"name": "r"}, "spec": {"driver": "d.example.com", "limit": 100}});
    check_new(
        &request,
        &[("/spec/limit", json!(1001))],
        &["spec.limit: Invalid value: 1001: must be less than or equal to 1000"],
    );
    check_update(
        &request,
        &[("/spec/limit", json!(5))],
        &["spec: Invalid value: {\"driver\":\"d.example.com\",\"limit\":5}: field is immutable"],
    );
}

#[test]
fn slices_of_devices() {
    let slice = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": {
        "driver": "d.example.com", "nodeName": "n", "pool": {"name": "p", "generation": 0, "resourceSliceCount": 1},
        "devices": [{"name": "a"}]}});
    check_new(
        &slice,
        &[
            ("/spec/pool/resourceSliceCount", json!(0)),
            ("/spec/allNodes", json!(true)),
            ("/spec/devices/-", json!({"name": "a"})),
        ],
        &[
            "spec.pool.resourceSliceCount: Invalid value: 0: must be greater than zero",
            "spec: Invalid value: \"{`nodeName`, `allNodes`}\": exactly one of `nodeName`, `nodeSelector`, `allNodes`, \
             `perDeviceNodeSelection` is required, but multiple fields are set",
            "spec.devices[1]: Duplicate value: \"a\"",
        ],
    );
    check_new(
        &slice,
        &[(
            "/spec/devices/0",
            json!({"name": "a", "allNodes": true, "bindingConditions": ["x"],
            "attributes": {"model": {"version": "1"}, "1x": {"bool": true, "int": 1}},
            "capacity": {"memory": {"value": "1Gi", "requestPolicy": {}}}}),
        )],
        &[
            "spec.devices[0].attributes[model].version: Invalid value: \"1\": must be a string compatible with semver.org spec \
             2.0.0",
            "spec.devices[0].attributes: Invalid value: \"1x\": a valid C identifier must start with alphabetic character or \
             '_', followed by a string of alphanumeric characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex \
             used for validation is '[A-Za-z_][A-Za-z0-9_]*')",
            "spec.devices[0].attributes[1x]: Invalid value: {\"bool\":true,\"int\":1}: exactly one value must be specified",
            "spec.devices[0].capacity[memory].requestPolicy: Forbidden: allowMultipleAllocations must be true",
            "spec.devices[0]: Invalid value: null: `nodeName`, `nodeSelector` and `allNodes` can only be set if \
             `perDeviceNodeSelection` is set to true in the ResourceSlice spec",
            "spec.devices[0].bindingFailureConditions: Invalid value: null: bindingFailureConditions are required to use \
             bindingConditions",
        ],
    );
    check_update(
        &slice,
        &[("/spec/driver", json!("e.example.com")), ("/spec/nodeName", json!("m"))],
        &[
            "spec.driver: Invalid value: \"e.example.com\": field is immutable",
            "spec.nodeName: Invalid value: \"m\": field is immutable",
        ],
    );
}
