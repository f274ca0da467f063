//! Defaults of jobs and cron jobs.
//!
//! All fields that the job controller reads, such as the number of completions, get a value. Jobs of a cron job get
//! theirs when they are created.

use keelson_meta::json::Map;

use crate::core::defaults::pod::TEMPLATE;
use crate::core::defaults::template::{SELECTION, labels_from_template};
use crate::defaulting::type_defaults::Rule::{Always, Each, Flag, In, Number, Text, TextIfAbsent};
use crate::defaulting::type_defaults::{FollowUp, TypeDefaults, is_absent, set};

/// The defaults of a kind of `batch`.
pub(crate) fn defaults(kind: &str) -> Option<&'static TypeDefaults> {
    match kind {
        "Job" => Some(&JOB),
        "CronJob" => Some(&CRON_JOB),
        _ => None,
    }
}

const JOB: TypeDefaults =
    TypeDefaults { fields: &[("spec", Always(&JOB_SPEC))], then: &[FollowUp::Run(SELECTION, labels_from_template)] };

const JOB_SPEC: TypeDefaults = TypeDefaults {
    fields: &[
        ("template", Always(&TEMPLATE)),
        ("completionMode", TextIfAbsent("NonIndexed")),
        ("suspend", Flag(false)),
        ("manualSelector", Flag(false)),
        ("podFailurePolicy", In(&FAILURE_POLICY)),
    ],
    then: &[
        FollowUp::Run(&["completions", "parallelism", "backoffLimitPerIndex", "backoffLimit"], job_counts),
        FollowUp::Run(&["podFailurePolicy", "podReplacementPolicy"], replacement_policy),
    ],
};

const FAILURE_POLICY: TypeDefaults = TypeDefaults::new(&[("rules", Each(&FAILURE_RULE))]);

const FAILURE_RULE: TypeDefaults =
    TypeDefaults::new(&[("onPodConditions", Each(&const { TypeDefaults::new(&[("status", Text("True"))]) }))]);

const CRON_JOB: TypeDefaults = TypeDefaults::new(&[(
    "spec",
    Always(
        &const {
            TypeDefaults::new(&[
                ("jobTemplate", Always(&JOB_TEMPLATE)),
                ("concurrencyPolicy", Text("Allow")),
                ("suspend", Flag(false)),
                ("successfulJobsHistoryLimit", Number(3)),
                ("failedJobsHistoryLimit", Number(1)),
            ])
        },
    ),
)]);

/// Jobs of a cron job get their defaults when they are created.
const JOB_TEMPLATE: TypeDefaults = TypeDefaults::new(&[(
    "spec",
    Always(&const { TypeDefaults::new(&[("template", Always(&TEMPLATE)), ("podFailurePolicy", In(&FAILURE_POLICY))]) }),
)]);

/// By default one pod runs and must succeed, unless the job states how many run in parallel.
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
