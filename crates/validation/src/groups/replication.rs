//! What all workloads have in common that keep a number of pods: the template has to fit the selector.

use keelson_meta::json::Value;

use crate::at::At;
use crate::pod::TEMPLATE;
use crate::selectors::matches;
use crate::shape::Rule::{Always, Check, In, NonNegative, Required};
use crate::shape::{Run, Shape};

pub(super) const CONTROLLER: Shape = Shape::of(&[(
    "spec",
    Always(
        &const {
            Shape::of(&[
                ("minReadySeconds", NonNegative),
                ("selector", Required("")),
                ("replicas", NonNegative),
                ("template", Required("")),
                ("", Check("the selector matches the template", controller_selects)),
                ("template", In(&TEMPLATE)),
                ("template", Check("pods that are always restarted, without a deadline", controller_pods)),
            ])
        },
    ),
)]);

/// The status of a replication controller, and of a replica set.
pub(super) const CONTROLLER_STATUS: Shape = Shape::of(&[(
    "status",
    Always(
        &const {
            Shape::of(&[
                ("replicas", NonNegative),
                ("fullyLabeledReplicas", NonNegative),
                ("readyReplicas", NonNegative),
                ("availableReplicas", NonNegative),
                ("observedGeneration", NonNegative),
                ("", Check("no part is more than the whole", controller_parts)),
            ])
        },
    ),
)]);

fn controller_selects(spec: &At<'_, '_>, run: &mut Run<'_>) {
    let labels = template_labels(spec);
    let fits = |(key, value): (&str, &Value)| labels.get(key) == Some(value);
    if !spec.field("selector").tree().into_iter().flatten().all(fits) {
        report_labels(spec, run);
    }
}

fn controller_pods(template: &At<'_, '_>, run: &mut Run<'_>) {
    if template.is_set() {
        always_restarted(template, "activeDeadlineSeconds in ReplicationController is not Supported", run);
    }
}

/// The template's labels have to be what the selector selects.
pub(super) fn template_fits(spec: &At<'_, '_>, run: &mut Run<'_>) {
    let selector = spec.field("selector");
    if selector.is_set() && !matches(selector.value, template_labels(spec)) {
        report_labels(spec, run);
    }
}

fn template_labels<'v>(spec: &At<'v, '_>) -> &'v Value {
    let template = spec.field("template");
    let metadata = template.field("metadata");
    metadata.field("labels").value
}

fn report_labels(spec: &At<'_, '_>, run: &mut Run<'_>) {
    let template = spec.field("template");
    let metadata = template.field("metadata");
    let labels = metadata.field("labels");
    labels.invalid(run, labels.value.clone(), "`selector` does not match template `labels`");
}

/// Pods of a workload that keeps them running.
pub(super) fn always_restarted(template: &At<'_, '_>, deadline: &str, run: &mut Run<'_>) {
    let spec = template.field("spec");
    let (policy, limit) = (spec.field("restartPolicy"), spec.field("activeDeadlineSeconds"));
    if policy.text() != "Always" {
        policy.not_supported(run, policy.text(), &["Always"]);
    }
    if limit.is_set() {
        limit.forbidden(run, deadline);
    }
}

fn controller_parts(status: &At<'_, '_>, run: &mut Run<'_>) {
    parts(status, &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"], run);
}

/// Reports parts of the replicas that are more than there are, and more available ones than ready ones.
pub(super) fn parts(status: &At<'_, '_>, names: &[&'static str], run: &mut Run<'_>) {
    let total = status.field("replicas").int();
    for name in names {
        let part = status.field(name);
        if part.int() > total {
            part.invalid(run, part.int(), "cannot be greater than status.replicas");
        }
    }
    let (ready, available) = (status.field("readyReplicas"), status.field("availableReplicas"));
    if names.contains(&"availableReplicas") && available.int() > ready.int() {
        available.invalid(run, available.int(), "cannot be greater than readyReplicas");
    }
}
