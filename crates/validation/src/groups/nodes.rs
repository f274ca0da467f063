//! Nodes: taints, the ranges of their pods' addresses, and what is set once.

use std::collections::HashSet;

use keelson_meta::field_error::FieldErrorKind;
use keelson_meta::json::Value;

use crate::at::At;
use crate::formats::{CIDR, LABEL_VALUE, QUALIFIED_NAME, parse_cidr};
use crate::pod::resources::quantity;
use crate::shape::Rule::Check;
use crate::shape::{Run, Shape};

pub(super) const NODE: Shape = Shape::of(&[
    ("", Check("taints with keys, values and effects, each pair once", taints)),
    ("status", Check("resource quantities", amounts)),
    ("spec", Check("CIDRs of pods, one of each family", pod_ranges)),
]);

pub(super) const UPDATE: Shape = Shape::of(&[
    ("status", Check("addresses, each once", addresses)),
    ("spec", Check("CIDRs of pods and the provider's id are set once", set_once)),
]);

pub(super) const STATUS: Shape = Shape::of(&[
    ("status", Check("resource quantities", amounts)),
    ("status", Check("addresses, each once", addresses)),
]);

/// Upstream takes taints for a part of metadata, since they once were annotations.
fn taints(at: &At<'_, '_>, run: &mut Run<'_>) {
    let (metadata, spec) = (at.field("metadata"), at.field("spec"));
    let list = spec.field("taints");
    let place = metadata.field("taints");
    let place = place.holding(list.value);
    let mut seen = HashSet::new();
    for taint in place.items() {
        let (key, value, effect) = (taint.field("key"), taint.field("value"), taint.field("effect"));
        key.complain(run, QUALIFIED_NAME.faults(key.text()));
        let faults = LABEL_VALUE.faults(value.text());
        if !faults.is_empty() {
            value.invalid(run, value.text(), faults.join(";"));
        }
        taint_effect(&effect, run);
        if !seen.insert((key.text(), effect.text())) {
            taint.duplicate(run, taint.value.clone());
            if let Some(fault) = run.faults.last_mut() {
                debug_assert!(matches!(fault.kind, FieldErrorKind::Duplicate { .. }));
                fault.detail = "taints must be unique by key and effect pair".to_owned();
            }
        }
    }
}

fn taint_effect(at: &At<'_, '_>, run: &mut Run<'_>) {
    const KNOWN: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
    if at.is_empty() {
        at.required(run, "");
    } else if !KNOWN.contains(&at.text()) {
        at.not_supported(run, at.text(), &KNOWN);
    }
}

/// Upstream writes the resource as a field here.
fn amounts(at: &At<'_, '_>, run: &mut Run<'_>) {
    for list in ["capacity", "allocatable"].map(|list| at.field(list)) {
        for (resource, _) in list.entries() {
            quantity(&list.field(resource), resource, run);
        }
    }
}

fn pod_ranges(spec: &At<'_, '_>, run: &mut Run<'_>) {
    let at = spec.field("podCIDRs");
    at.items().for_each(|range| range.complain(run, CIDR.faults(range.text())));
    if at.list().len() < 2 {
        return;
    }
    let families: HashSet<bool> =
        at.items().filter_map(|range| parse_cidr(range.text())).map(|(address, _)| address.is_ipv4()).collect();
    if families.len() < 2 || at.list().len() > 2 {
        at.invalid(run, at.value.clone(), "may specify no more than one CIDR for each IP family");
    }
    let mut seen = HashSet::new();
    for range in at.items() {
        if !seen.insert(range.text()) {
            range.duplicate(run, range.text());
        }
    }
}

fn addresses(status: &At<'_, '_>, run: &mut Run<'_>) {
    let mut seen: HashSet<(&str, &str)> = HashSet::new();
    for address in status.field("addresses").items() {
        if !seen.insert((address.field("type").text(), address.field("address").text())) {
            address.duplicate(run, address.value.clone());
        }
    }
}

fn set_once(spec: &At<'_, '_>, run: &mut Run<'_>) {
    let (ranges, provider) = (spec.field("podCIDRs"), spec.field("providerID"));
    let had = |old: &Value| !crate::at::is_empty(old);
    if had(ranges.old) && !ranges.is_unchanged() {
        ranges.forbidden(run, "node updates may not change podCIDR except from \"\" to valid");
    }
    if had(provider.old) && !provider.is_unchanged() {
        provider.forbidden(run, "node updates may not change providerID except from \"\" to valid");
    }
    let external = spec.field("externalID");
    if !external.is_unchanged() {
        external.forbidden(run, "may not be updated");
    }
}
