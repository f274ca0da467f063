//! Validation of autoscalers: limits, target, metrics and behavior. They are stored as `v2`.
//!
//! An object sent as `v1` is validated in `v2`, and errors have the paths of `v2`.

#[cfg(test)]
mod tests;

use keelson_meta::Quantity;

use crate::core::validation::pod::resources::{amount, container_resource_name};
use crate::validating::at::At;
use crate::validating::formats::{DNS_LABEL, PATH_SEGMENT};
use crate::validating::type_rules::Rule::{
    self, Always, Check, Each, Format, In, NonNegative, OneOf, Required, StrictlyOneOf, Within,
};
use crate::validating::type_rules::{Kind, Run, TypeRules, kind};

pub(crate) const KINDS: &[Kind] = &[kind("HorizontalPodAutoscaler").object(&AUTOSCALER).below(&[("status", &STATUS)])];
/// The rules of kinds while a gate is on.
pub(crate) const GATED: &[(&str, Kind)] =
    &[("HPAScaleToZero", kind("HorizontalPodAutoscaler").object(&AUTOSCALER_TO_ZERO).below(&[("status", &STATUS)]))];

const AUTOSCALER: TypeRules = TypeRules::new(&[
    ("spec", Check("minReplicas of at least 1, or 0 with HPAScaleToZero; maxReplicas of at least minReplicas", bounds)),
    ("spec", Always(&SPEC)),
]);
const AUTOSCALER_TO_ZERO: TypeRules = TypeRules::new(&[
    ("spec", Check("minReplicas of at least 0; maxReplicas of at least minReplicas", bounds_from_zero)),
    ("spec", Always(&SPEC)),
]);
const SPEC: TypeRules = TypeRules::new(&[
    ("scaleTargetRef", Always(&REFERENCE)),
    ("metrics", Each(&METRIC)),
    ("", Check("minReplicas 0 needs an Object or External metric", to_zero)),
    ("behavior", In(&const { TypeRules::new(&[("scaleUp", In(&RULES)), ("scaleDown", In(&RULES))]) })),
]);

const REFERENCE: TypeRules = TypeRules::new(&[
    ("kind", Required("")),
    ("kind", Format(&PATH_SEGMENT)),
    ("name", Required("")),
    ("name", Format(&PATH_SEGMENT)),
    ("apiVersion", Check("a group, except for ReplicationController", target_version)),
]);

/// A value that was stored before this rule existed may stay.
fn target_version(at: &At<'_, '_>, run: &mut Run<'_>) {
    let kept = run.before.is_some() && at.is_unchanged();
    let controller = at.parent().is_some_and(|target| target.field("kind").text() == "ReplicationController");
    match at.text().split('/').collect::<Vec<_>>().as_slice() {
        _ if kept => {}
        [_] | ["", _] if controller => {}
        [_] | ["", _] => at.invalid(run, at.text(), "apiVersion must specify API group"),
        [_, _] => {}
        _ => {
            let text = at.text();
            at.invalid(run, text, format!("unexpected GroupVersion string: {text}"));
        }
    }
}

const RULES: TypeRules = TypeRules::new(&[
    ("stabilizationWindowSeconds", Within(0, i64::MAX, "must be greater than or equal to zero")),
    ("stabilizationWindowSeconds", Within(i64::MIN, 3600, "must be less than or equal to 3600")),
    ("selectPolicy", OneOf(&["Disabled", "Max", "Min"])),
    ("policies", Required("must specify at least one Policy")),
    ("policies", Each(&POLICY)),
    (
        "tolerance",
        Check("not negative", |at, run| {
            if amount(at).is_some_and(|tolerance| tolerance < Quantity::ZERO) {
                at.invalid(run, at.text(), "must be greater than or equal to 0");
            }
        }),
    ),
]);

const POLICY: TypeRules = TypeRules::new(&[
    ("type", StrictlyOneOf(&["Percent", "Pods"])),
    ("value", ABOVE_ZERO),
    ("periodSeconds", ABOVE_ZERO),
    ("periodSeconds", Within(i64::MIN, 1800, "must be less than or equal to 1800")),
]);
const ABOVE_ZERO: Rule = Within(1, i64::MAX, "must be greater than zero");

const STATUS: TypeRules = TypeRules::new(&[(
    "status",
    Always(&const { TypeRules::new(&[("currentReplicas", NonNegative), ("desiredReplicas", NonNegative)]) }),
)]);

/// The sources of metrics with their types, in upstream's order.
const SOURCES: [(&str, &str); 5] = [
    ("object", "Object"),
    ("external", "External"),
    ("pods", "Pods"),
    ("resource", "Resource"),
    ("containerResource", "ContainerResource"),
];
const TYPES: [&str; 5] = ["ContainerResource", "External", "Object", "Pods", "Resource"];

const METRIC: TypeRules = TypeRules::shared("Metric", &[("", Check("exactly the source of the type", metric))]);

/// A stored minimum of 0 may stay.
fn bounds(spec: &At<'_, '_>, run: &mut Run<'_>) {
    let lowest = i64::from(spec.field("minReplicas").old.as_i64() != Some(0));
    bounds_from(lowest, spec, run);
}

fn bounds_from_zero(spec: &At<'_, '_>, run: &mut Run<'_>) {
    bounds_from(0, spec, run);
}

fn bounds_from(lowest: i64, spec: &At<'_, '_>, run: &mut Run<'_>) {
    let (least, most) = (spec.field("minReplicas"), spec.field("maxReplicas"));
    if least.number().is_some_and(|number| number < lowest) {
        least.invalid(run, least.int(), format!("must be greater than or equal to {lowest}"));
    }
    if most.int() == 0 {
        most.required(run, "must be set and greater than 0");
    } else if most.int() < 0 {
        most.invalid(run, most.int(), "must be greater than 0");
    }
    if least.number().is_some_and(|number| most.int() < number) {
        most.invalid(run, most.int(), "must be greater than or equal to `minReplicas`");
    }
}

fn to_zero(spec: &At<'_, '_>, run: &mut Run<'_>) {
    let metrics = spec.field("metrics");
    let outside = metrics.list().iter().any(|metric| metric["type"] == "Object" || metric["type"] == "External");
    if spec.field("minReplicas").number() == Some(0) && !outside {
        metrics
            .forbidden(run, "must specify at least one Object or External metric to support scaling to zero replicas");
    }
}

fn metric(at: &At<'_, '_>, run: &mut Run<'_>) {
    let kind = at.field("type");
    if kind.is_empty() {
        kind.required(run, "must specify a metric source type");
    }
    if !TYPES.contains(&kind.text()) {
        kind.not_supported(run, kind.text(), &TYPES);
    }
    let given: Vec<&str> = SOURCES.iter().map(|(name, _)| *name).filter(|name| at.field_is_set(name)).collect();
    if let Some(first) = given.first() {
        source(first, &at.field(first), run);
    }
    let expected = SOURCES.iter().find(|(_, known)| *known == kind.text()).map(|(name, _)| *name);
    match expected {
        None => kind.not_supported(run, kind.text(), &TYPES),
        Some(name) if !given.contains(&name) => {
            at.field(name).required(run, "must populate information for the given metric source");
        }
        Some(_) => {}
    }
    if given.len() != 1 {
        for name in given.into_iter().filter(|name| Some(*name) != expected) {
            at.field(name).forbidden(run, "must populate the given metric source only");
        }
    }
}

fn source(name: &str, at: &At<'_, '_>, run: &mut Run<'_>) {
    let target = at.field("target");
    let [value, average, share] = ["value", "averageValue", "averageUtilization"].map(|field| target.field(field));
    match name {
        "object" | "external" | "pods" => {
            if name == "object" {
                reference(&at.field("describedObject"), run);
            }
            metric_name(&at.field("metric").field("name"), run);
        }
        _ => resource_of(name, at, run),
    }
    check_target(&target, run);
    match name {
        "object" if !value.is_set() && !average.is_set() => {
            average.required(run, "must set either a target value or averageValue");
        }
        "external" if !value.is_set() && !average.is_set() => {
            average.required(run, "must set either a target value for metric or a per-pod target");
        }
        "external" if value.is_set() && average.is_set() => {
            value.forbidden(run, "may not set both a target value for metric and a per-pod target");
        }
        "pods" if !average.is_set() => average.required(run, "must specify a positive target averageValue"),
        "resource" | "containerResource" => match (share.is_set(), average.is_set()) {
            (false, false) => share.required(run, "must set either a target raw value or a target utilization"),
            (true, true) => average.forbidden(run, "may not set both a target raw value and a target utilization"),
            _ => {}
        },
        _ => {}
    }
}

fn reference(at: &At<'_, '_>, run: &mut Run<'_>) {
    for field in ["kind", "name"].map(|field| at.field(field)) {
        named(&field, "", run);
    }
}

fn metric_name(at: &At<'_, '_>, run: &mut Run<'_>) {
    named(at, "must specify a metric name", run);
}

fn named(at: &At<'_, '_>, detail: &str, run: &mut Run<'_>) {
    if at.is_empty() {
        at.required(run, detail);
    } else {
        at.complain(run, PATH_SEGMENT.faults(at.text()));
    }
}

fn resource_of(name: &str, at: &At<'_, '_>, run: &mut Run<'_>) {
    let (resource, container) = (at.field("name"), at.field("container"));
    if resource.is_empty() {
        resource.required(run, "must specify a resource name");
    } else if name == "containerResource" {
        container_resource_name(&resource, resource.text(), run);
    }
    if name != "containerResource" {
        return;
    }
    if container.is_empty() {
        container.required(run, "must specify a container");
    } else {
        container.complain(run, DNS_LABEL.faults(container.text()));
    }
}

fn check_target(at: &At<'_, '_>, run: &mut Run<'_>) {
    let kind = at.field("type");
    if kind.is_empty() {
        kind.required(run, "must specify a metric target type");
    }
    if !matches!(kind.text(), "Utilization" | "Value" | "AverageValue") {
        kind.invalid(run, kind.text(), "must be either Utilization, Value, or AverageValue");
    }
    for field in ["value", "averageValue"].map(|field| at.field(field)) {
        if amount(&field).is_some_and(|amount| amount <= Quantity::ZERO) {
            field.invalid(run, field.text(), "must be positive");
        }
    }
    let share = at.field("averageUtilization");
    if share.number().is_some_and(|share| share < 1) {
        share.invalid(run, share.int(), "must be greater than 0");
    }
}
