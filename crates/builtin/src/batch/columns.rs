//! The columns of batch: jobs and cron jobs.
//!
//! Durations are between two times of the status, or until now for a running job.

use std::time::Duration;

use keelson_meta::json::Value;
use keelson_tables::age::{age, human_duration};
use keelson_tables::column::{AGE, CONTAINERS, Column, IMAGES, NAME};
use keelson_tables::field_value::Subject;
use keelson_tables::printer::Printer;
use keelson_tables::selector;
use keelson_tables::text::{container_images, container_names};

use crate::batch::column_docs as docs;

/// The conditions that determine the status of a job; the first true one applies. A deletion ranks after these two.
const FINISHED: [&str; 2] = ["Complete", "Failed"];
const UNFINISHED: [&str; 3] = ["Suspended", "FailureTarget", "SuccessCriteriaMet"];

pub(crate) fn printer(kind: &str) -> Option<Printer> {
    Some(match kind {
        "CronJob" => Printer::new(CRON_JOB, cron_job),
        "Job" => Printer::new(JOB, job),
        _ => return None,
    })
}

const JOB: &[Column<'_>] = &[
    NAME,
    Column::text("Status", "Status of the job."),
    Column::text("Completions", docs::JOB_COMPLETIONS),
    Column::text("Duration", "Time required to complete the job."),
    AGE,
    CONTAINERS.wide(),
    IMAGES.wide(),
    Column::text("Selector", docs::JOB_SELECTOR).wide(),
];

fn job(of: Subject<'_>) -> Vec<Value> {
    let spec = of.at("spec");
    let pod = spec.at("template").at("spec");
    vec![
        of.name(),
        job_status(&of).into(),
        completions(&of),
        job_duration(&of),
        of.age(),
        container_names(pod),
        container_images(pod),
        selector::label_selector(spec.at("selector")),
    ]
}

fn job_status(of: &Subject<'_>) -> &'static str {
    let conditions = of.at("status").at("conditions");
    let first = |of_these: &[&'static str]| of_these.iter().copied().find(|kind| conditions.condition(kind).holds());
    if let Some(status) = first(&FINISHED) {
        status
    } else if of.deleting() {
        "Terminating"
    } else {
        first(&UNFINISHED).unwrap_or("Running")
    }
}

fn completions(of: &Subject<'_>) -> Value {
    let (spec, succeeded) = (of.at("spec"), of.at("status").at("succeeded").int());
    let parallelism = spec.at("parallelism").int();
    match spec.at("completions").set_int() {
        Some(wanted) => format!("{succeeded}/{wanted}").into(),
        None if parallelism > 1 => format!("{succeeded}/1 of {parallelism}").into(),
        None => format!("{succeeded}/1").into(),
    }
}

/// The duration of the job until its end, or until now. Empty before it starts.
fn job_duration(of: &Subject<'_>) -> Value {
    let status = of.at("status");
    let Some(start) = status.at("startTime").time() else {
        return "".into();
    };
    match status.at("completionTime").time() {
        Some(end) => human_duration(end.duration_since(start).unwrap_or(Duration::ZERO)).into(),
        None => age(Some(start), of.now).into(),
    }
}

const CRON_JOB: &[Column<'_>] = &[
    NAME,
    Column::text("Schedule", "The schedule in Cron format, see https://en.wikipedia.org/wiki/Cron."),
    Column::text("Timezone", docs::CRON_JOB_TIMEZONE),
    Column::boolean("Suspend", docs::CRON_JOB_SUSPEND),
    Column::integer("Active", "A list of pointers to currently running jobs."),
    Column::text("Last Schedule", "Information when was the last time the job was successfully scheduled."),
    AGE,
    CONTAINERS.wide(),
    IMAGES.wide(),
    Column::text("Selector", docs::JOB_SELECTOR).wide(),
];

fn cron_job(of: Subject<'_>) -> Vec<Value> {
    let (spec, status) = (of.at("spec"), of.at("status"));
    let job = spec.at("jobTemplate").at("spec");
    let pod = job.at("template").at("spec");
    let last = status.at("lastScheduleTime");
    vec![
        of.name(),
        spec.at("schedule").cell(),
        spec.at("timeZone").cell_or("<none>"),
        match spec.at("suspend").set_flag() {
            Some(true) => "True".into(),
            Some(false) => "False".into(),
            None => "<unset>".into(),
        },
        status.at("active").len_cell(),
        if last.is_set() { of.since(last).into() } else { "<none>".into() },
        of.age(),
        container_names(pod),
        container_images(pod),
        selector::label_selector(job.at("selector")),
    ]
}
