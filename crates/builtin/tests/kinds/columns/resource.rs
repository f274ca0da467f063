//! Tests the tables of devices, claims and pools.
//!
//! The tests have an example for each state of a claim.

use keelson_meta::json::{Value, json};

use super::check;

const GROUP: &str = "resource.k8s.io";

#[test]
fn claims_show_their_state() {
    let claim = |deleted: bool, status: Value, state: &str| {
        let deleted = if deleted { json!("2026-03-10T12:00:00Z") } else { Value::Null };
        let fields = json!({"metadata": {"deletionTimestamp": deleted}, "status": status});
        check(GROUP, "ResourceClaim", fields, json!(["x", state, "3d4h"]));
    };
    claim(false, json!({}), "pending");
    claim(false, json!({"allocation": {}}), "allocated");
    claim(false, json!({"allocation": {}, "reservedFor": [{}]}), "allocated,reserved");
    claim(true, json!({}), "deleted");
    claim(true, json!({"allocation": {}, "reservedFor": [{}]}), "deleted,allocated,reserved");
}

#[test]
fn resource_slices_and_device_taints_show_their_spec() {
    let slice = json!({"spec": {"nodeName": "n1", "driver": "gpu.example.org", "pool": {"name": "n1"}}});
    check(GROUP, "ResourceSlice", slice, json!(["x", "n1", "gpu.example.org", "n1", "3d4h"]));
    let taint = json!({"key": "example.org/broken", "value": "yes", "effect": "NoExecute",
        "timeAdded": "2026-03-10T11:59:00Z"});
    let row = json!(["x", "example.org/broken", "yes", "NoExecute", "60s", "3d4h"]);
    check(GROUP, "DeviceTaintRule", json!({"spec": {"taint": taint}}), row);
    check(GROUP, "DeviceTaintRule", json!({}), json!(["x", "", "", "", "", "3d4h"]));
    for kind in ["DeviceClass", "ResourceClaimTemplate"] {
        check(GROUP, kind, json!({}), json!(["x", "3d4h"]));
    }
}

#[test]
fn devices_of_pools_are_summed_up() {
    let pool = |total: u32, error: Value| {
        json!({"totalDevices": total, "availableDevices": 1,
        "allocatedDevices": 2, "unavailableDevices": 0, "validationError": error})
    };
    let status = |kind: &str| {
        json!({"poolCount": 3, "pools": [pool(4, Value::Null), pool(3, json!("incomplete"))],
            "conditions": [{"type": kind, "status": "True", "lastTransitionTime": "2026-03-10T11:59:50Z"}]})
    };
    let fields = |status: Value| json!({"spec": {"driver": "d"}, "status": status});
    let check = |status: Value, expected: Value| check(GROUP, "ResourcePoolStatusRequest", fields(status), expected);
    check(status("Complete"), json!(["x", "d", "7", "2", "4", "0", "1", 3, "Complete", "10s"]));
    check(status("Failed"), json!(["x", "d", "-", "-", "-", "-", "-", 3, "Failed", "10s"]));
    check(Value::Null, json!(["x", "d", "-", "-", "-", "-", "-", 0, "Pending", "<none>"]));
}
