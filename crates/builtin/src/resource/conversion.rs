//! Conversion of devices and claims between `resource.k8s.io/v1beta1` and later versions.
//!
//! In later versions, a request for exactly one kind of device is in `exactly`, and the properties of a device are not
//! in `basic`. Unknown fields stay in their place, so that a round trip changes nothing.

use keelson_meta::json::{Map, Value, json};

use crate::converting::conversion::ConversionError;
use crate::converting::families::{Family, family, form, hub};
use crate::converting::tree::{append_rest, each_in, is_unset, object, take, take_object};

const GROUP: &str = "resource.k8s.io";

pub(crate) const FAMILIES: &[Family] = &[
    family("DeviceClass", &[hub(GROUP, "v1"), hub(GROUP, "v1beta2"), hub(GROUP, "v1beta1")]),
    family("DeviceTaintRule", &[hub(GROUP, "v1"), hub(GROUP, "v1beta2"), hub(GROUP, "v1alpha3")]),
    family(
        "ResourceClaim",
        &[hub(GROUP, "v1"), hub(GROUP, "v1beta2"), form(GROUP, "v1beta1", nest_claim, flatten_claim)],
    ),
    family(
        "ResourceClaimTemplate",
        &[hub(GROUP, "v1"), hub(GROUP, "v1beta2"), form(GROUP, "v1beta1", nest_template, flatten_template)],
    ),
    family("ResourceSlice", &[hub(GROUP, "v1"), hub(GROUP, "v1beta2"), form(GROUP, "v1beta1", lift_slice, wrap_slice)]),
];

/// The fields of `exactly` in later versions, in its order.
const EXACTLY: [&str; 7] =
    ["deviceClassName", "selectors", "allocationMode", "count", "adminAccess", "tolerations", "capacity"];

/// The number of these fields before `firstAvailable` in v1beta1.
const BEFORE_FIRST_AVAILABLE: usize = 5;

/// The fields of `basic` in v1beta1, in its order.
const BASIC: [&str; 13] = [
    "attributes",
    "capacity",
    "consumesCounters",
    "nodeName",
    "nodeSelector",
    "allNodes",
    "taints",
    "bindsToNode",
    "bindingConditions",
    "bindingFailureConditions",
    "allowMultipleAllocations",
    "nodeAllocatableResourceMappings",
    "nodeAllocatableResources",
];

/// Converts a claim from v1beta1.
pub(crate) fn nest_claim(claim: &mut Map) -> Result<(), ConversionError> {
    each_request(claim, nest_request)
}

/// Converts a claim to v1beta1.
pub(crate) fn flatten_claim(claim: &mut Map) -> Result<(), ConversionError> {
    each_request(claim, flatten_request)
}

/// Converts a claim template from v1beta1.
pub(crate) fn nest_template(template: &mut Map) -> Result<(), ConversionError> {
    object(template, "spec")?.map_or(Ok(()), nest_claim)
}

/// Converts a claim template to v1beta1.
pub(crate) fn flatten_template(template: &mut Map) -> Result<(), ConversionError> {
    object(template, "spec")?.map_or(Ok(()), flatten_claim)
}

/// Converts a slice from v1beta1.
pub(crate) fn lift_slice(slice: &mut Map) -> Result<(), ConversionError> {
    let Some(spec) = object(slice, "spec")? else { return Ok(()) };
    drop_empty_placement(spec);
    each_in(spec, "devices", lift_device)
}

/// Converts a slice to v1beta1.
pub(crate) fn wrap_slice(slice: &mut Map) -> Result<(), ConversionError> {
    let Some(spec) = object(slice, "spec")? else { return Ok(()) };
    drop_empty_placement(spec);
    each_in(spec, "devices", wrap_device)
}

fn each_request(claim: &mut Map, change: fn(&mut Map) -> Result<(), ConversionError>) -> Result<(), ConversionError> {
    let Some(spec) = object(claim, "spec")? else { return Ok(()) };
    let Some(devices) = object(spec, "devices")? else { return Ok(()) };
    each_in(devices, "requests", change)
}

/// Adds `exactly` if one of its fields is set. The device class is always written, even if it is empty.
fn nest_request(request: &mut Map) -> Result<(), ConversionError> {
    let mut rest = std::mem::take(request);
    let unknown = take_object(&mut rest, "exactly")?;
    let mut exactly = Map::new();
    for field in EXACTLY {
        if let Some(value) = take(&mut rest, field).filter(|value| !is_unset(value)) {
            exactly.insert(field, value);
        }
    }
    if !exactly.is_empty() && !exactly.contains_key("deviceClassName") {
        exactly.insert_first("deviceClassName", json!(""));
    }
    append_rest(&mut exactly, unknown.unwrap_or_default());
    carry(&mut rest, "name", request);
    if !exactly.is_empty() {
        request.insert("exactly", Value::Object(exactly));
    }
    append_rest(request, rest);
    Ok(())
}

fn flatten_request(request: &mut Map) -> Result<(), ConversionError> {
    let mut rest = std::mem::take(request);
    let mut exactly = take_object(&mut rest, "exactly")?.unwrap_or_default();
    if exactly.get("deviceClassName").is_some_and(is_unset) {
        exactly.remove("deviceClassName");
    }
    carry(&mut rest, "name", request);
    let (before, behind) = EXACTLY.split_at(BEFORE_FIRST_AVAILABLE);
    before.iter().for_each(|field| carry(&mut exactly, field, request));
    carry(&mut rest, "firstAvailable", request);
    behind.iter().for_each(|field| carry(&mut exactly, field, request));
    if !exactly.is_empty() {
        request.insert("exactly", Value::Object(exactly));
    }
    append_rest(request, rest);
    Ok(())
}

fn lift_device(device: &mut Map) -> Result<(), ConversionError> {
    let mut rest = std::mem::take(device);
    let mut basic = take_object(&mut rest, "basic")?.unwrap_or_default();
    carry(&mut rest, "name", device);
    BASIC.iter().for_each(|field| carry(&mut basic, field, device));
    if !basic.is_empty() {
        device.insert("basic", Value::Object(basic));
    }
    append_rest(device, rest);
    Ok(())
}

/// In v1beta1 every device has `basic`, even without properties.
fn wrap_device(device: &mut Map) -> Result<(), ConversionError> {
    let mut rest = std::mem::take(device);
    let unknown = take_object(&mut rest, "basic")?.unwrap_or_default();
    carry(&mut rest, "name", device);
    let mut basic = Map::new();
    BASIC.iter().for_each(|field| carry(&mut rest, field, &mut basic));
    append_rest(&mut basic, unknown);
    device.insert("basic", Value::Object(basic));
    append_rest(device, rest);
    Ok(())
}

/// In v1beta1 an empty node name, or `allNodes: false`, equals an absent field. Later versions forbid both.
fn drop_empty_placement(spec: &mut Map) {
    for field in ["nodeName", "allNodes"] {
        if spec.get(field).is_some_and(|value| is_unset(value) || *value == json!(false)) {
            spec.remove(field);
        }
    }
}

fn carry(from: &mut Map, field: &str, to: &mut Map) {
    if let Some(value) = take(from, field) {
        to.insert(field, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::converting::conversion::ConvertFn;

    fn check(step: ConvertFn, from: &Value, to: &Value) {
        let Value::Object(mut tree) = from.clone() else { panic!("not an object") };
        step(&mut tree).expect("it converts");
        assert_eq!(Value::Object(tree).to_string(), to.to_string(), "order counts");
    }

    fn claim(requests: &Value) -> Value {
        json!({"kind": "ResourceClaim", "spec": {"devices": {"requests": requests, "config": []}}, "status": {}})
    }

    #[test]
    fn a_request_for_one_class_is_nested() {
        let old =
            claim(&json!([{"name": "a", "deviceClassName": "gpu", "selectors": [{"cel": {"expression": "true"}}],
            "allocationMode": "ExactCount", "count": 2, "adminAccess": false, "tolerations": [{"key": "k"}],
            "capacity": {"requests": {"memory": "1Gi"}}, "unknown": 1}]));
        let new = claim(&json!([{"name": "a", "exactly": {"deviceClassName": "gpu",
            "selectors": [{"cel": {"expression": "true"}}], "allocationMode": "ExactCount", "count": 2,
            "adminAccess": false, "tolerations": [{"key": "k"}], "capacity": {"requests": {"memory": "1Gi"}}},
            "unknown": 1}]));
        check(nest_claim, &old, &new);
        check(flatten_claim, &new, &old);
        let template = |claim: &Value| json!({"metadata": {}, "spec": {"metadata": {}, "spec": claim["spec"]}});
        check(nest_template, &template(&old), &template(&new));
        check(flatten_template, &template(&new), &template(&old));
    }

    #[test]
    fn a_choice_between_classes_is_the_same_in_both() {
        let same =
            claim(&json!([{"name": "a", "firstAvailable": [{"name": "x", "deviceClassName": "gpu", "count": 1}]}]));
        check(nest_claim, &same, &same);
        check(flatten_claim, &same, &same);
    }

    #[test]
    fn a_missing_device_class_becomes_empty_when_nested() {
        let old = claim(&json!([{"name": "a", "allocationMode": "All"}, {"name": "b", "count": 0}]));
        let new =
            claim(&json!([{"name": "a", "exactly": {"deviceClassName": "", "allocationMode": "All"}}, {"name": "b"}]));
        check(nest_claim, &old, &new);
        check(flatten_claim, &new, &claim(&json!([{"name": "a", "allocationMode": "All"}, {"name": "b"}])));
    }

    #[test]
    fn unknown_fields_below_exactly_survive_conversion() {
        let new = claim(&json!([{"name": "a", "exactly": {"deviceClassName": "gpu", "unknown": 1}}]));
        let old = claim(&json!([{"name": "a", "deviceClassName": "gpu", "exactly": {"unknown": 1}}]));
        check(flatten_claim, &new, &old);
        check(nest_claim, &old, &new);
    }

    #[test]
    fn a_device_is_wrapped_as_a_basic_one() {
        let slice = |devices: Value| json!({"spec": {"driver": "d", "pool": {"name": "p"}, "devices": devices}});
        let new = slice(json!([
            {"name": "a", "attributes": {"model": {"string": "x"}}, "capacity": {"memory": {"value": "1Gi"}},
             "allNodes": true, "nodeAllocatableResourceMappings": {"cpu": {}}},
            {"name": "b"}
        ]));
        let old = slice(json!([
            {"name": "a", "basic": {"attributes": {"model": {"string": "x"}}, "capacity": {"memory": {"value": "1Gi"}},
             "allNodes": true, "nodeAllocatableResourceMappings": {"cpu": {}}}},
            {"name": "b", "basic": {}}
        ]));
        check(wrap_slice, &new, &old);
        check(lift_slice, &old, &new);
    }

    #[test]
    fn an_empty_placement_is_none() {
        let slice =
            json!({"spec": {"driver": "d", "nodeName": "", "allNodes": false, "perDeviceNodeSelection": false}});
        let bare = json!({"spec": {"driver": "d", "perDeviceNodeSelection": false}});
        check(lift_slice, &slice, &bare);
        check(wrap_slice, &slice, &bare);
    }

    #[test]
    fn wrong_shapes_are_refused_and_missing_ones_are_not() {
        for step in [nest_claim as ConvertFn, flatten_claim, nest_template, flatten_template, lift_slice, wrap_slice] {
            check(step, &json!({}), &json!({}));
            check(step, &json!({"spec": null}), &json!({"spec": null}));
            assert!(step(json!({"spec": 1}).as_object_mut().expect("an object")).is_err());
        }
        for spec in
            [json!({"devices": {"requests": {}}}), json!({"devices": {"requests": [1]}}), json!({"devices": []})]
        {
            assert!(nest_claim(json!({"spec": spec}).as_object_mut().expect("an object")).is_err(), "{spec}");
        }
        let mut request = claim(&json!([{"exactly": 1}]));
        assert!(flatten_claim(request.as_object_mut().expect("an object")).is_err());
    }
}
