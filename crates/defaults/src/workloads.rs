//! Defaults of what makes pods: deployments, the sets, replication controllers, jobs and cron jobs.
//!
//! Their templates are in `pod.rs`. What a controller counts on, such as the strategy of an update, is always filled in.

use keelson_meta::json::{Map, Value};

use crate::pod::TEMPLATE;
use crate::shape::Rule::{Always, Each, Flag, In, Number, Text, TextIfAbsent};
use crate::shape::{Shape, Step, is_absent, is_unset, object, peek, set, text};
use crate::storage::CLAIM_TEMPLATE;

/// The shape of a kind of `apps` and `batch`, and of replication controllers.
pub(crate) fn shape(kind: &str) -> Option<&'static Shape> {
    match kind {
        "Deployment" => Some(&DEPLOYMENT),
        "ReplicaSet" => Some(&REPLICA_SET),
        "StatefulSet" => Some(&STATEFUL_SET),
        "DaemonSet" => Some(&DAEMON_SET),
        "ReplicationController" => Some(&REPLICATION_CONTROLLER),
        "Job" => Some(&JOB),
        "CronJob" => Some(&CRON_JOB),
        _ => None,
    }
}

const DEPLOYMENT: Shape = Shape::of(&[(
    "spec",
    Always(
        &const {
            Shape::of(&[
                ("replicas", Number(1)),
                ("template", Always(&TEMPLATE)),
                ("strategy", Always(&DEPLOYMENT_STRATEGY)),
                ("revisionHistoryLimit", Number(10)),
                ("progressDeadlineSeconds", Number(600)),
            ])
        },
    ),
)]);

const DEPLOYMENT_STRATEGY: Shape = Shape {
    fields: &[("type", Text("RollingUpdate"))],
    then: &[Step::Run(ROLLING, |strategy| rolling(strategy, &QUARTERS))],
};

/// What the details of a strategy depend on.
const ROLLING: &[&str] = &["type", "rollingUpdate"];

/// What workloads take over from their templates, and where they put it.
const SELECTION: &[&str] = &["metadata.labels", "spec.selector", "spec.template.metadata.labels"];

const QUARTERS: Shape = Shape::of(&[("maxUnavailable", Text("25%")), ("maxSurge", Text("25%"))]);

const REPLICA_SET: Shape =
    Shape::of(&[("spec", Always(&const { Shape::of(&[("replicas", Number(1)), ("template", Always(&TEMPLATE))]) }))]);

const STATEFUL_SET: Shape = Shape::of(&[(
    "spec",
    Always(
        &const {
            Shape::of(&[
                ("replicas", Number(1)),
                ("template", Always(&TEMPLATE)),
                ("volumeClaimTemplates", Each(&CLAIM_TEMPLATE)),
                ("podManagementPolicy", Text("OrderedReady")),
                ("updateStrategy", Always(&STATEFUL_SET_STRATEGY)),
                ("revisionHistoryLimit", Number(10)),
                ("persistentVolumeClaimRetentionPolicy", Always(&RETENTION)),
            ])
        },
    ),
)]);

const STATEFUL_SET_STRATEGY: Shape = Shape { fields: &[], then: &[Step::Run(ROLLING, partition)] };

const RETENTION: Shape = Shape::of(&[("whenDeleted", Text("Retain")), ("whenScaled", Text("Retain"))]);

const DAEMON_SET: Shape = Shape::of(&[(
    "spec",
    Always(
        &const {
            Shape::of(&[
                ("template", Always(&TEMPLATE)),
                ("updateStrategy", Always(&DAEMON_SET_STRATEGY)),
                ("revisionHistoryLimit", Number(10)),
            ])
        },
    ),
)]);

const DAEMON_SET_STRATEGY: Shape = Shape {
    fields: &[("type", Text("RollingUpdate"))],
    then: &[Step::Run(ROLLING, |strategy| rolling(strategy, &ONE_BY_ONE))],
};

const ONE_BY_ONE: Shape = Shape::of(&[("maxUnavailable", Number(1)), ("maxSurge", Number(0))]);

const REPLICATION_CONTROLLER: Shape = Shape {
    fields: &[("spec", Always(&const { Shape::of(&[("replicas", Number(1)), ("template", In(&TEMPLATE))]) }))],
    then: &[Step::Run(SELECTION, selector_from_template), Step::Run(SELECTION, labels_from_template)],
};

const JOB: Shape =
    Shape { fields: &[("spec", Always(&JOB_SPEC))], then: &[Step::Run(SELECTION, labels_from_template)] };

const JOB_SPEC: Shape = Shape {
    fields: &[
        ("template", Always(&TEMPLATE)),
        ("completionMode", TextIfAbsent("NonIndexed")),
        ("suspend", Flag(false)),
        ("manualSelector", Flag(false)),
        ("podFailurePolicy", In(&FAILURE_POLICY)),
    ],
    then: &[
        Step::Run(&["completions", "parallelism", "backoffLimitPerIndex", "backoffLimit"], job_counts),
        Step::Run(&["podFailurePolicy", "podReplacementPolicy"], replacement_policy),
    ],
};

const FAILURE_POLICY: Shape = Shape::of(&[("rules", Each(&FAILURE_RULE))]);

const FAILURE_RULE: Shape = Shape::of(&[("onPodConditions", Each(&const { Shape::of(&[("status", Text("True"))]) }))]);

const CRON_JOB: Shape = Shape::of(&[(
    "spec",
    Always(
        &const {
            Shape::of(&[
                ("jobTemplate", Always(&JOB_TEMPLATE)),
                ("concurrencyPolicy", Text("Allow")),
                ("suspend", Flag(false)),
                ("successfulJobsHistoryLimit", Number(3)),
                ("failedJobsHistoryLimit", Number(1)),
            ])
        },
    ),
)]);

/// The jobs themselves get their defaults when they are made.
const JOB_TEMPLATE: Shape = Shape::of(&[(
    "spec",
    Always(&const { Shape::of(&[("template", Always(&TEMPLATE)), ("podFailurePolicy", In(&FAILURE_POLICY))]) }),
)]);

fn rolling(strategy: &mut Map, shape: &'static Shape) {
    if text(strategy, "type") == "RollingUpdate" {
        Always(shape).apply(strategy, "rollingUpdate");
    }
}

/// Only a strategy that is left out gets its details; one that is stated has those that it states.
fn partition(strategy: &mut Map) {
    if is_unset(strategy, "type") {
        set(strategy, "type", "RollingUpdate");
        if is_absent(strategy, "rollingUpdate") {
            set(strategy, "rollingUpdate", Map::new());
        }
    }
    if let Some(details) = object(strategy, "rollingUpdate") {
        Number(0).apply(details, "partition");
    }
}

/// One pod that has to succeed, unless the job says how many may run.
fn job_counts(spec: &mut Map) {
    if is_absent(spec, "completions") && is_absent(spec, "parallelism") {
        set(spec, "completions", 1);
    }
    Number(1).apply(spec, "parallelism");
    let limit = if is_absent(spec, "backoffLimitPerIndex") { 6 } else { i64::from(i32::MAX) };
    Number(limit).apply(spec, "backoffLimit");
}

fn replacement_policy(spec: &mut Map) {
    let policy = if is_absent(spec, "podFailurePolicy") { "TerminatingOrFailed" } else { "Failed" };
    TextIfAbsent(policy).apply(spec, "podReplacementPolicy");
}

fn template_labels(workload: &Map) -> Option<Map> {
    let template = peek(peek(workload, "spec")?, "template")?;
    let labels = peek(peek(template, "metadata")?, "labels")?;
    // Others are refused where they stand, not where they would be copied to.
    let are_texts = labels.iter().all(|(_, label)| label.is_string());
    (!labels.is_empty() && are_texts).then(|| labels.clone())
}

fn selector_from_template(workload: &mut Map) {
    let labels = template_labels(workload);
    if let Some(spec) = object(workload, "spec")
        && (is_absent(spec, "selector") || peek(spec, "selector").is_some_and(Map::is_empty))
        && let Some(labels) = labels
    {
        set(spec, "selector", labels);
    }
}

/// A workload that has no labels of its own gets those of its pods.
fn labels_from_template(workload: &mut Map) {
    let Some(labels) = template_labels(workload) else { return };
    if is_absent(workload, "metadata") {
        set(workload, "metadata", Map::new());
    }
    if let Some(metadata) = object(workload, "metadata")
        && metadata.get("labels").and_then(Value::as_object).is_none_or(Map::is_empty)
        && matches!(metadata.get("labels"), None | Some(Value::Null | Value::Object(_)))
    {
        set(metadata, "labels", labels);
    }
}
