//! Validation of the status of a job: counts only grow, and conditions do not contradict each other.
//!
//! The new status is compared with the stored one, so that a controller with old data cannot undo the end of a job.

use std::collections::HashSet;

use keelson_meta::json::Value;

use super::job_policies::{common_index, count_indexes, is_true};
use crate::validating::at::At;
use crate::validating::type_rules::Rule::{Always, Check, NonNegative};
use crate::validating::type_rules::{Run, TypeRules};

pub(super) const STATUS: TypeRules = TypeRules::new(&[
    (
        "status",
        Always(
            &const {
                TypeRules::new(&[
                    ("active", NonNegative),
                    ("succeeded", NonNegative),
                    ("failed", NonNegative),
                    ("ready", NonNegative),
                    ("terminating", NonNegative),
                    ("uncountedTerminatedPods", Check("pods without duplicates", uncounted)),
                    ("", Check("consistent conditions; `startTime` and `completionTime` match them", agreement)),
                    ("", Check("ascending indexes below the number of completions", indexes)),
                    ("", Check("a finished job has no terminating pods; `ready` is at most `active`", counts_of_pods)),
                    (
                        "",
                        Check("conditions of a finished job stay true; counts of ended pods do not decrease", progress),
                    ),
                ])
            },
        ),
    ),
    ("", Check("the condition SuccessCriteriaMet only with a success policy or with all completions", success)),
]);

/// The changed parts of a status. Like upstream, rules about fields apply only to changed fields. A status may already
/// break a rule, or break one since the spec changed. It can still be updated.
struct Changes {
    complete: bool,
    failed: bool,
    failure_target: bool,
    success_criteria_met: bool,
    active: bool,
    ready: bool,
    terminating: bool,
    start: bool,
    end: bool,
    uncounted: bool,
}

impl Changes {
    fn new(status: &At<'_, '_>) -> Self {
        let conditions = status.field("conditions");
        let condition = |kind: &str| is_true(conditions.old, kind) != is_true(conditions.value, kind);
        let number = |field: &str| {
            let field = status.field(field);
            field.int() != field.old.as_i64().unwrap_or_default()
        };
        let field = |field: &str| !status.field(field).is_unchanged();
        Self {
            complete: condition("Complete"),
            failed: condition("Failed"),
            failure_target: condition("FailureTarget"),
            success_criteria_met: condition("SuccessCriteriaMet"),
            active: number("active"),
            ready: field("ready"),
            terminating: field("terminating"),
            start: field("startTime"),
            end: field("completionTime"),
            uncounted: field("uncountedTerminatedPods"),
        }
    }

    /// True if the update ends the job, or restarts it.
    fn finished(&self) -> bool {
        self.complete || self.failed
    }
}

fn agreement(status: &At<'_, '_>, run: &mut Run<'_>) {
    let (conditions, changes) = (status.field("conditions"), Changes::new(status));
    let is = |kind: &str| is_true(conditions.value, kind);
    let (complete, failed) = (is("Complete"), is("Failed"));
    for (is_asked, is_wrong, detail) in [
        (changes.finished(), complete && failed, "cannot set Complete=True and Failed=true conditions"),
        (
            changes.complete || changes.failure_target,
            complete && is("FailureTarget"),
            "cannot set Complete=True and FailureTarget=true conditions",
        ),
    ] {
        if is_asked && is_wrong {
            conditions.refused(run, detail);
        }
    }
    times(status, &changes, run);
    for (is_asked, is_wrong, detail) in [
        (
            changes.failed || changes.failure_target,
            failed && !is("FailureTarget"),
            "cannot set Failed=True condition without the FailureTarget=true condition",
        ),
        (
            changes.complete || changes.success_criteria_met,
            complete && !is("SuccessCriteriaMet"),
            "cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
        ),
    ] {
        if is_asked && is_wrong {
            conditions.refused(run, detail);
        }
    }
    if complete || failed {
        finished(status, &changes, run);
    }
}

fn times(status: &At<'_, '_>, changes: &Changes, run: &mut Run<'_>) {
    let conditions = status.field("conditions");
    let complete = is_true(conditions.value, "Complete");
    let (start, end) = (status.field("startTime"), status.field("completionTime"));
    if changes.complete || changes.end {
        if end.is_set() && !complete {
            end.invalid(run, end.shown(), "cannot set completionTime when there is no Complete=True condition");
        }
        if !end.is_set() && complete {
            end.required(run, "completionTime is required for Complete jobs");
        }
    }
    // All times are stored in one format, so their order is that of the texts.
    if (changes.start || changes.end) && start.is_set() && end.is_set() && end.text() < start.text() {
        end.invalid(run, end.shown(), "completionTime cannot be set before startTime");
    }
}

/// After a job has ended, all its pods are counted and none runs.
fn finished(status: &At<'_, '_>, changes: &Changes, run: &mut Run<'_>) {
    let (active, start) = (status.field("active"), status.field("startTime"));
    if (changes.finished() || changes.active) && active.int() > 0 {
        active.invalid(run, active.int(), "active>0 is invalid for finished job");
    }
    if (changes.finished() || changes.start) && !start.is_set() {
        start.required(run, "startTime is required for finished job");
    }
    let uncounted = status.field("uncountedTerminatedPods");
    let has_any = ["succeeded", "failed"].into_iter().any(|list| !uncounted.field(list).list().is_empty());
    if (changes.finished() || changes.uncounted) && has_any {
        uncounted.invalid(run, uncounted.shown(), "uncountedTerminatedPods needs to be empty for finished job");
    }
}

/// The rules that follow those about indexes in upstream's order.
fn counts_of_pods(status: &At<'_, '_>, run: &mut Run<'_>) {
    let (conditions, changes) = (status.field("conditions"), Changes::new(status));
    let is_finished = ["Complete", "Failed"].into_iter().any(|kind| is_true(conditions.value, kind));
    let terminating = status.field("terminating");
    if (changes.finished() || changes.terminating) && is_finished && terminating.int() > 0 {
        terminating.invalid(run, terminating.int(), "terminating>0 is invalid for finished job");
    }
    let (ready, active) = (status.field("ready"), status.field("active"));
    if (changes.ready || changes.active) && ready.int() > active.int() {
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

/// A value that was stored before these rules existed may stay.
fn indexes(status: &At<'_, '_>, run: &mut Run<'_>) {
    let Some(job) = status.parent() else { return };
    let spec = job.field("spec");
    let (completed, failed) = (status.field("completedIndexes"), status.field("failedIndexes"));
    let by_index = spec.field_is_set("backoffLimitPerIndex");
    for (at, name, applies) in [(&completed, "completedIndexes", true), (&failed, "failedIndexes", by_index)] {
        if let Some(completions) = spec.field("completions").number().filter(|_| applies && !at.is_unchanged())
            && let Err(why) = count_indexes(at.text(), completions)
        {
            at.invalid(run, at.text(), format!("error parsing {name}: {why}"));
        }
    }
    if !completed.is_empty() && !completed.is_unchanged() && spec.field("completionMode").text() != "Indexed" {
        let detail = "cannot set non-empty completedIndexes when non-indexed completion mode";
        completed.invalid(run, completed.text(), detail);
    }
    if failed.is_set() && !failed.is_unchanged() && !by_index {
        let detail = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
        failed.invalid(run, failed.text(), detail);
    }
    if let Some(completions) = spec.field("completions").number()
        && !(failed.is_unchanged() && completed.is_unchanged())
        && let Some(index) = common_index(completed.text(), failed.text(), completions)
    {
        failed.invalid(run, failed.text(), format!("failedIndexes and completedIndexes overlap at index: {index}"));
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

/// An indexed job may be scaled down if all its indexes run in parallel. The succeeded pods of removed indexes then no
/// longer count.
fn may_shrink(run: &Run<'_>) -> bool {
    let spec = |field| run.object.get(&["spec", field]);
    let is_indexed = spec("completionMode").and_then(Value::as_str) == Some("Indexed");
    is_indexed && spec("completions").and_then(Value::as_i64) == spec("parallelism").and_then(Value::as_i64)
}

fn progress(status: &At<'_, '_>, run: &mut Run<'_>) {
    let conditions = status.field("conditions");
    for kind in ["Failed", "Complete", "FailureTarget"] {
        if is_true(conditions.old, kind) && !is_true(conditions.value, kind) {
            conditions.refused(run, format!("cannot disable the terminal {kind}=True condition"));
        }
    }
    for (word, may_fall) in [("failed", false), ("succeeded", may_shrink(run))] {
        let counter = status.field(word);
        if !may_fall && counter.int() < counter.old.as_i64().unwrap_or_default() {
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
    if is_true(conditions.old, "Complete")
        && !is_true(conditions.old, "SuccessCriteriaMet")
        && is_true(conditions.value, "SuccessCriteriaMet")
    {
        let detail = "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions";
        conditions.refused(run, detail);
    }
}
