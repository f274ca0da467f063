//! Tests the tables of jobs and cron jobs.
//!
//! The rows show completions, durations and schedules at one point in time.

use keelson_meta::json::{Value, json};

use super::{cell, check};

fn status_of(metadata: Value, conditions: Value) -> Value {
    cell("batch", "Job", "Status", json!({"metadata": metadata, "status": {"conditions": conditions}}))
}

#[test]
fn jobs_show_their_progress() {
    let pod = json!({"containers": [{"name": "a", "image": "r/a"}]});
    let spec = json!({"completions": 3, "template": {"spec": pod}, "selector": {"matchLabels": {"job": "x"}}});
    let fields = json!({"spec": spec, "status": {"succeeded": 1, "startTime": "2026-03-10T11:00:00Z"}});
    check("batch", "Job", fields, json!(["x", "Running", "1/3", "60m", "3d4h", "a", "r/a", "job=x"]));
    check("batch", "Job", json!({}), json!(["x", "Running", "0/1", "", "3d4h", "", "", "<none>"]));
    let times = json!({"startTime": "2026-03-10T11:00:00Z", "completionTime": "2026-03-10T11:05:07Z"});
    assert_eq!(cell("batch", "Job", "Duration", json!({"status": times})), "5m7s");
    let parallel = json!({"spec": {"parallelism": 4}, "status": {"succeeded": 2}});
    assert_eq!(cell("batch", "Job", "Completions", parallel), "2/1 of 4");
}

#[test]
fn the_strongest_condition_of_a_job_counts() {
    let holds = |kind: &str| json!({"type": kind, "status": "True"});
    let deleted = || json!({"deletionTimestamp": "2026-03-10T12:00:00Z"});
    assert_eq!(status_of(json!({}), json!([holds("SuccessCriteriaMet"), holds("Complete")])), "Complete");
    assert_eq!(status_of(deleted(), json!([holds("FailureTarget"), holds("Failed")])), "Failed");
    assert_eq!(status_of(deleted(), json!([holds("Suspended")])), "Terminating");
    assert_eq!(status_of(json!({}), json!([holds("FailureTarget"), holds("Suspended")])), "Suspended");
    assert_eq!(status_of(json!({}), json!([holds("FailureTarget")])), "FailureTarget");
    assert_eq!(status_of(json!({}), json!([holds("SuccessCriteriaMet")])), "SuccessCriteriaMet");
    assert_eq!(status_of(json!({}), json!([{"type": "Complete", "status": "False"}])), "Running");
}

#[test]
fn cron_jobs_show_when_they_last_ran() {
    let pod = json!({"containers": [{"name": "a", "image": "r/a"}]});
    let spec = json!({"schedule": "*/5 * * * *", "timeZone": "Etc/UTC", "suspend": true,
        "jobTemplate": {"spec": {"template": {"spec": pod}}}});
    let status = json!({"active": [{}, {}], "lastScheduleTime": "2026-03-10T11:55:00Z"});
    let expected = json!(["x", "*/5 * * * *", "Etc/UTC", "True", 2, "5m", "3d4h", "a", "r/a", "<none>"]);
    check("batch", "CronJob", json!({"spec": spec, "status": status}), expected);
    let bare = json!(["x", "@daily", "<none>", "<unset>", 0, "<none>", "3d4h", "", "", "<none>"]);
    check("batch", "CronJob", json!({"spec": {"schedule": "@daily"}}), bare);
}
