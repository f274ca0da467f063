//! Validation shared by workloads with replicas: the selector must match the template.
//!
//! The template has the rules of pods, and its restart policy must be Always.

use keelson_meta::json::Value;

use crate::core::validation::pod::TEMPLATE;
use crate::validating::at::At;
use crate::validating::selectors::{is_sound, matches};
use crate::validating::type_rules::Rule::{Always, Around, Check, NonNegative, Required};
use crate::validating::type_rules::{Run, TypeRules};

pub(super) const CONTROLLER: TypeRules = TypeRules::new(&[(
    "spec",
    Always(
        &const {
            TypeRules::new(&[
                ("minReadySeconds", NonNegative),
                ("selector", Required("")),
                ("replicas", NonNegative),
                ("template", Required("")),
                (
                    "template",
                    Around(
                        "a template that the selector matches, with restart policy Always",
                        controller_pods,
                        &TEMPLATE,
                    ),
                ),
            ])
        },
    ),
)]);

/// The status of replication controllers and replica sets.
pub(crate) const CONTROLLER_STATUS: TypeRules = TypeRules::new(&[(
    "status",
    Always(
        &const {
            TypeRules::new(&[
                ("replicas", NonNegative),
                ("fullyLabeledReplicas", NonNegative),
                ("readyReplicas", NonNegative),
                ("availableReplicas", NonNegative),
                ("observedGeneration", NonNegative),
                ("terminatingReplicas", NonNegative),
                ("", Check("no count exceeds `replicas`", controller_parts)),
            ])
        },
    ),
)]);

fn controller_pods<'v>(template: &At<'v, '_>, run: &mut Run<'v>) {
    let Some(spec) = template.parent().filter(|_| template.is_set()) else { return };
    let labels = template_labels(spec);
    let fits = |(key, value): (&str, &Value)| labels.get(key) == Some(value);
    if !spec.field("selector").tree().into_iter().flatten().all(fits) {
        report_labels(spec, run);
    }
    TEMPLATE.check(template, run);
    if spec.field("replicas").int() > 1 {
        disks_can_be_shared(template, run);
    }
    always_restarted(template, "activeDeadlineSeconds in ReplicationController is not Supported", run);
}

/// Reports an error if the selector does not match the labels of the template. An absent selector matches nothing. An
/// invalid selector is not compared.
pub(crate) fn template_fits(spec: &At<'_, '_>, run: &mut Run<'_>) {
    let selector = spec.field("selector");
    if is_sound(&selector) && (!selector.is_set() || !matches(selector.value, template_labels(spec))) {
        report_labels(spec, run);
    }
}

/// Several pods can use a GCE disk only if all mount it read-only.
pub(crate) fn disks_can_be_shared(template: &At<'_, '_>, run: &mut Run<'_>) {
    let spec = template.field("spec");
    let volumes = spec.field("volumes");
    let writes = |volume: &Value| volume.get("gcePersistentDisk").is_some_and(|disk| disk["readOnly"] != true);
    if volumes.old.as_array().into_iter().flatten().any(writes) {
        return;
    }
    for volume in volumes.items().filter(|volume| writes(volume.value)) {
        let detail = "must be true for replicated pods > 1; GCE PD can only be mounted on multiple machines if it is \
                      read-only";
        volume.field("gcePersistentDisk").field("readOnly").invalid(run, false, detail);
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
    labels.invalid(run, labels.shown(), "`selector` does not match template `labels`");
}

/// Reports an error if pods are not always restarted, or have a deadline.
pub(crate) fn always_restarted(template: &At<'_, '_>, deadline: &str, run: &mut Run<'_>) {
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

/// Reports counts that exceed the number of replicas, and more available replicas than ready ones.
pub(crate) fn parts(status: &At<'_, '_>, names: &[&'static str], run: &mut Run<'_>) {
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
