//! Tests of jobs and cron jobs.
//!
//! Selectors must match templates, and the rules for pods apply in templates too.

use keelson_meta::json::{Value, json};
use keelson_registry::Validator as _;

use crate::validating::tests::{change, check_new, check_update, object, rules_of, selector, template, texts};

fn job() -> Value {
    let labels = json!({"controller-uid": "u", "job-name": "j", "batch.kubernetes.io/controller-uid": "u",
        "batch.kubernetes.io/job-name": "j"});
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "uid": "u"}, "spec": {
        "parallelism": 1, "completions": 1, "backoffLimit": 6, "completionMode": "NonIndexed", "suspend": false,
        "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}},
        "template": change(&template("Never"), &[("/metadata/labels", labels)]),
        "podReplacementPolicy": "TerminatingOrFailed"}})
}

#[test]
fn jobs() {
    let check = |changes: &[(&str, Value)], expected: &[&str]| check_new(&job(), changes, expected);
    check(
        &[("/spec/template/spec/restartPolicy", json!("Always"))],
        &["spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\""],
    );
    check(
        &[("/spec/completionMode", json!("Indexed")), ("/spec/completions", Value::Null)],
        &["spec.completions: Required value: when completion mode is Indexed"],
    );
    check(
        &[
            ("/spec/podFailurePolicy", json!({"rules": [{"action": "Ignore"}]})),
            ("/spec/podReplacementPolicy", json!("Failed")),
        ],
        &[
            "spec.podFailurePolicy.rules[0]: Invalid value: specifying one of OnExitCodes and OnPodConditions is required",
        ],
    );
    let stays = |changes: &[(&str, Value)], expected: &[&str]| check_update(&job(), changes, expected);
    stays(&[("/spec/parallelism", json!(2))], &[]);
    stays(&[("/spec/completions", json!(2))], &["spec.completions: Invalid value: 2: field is immutable"]);
    stays(
        &[("/spec/completionMode", json!("Indexed"))],
        &["spec.completionMode: Invalid value: \"Indexed\": field is immutable"],
    );
    let placed = ("/spec/template/spec/nodeSelector", json!({"a": "b"}));
    let suspended = change(&job(), &[("/spec/suspend", json!(true))]);
    check_update(&suspended, &[placed.clone(), ("/spec/suspend", json!(false))], &[]);
    let (old, new) = (object(&job()), object(&change(&job(), &[placed])));
    let faults = texts(rules_of(&old).update(None, &old, &new));
    assert!(faults.len() == 1 && faults[0].starts_with("spec.template: Invalid value: {"), "{faults:?}");
}

#[test]
fn cron_jobs() {
    let spec = json!({"template": template("Never"), "podReplacementPolicy": "Failed"});
    let valid = json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "c"}, "spec": {
        "schedule": "*/5 * * * *", "concurrencyPolicy": "Allow", "suspend": false, "jobTemplate": {"spec": spec}}});
    check_new(
        &valid,
        &[("/spec/schedule", json!("* * *")), ("/spec/timeZone", json!("Mars/Olympus"))],
        &[
            "spec.schedule: Invalid value: \"* * *\": expected exactly 5 fields, found 3: [* * *]",
            "spec.timeZone: Invalid value: \"Mars/Olympus\": unknown time zone Mars/Olympus",
        ],
    );
    check_new(&valid, &[("/spec/timeZone", json!("Europe/Vienna"))], &[]);
    check_new(
        &valid,
        &[("/spec/jobTemplate/spec/selector", selector())],
        &[
            "spec.jobTemplate.spec.selector: Invalid value: {\"matchLabels\":{\"app\":\"web\"}}: `selector` will be auto-generated",
        ],
    );
}
