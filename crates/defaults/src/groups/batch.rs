//! Defaults of jobs and cron jobs.
//!
//! What a job counts on, such as how many pods have to succeed, is always filled in; the jobs that a cron job makes get theirs
//! when they are made.

use keelson_meta::json::Map;

use crate::pod::TEMPLATE;
use crate::shape::Rule::{Always, Each, Flag, In, Number, Text, TextIfAbsent};
use crate::shape::{Shape, Step, is_absent, set};
use crate::template::{SELECTION, labels_from_template};

/// The shape of a kind of `batch`.
pub(crate) fn shape(kind: &str) -> Option<&'static Shape> {
    match kind {
        "Job" => Some(&JOB),
        "CronJob" => Some(&CRON_JOB),
        _ => None,
    }
}

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
