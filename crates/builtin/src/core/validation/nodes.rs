//! Validation of nodes: taints, the address ranges of pods, and fields that can be set only once.
//!
//! Kubelets and cloud controllers write nodes. The ranges and the provider id never change once they are set.

use std::collections::HashSet;

use keelson_meta::field_error::{FieldError, FieldErrorKind};
use keelson_meta::json::{Value, json};

use crate::core::validation::pod::resources::quantity;
use crate::validating::at::At;
use crate::validating::formats::{CIDR, LABEL_VALUE, QUALIFIED_NAME, parse_cidr, strictly};
use crate::validating::type_rules::Rule::Check;
use crate::validating::type_rules::{Run, TypeRules};

pub(super) const NODE: TypeRules = TypeRules::new(&[
    ("", Check("taints with valid keys, values and effects; no duplicates of key and effect", taints)),
    ("status", Check("resource quantities", amounts)),
    ("spec", Check("at most one pod CIDR of each IP family", pod_ranges)),
]);

pub(super) const UPDATE: TypeRules = TypeRules::new(&[
    ("status", Check("addresses without duplicates", addresses)),
    ("spec", Check("`podCIDRs` and `providerID` are set once", set_once)),
]);

pub(super) const STATUS: TypeRules = TypeRules::new(&[
    ("status", Check("resource quantities", amounts)),
    ("status", Check("addresses without duplicates", addresses)),
    ("status", Check("feature names in ascending order, without duplicates", features)),
]);

/// Like upstream, the path of a taint is in the metadata, where taints were once annotations.
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
            // Like upstream, the error contains the Go structure.
            let since = taint.field("timeAdded").value;
            let shown =
                json!({ "Key": key.text(), "Value": value.text(), "Effect": effect.text(), "TimeAdded": since });
            let detail = "taints must be unique by key and effect pair".to_owned();
            let kind = FieldErrorKind::Duplicate { value: shown };
            run.report(|| FieldError { field: taint.path(), kind, detail });
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

/// Like upstream, the path has the resource as a field.
fn amounts(at: &At<'_, '_>, run: &mut Run<'_>) {
    for list in ["capacity", "allocatable"].map(|list| at.field(list)) {
        for (resource, _) in list.entries() {
            quantity(&list.field(resource), resource, run);
        }
    }
}

fn pod_ranges(spec: &At<'_, '_>, run: &mut Run<'_>) {
    let at = spec.field("podCIDRs");
    at.items().for_each(|range| strictly(&CIDR, &range, run));
    if at.list().len() < 2 {
        return;
    }
    let families: HashSet<bool> =
        at.items().filter_map(|range| parse_cidr(range.text())).map(|(address, _)| address.is_ipv4()).collect();
    if families.len() < 2 || at.list().len() > 2 {
        at.invalid(run, at.shown(), "may specify no more than one CIDR for each IP family");
    }
}

fn addresses(status: &At<'_, '_>, run: &mut Run<'_>) {
    let mut seen: HashSet<(&str, &str)> = HashSet::new();
    for address in status.field("addresses").items() {
        if !seen.insert((address.field("type").text(), address.field("address").text())) {
            address.duplicate(run, address.shown());
        }
    }
}

/// `MyFeature` or `MyFeature/MySubFeature`.
fn features(status: &At<'_, '_>, run: &mut Run<'_>) {
    let is_segment = |segment: &str, capital: bool| {
        let first = segment
            .chars()
            .next()
            .is_some_and(|c| if capital { c.is_ascii_uppercase() } else { c.is_ascii_alphabetic() });
        first && segment.chars().all(|c| c.is_ascii_alphanumeric())
    };
    let list = status.field("declaredFeatures");
    let (mut last, mut seen) = ("", HashSet::new());
    for feature in list.items() {
        let name = feature.text();
        if !name.split('/').enumerate().all(|(index, segment)| is_segment(segment, index == 0)) {
            let detail = format!(
                "invalid feature name {}: must start with an UpperCamelCase segment, with subsequent segments separated by \
                 '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes",
                keelson_meta::go_format::quote(name)
            );
            feature.invalid(run, name, detail);
        }
        if !seen.insert(name) {
            feature.duplicate(run, name);
        } else if name < last {
            feature.invalid(run, name, "list must be sorted");
        }
        last = name;
    }
}

fn set_once(spec: &At<'_, '_>, run: &mut Run<'_>) {
    let (ranges, provider) = (spec.field("podCIDRs"), spec.field("providerID"));
    let had = |old: &Value| !crate::validating::at::is_empty(old);
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
