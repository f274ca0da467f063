//! Devices: a taint says since when it is there.

use std::time::SystemTime;

use keelson_meta::Object;
use keelson_meta::clock::rfc3339;
use keelson_meta::json::{Value, json};

use super::strategy::Strategy;

fn date_taints(object: &mut Object, now: SystemTime) {
    let Some(spec) = object.0.get_mut("spec") else { return };
    let devices = spec.get("devices").and_then(Value::as_array).map_or(0, Vec::len);
    for index in 0..devices {
        let device = &mut spec["devices"][index];
        device.get_mut("taints").and_then(Value::as_array_mut).into_iter().flatten().for_each(|taint| date(taint, now));
        if let Some(taints) = device.pointer_mut("/basic/taints").and_then(Value::as_array_mut) {
            taints.iter_mut().for_each(|taint| date(taint, now));
        }
    }
    spec.get_mut("taint").into_iter().for_each(|taint| date(taint, now));
}

fn date(taint: &mut Value, now: SystemTime) {
    if let Value::Object(taint) = taint
        && taint.get("timeAdded").is_none_or(Value::is_null)
    {
        taint.insert("timeAdded", json!(rfc3339(now)));
    }
}

/// The strategy of device taint rules and of resource slices.
pub(super) struct Devices;

impl Strategy for Devices {
    fn complete_new(&self, object: &mut Object, now: SystemTime) -> bool {
        date_taints(object, now);
        true
    }
}
