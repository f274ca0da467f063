//! Warnings about jobs and cron jobs: schedule, size, and pod template.
//!
//! Messages are upstream's.

use crate::core::warnings::{name_of_pods, pod, template_may_have_changed};
use crate::validating::ValidatedObject;
use crate::validating::at::At;

pub(crate) fn warnings(kind: &str, written: ValidatedObject<'_>, warnings: &mut Vec<String>) {
    name_of_pods(written, warnings);
    if !template_may_have_changed(written.old, written.object) {
        return;
    }
    let spec = written.at.field("spec");
    if kind == "CronJob" {
        schedule(&spec, warnings);
        job(&spec.field("jobTemplate").field("spec"), warnings);
    } else {
        job(&spec, warnings);
    }
}

fn schedule(spec: &At<'_, '_>, warnings: &mut Vec<String>) {
    let schedule = spec.field("schedule");
    if schedule.text().contains("TZ") {
        warnings.push(
            "CRON_TZ or TZ used in spec.schedule is not officially supported, see \
             https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
                .to_owned(),
        );
    }
}

fn job(spec: &At<'_, '_>, warnings: &mut Vec<String>) {
    const COMPLETIONS: i64 = 100_000;
    const PARALLELISM: i64 = 10_000;
    let many = spec.field("completions").int() > COMPLETIONS && spec.field("parallelism").int() > PARALLELISM;
    if many && spec.field("completionMode").text() == "Indexed" {
        let path = spec.path();
        warnings.push(format!(
            "{path}: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, \
             Kubernetes might not be able to track completedIndexes when a big number of indexes fail"
        ));
    }
    pod::of_spec(&spec.field("template"), true, warnings);
}
