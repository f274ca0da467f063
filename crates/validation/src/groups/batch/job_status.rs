//! The status of a job: counts that only grow, and conditions that agree with each other.
//!
//! An update of the status is compared with what it was, so that a controller which is behind can't take back that a job
//! ended.

use std::collections::HashSet;

use keelson_meta::json::Value;

use crate::at::At;
use crate::type_rules::Rule::{Always, Check, NonNegative};
use crate::type_rules::{Run, TypeRules};

use super::job_policies::{count_indexes, is_true};

pub(super) const STATUS: TypeRules = TypeRules::of(&[
    (
        "status",
        Always(
            &const {
                TypeRules::of(&[
                    ("active", NonNegative),
                    ("succeeded", NonNegative),
                    ("failed", NonNegative),
                    ("ready", NonNegative),
                    ("terminating", NonNegative),
                    ("uncountedTerminatedPods", Check("each pod once", uncounted)),
                    ("", Check("conditions that agree, with the times that belong to them", agreement)),
                    ("", Check("indexes in order, as far as the job has any", indexes)),
                    ("", Check("terminal conditions stay, and counts of ended pods do not fall", progress)),
                ])
            },
        ),
    ),
    ("", Check("a success that was met only where there is a policy, or completion", success)),
]);

fn agreement(status: &At<'_, '_>, run: &mut Run<'_>) {
    let conditions = status.field("conditions");
    let is = |kind: &str| is_true(conditions.value, kind);
    let (start, end) = (status.field("startTime"), status.field("completionTime"));
    let (complete, failed) = (is("Complete"), is("Failed"));
    for (wrong, detail) in [
        (complete && failed, "cannot set Complete=True and Failed=true conditions"),
        (complete && is("FailureTarget"), "cannot set Complete=True and FailureTarget=true conditions"),
    ] {
        if wrong {
            conditions.refused(run, detail);
        }
    }
    if end.is_set() && !complete {
        end.invalid(run, end.shown(), "cannot set completionTime when there is no Complete=True condition");
    }
    if !end.is_set() && complete {
        end.required(run, "completionTime is required for Complete jobs");
    }
    // Times are stored in one form, in which the order of texts is that of times.
    if start.is_set() && end.is_set() && end.text() < start.text() {
        end.invalid(run, end.shown(), "completionTime cannot be set before startTime");
    }
    if failed && !is("FailureTarget") {
        conditions.refused(run, "cannot set Failed=True condition without the FailureTarget=true condition");
    }
    if complete && !is("SuccessCriteriaMet") {
        conditions.refused(run, "cannot set Complete=True condition without the SuccessCriteriaMet=true condition");
    }
    let active = status.field("active");
    if (complete || failed) && active.int() > 0 {
        active.invalid(run, active.int(), "active>0 is invalid for finished job");
    }
    if (complete || failed) && !start.is_set() {
        start.required(run, "startTime is required for finished job");
    }
    let terminating = status.field("terminating");
    if (complete || failed) && terminating.int() > 0 {
        terminating.invalid(run, terminating.int(), "terminating>0 is invalid for finished job");
    }
    let ready = status.field("ready");
    if ready.int() > active.int() {
        ready.invalid(run, ready.int(), "cannot set more ready pods than active");
    }
}

fn uncounted(at: &At<'_, '_>, run: &mut Run<'_>) {
    let mut seen = HashSet::new();
    for list in ["succeeded", "failed"].map(|list| at.field(list)) {
        for pod in list.items() {
            if pod.is_empty() {
                pod.invalid(run, "", "must not be empty");
            } else if !seen.insert(pod.text()) {
                pod.duplicate(run, pod.text());
            }
        }
    }
}

/// What was there before these rules may stay.
fn indexes(status: &At<'_, '_>, run: &mut Run<'_>) {
    let Some(job) = status.parent() else { return };
    let spec = job.field("spec");
    let (completed, failed) = (status.field("completedIndexes"), status.field("failedIndexes"));
    for (at, name) in [(&completed, "completedIndexes"), (&failed, "failedIndexes")] {
        if let Some(completions) = spec.field("completions").number().filter(|_| !at.is_unchanged())
            && let Err(why) = count_indexes(at.text(), completions)
        {
            at.invalid(run, at.text(), format!("error parsing {name}: {why}"));
        }
    }
    if !completed.is_empty() && !completed.is_unchanged() && spec.field("completionMode").text() != "Indexed" {
        let detail = "cannot set non-empty completedIndexes when non-indexed completion mode";
        completed.invalid(run, completed.text(), detail);
    }
    if failed.is_set() && !failed.is_unchanged() && !spec.field_is_set("backoffLimitPerIndex") {
        let detail = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
        failed.invalid(run, failed.text(), detail);
    }
}

fn success(job: &At<'_, '_>, run: &mut Run<'_>) {
    let status = job.field("status");
    let conditions = status.field("conditions");
    let is = |kind: &str| is_true(conditions.value, kind);
    let met = is("SuccessCriteriaMet");
    if met && is("Failed") {
        conditions.refused(run, "cannot set SuccessCriteriaMet=True and Failed=true conditions");
    }
    if met && is("FailureTarget") {
        conditions.refused(run, "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions");
    }
    let spec = job.field("spec");
    if spec.field_is_set("successPolicy") && !met && is("Complete") {
        let detail = "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True";
        conditions.refused(run, detail);
    }
}

fn progress(status: &At<'_, '_>, run: &mut Run<'_>) {
    let conditions = status.field("conditions");
    for kind in ["Failed", "Complete", "FailureTarget"] {
        if is_true(conditions.old, kind) && !is_true(conditions.value, kind) {
            conditions.refused(run, format!("cannot disable the terminal {kind}=True condition"));
        }
    }
    for (counter, word) in [("failed", "failed"), ("succeeded", "succeeded")] {
        let counter = status.field(counter);
        if counter.int() < counter.old.as_i64().unwrap_or_default() {
            counter.invalid(run, counter.int(), format!("cannot decrease the {word} counter"));
        }
    }
    let end = status.field("completionTime");
    if end.is_set() && !end.old.is_null() && !end.is_unchanged() {
        end.invalid(run, end.shown(), "completionTime cannot be mutated");
    }
    let start = status.field("startTime");
    let suspended = run.object.get(&["spec", "suspend"]).and_then(Value::as_bool) == Some(true);
    if !start.old.is_null() && !start.is_unchanged() && !suspended {
        start.required(run, "startTime cannot be removed for unsuspended job");
    }
    if is_true(conditions.old, "SuccessCriteriaMet") && !is_true(conditions.value, "SuccessCriteriaMet") {
        conditions.refused(run, "cannot disable the SuccessCriteriaMet=True condition");
    }
}
