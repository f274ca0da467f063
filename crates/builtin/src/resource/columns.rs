//! The columns of resource.k8s.io: devices, claims and the status of pools.
//!
//! The state of a claim is computed from its status and the deletion timestamp.

use keelson_meta::json::Value;
use keelson_tables::column::{AGE, Column, NAME};
use keelson_tables::field_value::Subject;
use keelson_tables::printer::Printer;

use crate::resource::column_docs as docs;

pub(crate) fn printer(kind: &str) -> Option<Printer> {
    Some(match kind {
        "DeviceClass" | "ResourceClaimTemplate" => Printer::new(NAME_AND_AGE, name_and_age),
        "DeviceTaintRule" => Printer::new(DEVICE_TAINT_RULE, device_taint_rule),
        "ResourceClaim" => Printer::new(RESOURCE_CLAIM, resource_claim),
        "ResourcePoolStatusRequest" => Printer::new(POOL_STATUS_REQUEST, pool_status_request),
        "ResourceSlice" => Printer::new(RESOURCE_SLICE, resource_slice),
        _ => return None,
    })
}

const NAME_AND_AGE: &[Column<'_>] = &[NAME, AGE];

fn name_and_age(of: Subject<'_>) -> Vec<Value> {
    vec![of.name(), of.age()]
}

const DEVICE_TAINT_RULE: &[Column<'_>] = &[
    NAME,
    Column::text("Key", "The taint key to be applied to a device. Must be a label name."),
    Column::text("Value", "The taint value corresponding to the taint key. Must be a label value."),
    Column::text("Effect", docs::DEVICE_TAINT_RULE_EFFECT),
    Column::text("TimeAdded", docs::DEVICE_TAINT_RULE_TIME_ADDED),
    AGE,
];

fn device_taint_rule(of: Subject<'_>) -> Vec<Value> {
    let taint = of.at("spec").at("taint");
    let added = taint.at("timeAdded");
    vec![
        of.name(),
        taint.at("key").cell(),
        taint.at("value").cell(),
        taint.at("effect").cell(),
        if added.is_set() { of.since(added).into() } else { "".into() },
        of.age(),
    ]
}

const RESOURCE_CLAIM: &[Column<'_>] =
    &[NAME, Column::text("State", "A summary of the current state (allocated, pending, reserved, etc.)."), AGE];

fn resource_claim(of: Subject<'_>) -> Vec<Value> {
    let status = of.at("status");
    let reserved = !status.at("reservedFor").is_empty();
    let state = match (of.deleting(), status.at("allocation").is_set(), reserved) {
        (true, true, true) => "deleted,allocated,reserved",
        (true, true, false) => "deleted,allocated",
        (true, false, _) => "deleted",
        (false, true, true) => "allocated,reserved",
        (false, true, false) => "allocated",
        (false, false, _) => "pending",
    };
    vec![of.name(), state.into(), of.age()]
}

const RESOURCE_SLICE: &[Column<'_>] = &[
    NAME,
    Column::text("Node", docs::RESOURCE_SLICE_NODE),
    Column::text("Driver", docs::RESOURCE_SLICE_DRIVER),
    Column::text("Pool", docs::RESOURCE_SLICE_POOL),
    AGE,
];

fn resource_slice(of: Subject<'_>) -> Vec<Value> {
    let spec = of.at("spec");
    vec![of.name(), spec.at("nodeName").cell(), spec.at("driver").cell(), spec.at("pool").at("name").cell(), of.age()]
}

const POOL_STATUS_REQUEST: &[Column<'_>] = &[
    NAME,
    Column::text("Driver", "The driver to query pools for."),
    Column::text("Total", "Total number of devices across all pools."),
    Column::text("Available", "Number of available devices across all pools."),
    Column::text("Allocated", "Number of allocated devices across all pools."),
    Column::text("Unavailable", "Number of unavailable devices across all pools."),
    Column::text("Errors", "Number of pools with validation errors."),
    Column::integer("Pools", "Total number of matching pools."),
    Column::text("Status", "Processing status."),
    Column::text("Completed", "Time since the observation completed."),
];

/// The sums over all pools, once they are computed.
fn pool_status_request(of: Subject<'_>) -> Vec<Value> {
    let status = of.at("status");
    let (complete, failed) =
        (status.at("conditions").condition("Complete"), status.at("conditions").condition("Failed"));
    let (state, finished) = match (complete.holds(), failed.holds()) {
        (true, _) => ("Complete", complete),
        (false, true) => ("Failed", failed),
        (false, false) => ("Pending", failed),
    };
    let known = |sum: i64| if complete.holds() { sum.to_string().into() } else { "-".into() };
    let pools = || status.at("pools").items();
    let devices = |field: &str| known(pools().map(|pool| pool.at(field).int()).sum());
    let errors = pools().filter(|pool| !pool.at("validationError").text().is_empty()).count();
    vec![
        of.name(),
        of.at("spec").at("driver").cell(),
        devices("totalDevices"),
        devices("availableDevices"),
        devices("allocatedDevices"),
        devices("unavailableDevices"),
        known(i64::try_from(errors).unwrap_or(i64::MAX)),
        status.at("poolCount").int_cell(),
        state.into(),
        if finished.holds() { of.since(finished.at("lastTransitionTime")).into() } else { "<none>".into() },
    ]
}
