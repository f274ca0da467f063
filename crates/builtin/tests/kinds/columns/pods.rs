//! Tests the status of pods, which is computed from the states of their containers.
//!
//! Users look at this cell most. It has a rule for every state.

use keelson_builtin::printer;
use keelson_codec::Outline;
use keelson_meta::json::{Value, json};

use super::{cell, check, object, row};

/// A pod with two containers and this status.
fn pod(status: Value) -> Value {
    json!({"metadata": {"name": "web"}, "spec": {"containers": [{"name": "a"}, {"name": "b"}]}, "status": status})
}

fn running(restarts: u32) -> Value {
    json!({"ready": true, "restartCount": restarts, "state": {"running": {}}})
}

fn waiting(reason: &str) -> Value {
    json!({"ready": false, "restartCount": 0, "state": {"waiting": {"reason": reason}}})
}

fn ended(terminated: Value) -> Value {
    json!({"ready": false, "restartCount": 0, "state": {"terminated": terminated}})
}

/// Checks the cells for readiness, status and restarts.
#[track_caller]
fn shows(fields: Value, ready: &str, status: &str, restarts: &str) {
    let row = row("", "Pod", &object(fields));
    assert_eq!(row[1..4], [ready, status, restarts]);
}

#[test]
fn a_row_has_everything_a_wide_table_shows() {
    let fields = json!({
        "metadata": {"name": "web"},
        "spec": {"containers": [{}], "nodeName": "n1", "readinessGates": [{"conditionType": "up"},
            {"conditionType": "fit"}]},
        "status": {"phase": "Running", "podIPs": [{"ip": "10.1.0.7"}, {"ip": "fd00::7"}], "nominatedNodeName": "n2",
            "conditions": [{"type": "up", "status": "True"}, {"type": "fit", "status": "False"}],
            "containerStatuses": [running(0)]},
    });
    check("", "Pod", fields, json!(["web", "1/1", "Running", "0", "3d4h", "10.1.0.7", "n1", "n2", "1/2"]));
    let bare = json!(["web", "0/2", "Pending", "0", "3d4h", "<none>", "<none>", "<none>", "<none>"]);
    check("", "Pod", pod(json!({"phase": "Pending"})), bare);
}

#[test]
fn more_specific_states_replace_the_phase() {
    shows(pod(json!({"phase": "Pending"})), "0/2", "Pending", "0");
    shows(pod(json!({"phase": "Failed", "reason": "Evicted"})), "0/2", "Evicted", "0");
    let gated = json!([{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]);
    shows(pod(json!({"phase": "Pending", "conditions": gated})), "0/2", "SchedulingGated", "0");
    shows(
        pod(json!({"phase": "Pending", "containerStatuses": [waiting("ContainerCreating")]})),
        "0/2",
        "ContainerCreating",
        "0",
    );
}

#[test]
fn the_first_container_with_trouble_gives_the_status() {
    let both = |a: Value, b: Value| pod(json!({"phase": "Running", "containerStatuses": [a, b]}));
    shows(both(running(1), running(2)), "2/2", "Running", "3");
    shows(both(running(0), waiting("CrashLoopBackOff")), "1/2", "CrashLoopBackOff", "0");
    shows(both(waiting("ImagePullBackOff"), waiting("CrashLoopBackOff")), "0/2", "ImagePullBackOff", "0");
    shows(both(ended(json!({"reason": "OOMKilled", "exitCode": 137})), running(0)), "1/2", "OOMKilled", "0");
    shows(both(ended(json!({"exitCode": 3})), running(0)), "1/2", "ExitCode:3", "0");
    shows(both(ended(json!({"exitCode": 137, "signal": 9})), running(0)), "1/2", "Signal:9", "0");
}

#[test]
fn a_pod_with_a_completed_container_runs_while_another_does() {
    let done = || ended(json!({"reason": "Completed", "exitCode": 0}));
    let mixed = |ready: &str| {
        json!({"phase": "Running", "containerStatuses": [done(), running(0)],
            "conditions": [{"type": "Ready", "status": ready}]})
    };
    shows(pod(mixed("True")), "1/2", "Running", "0");
    shows(pod(mixed("False")), "1/2", "NotReady", "0");
    shows(pod(json!({"phase": "Succeeded", "containerStatuses": [done(), done()]})), "0/2", "Completed", "0");
}

#[test]
fn restarts_show_the_time_of_the_last_one() {
    let at = |count: u32, finished: &str| {
        json!({"ready": true, "restartCount": count, "state": {"running": {}},
            "lastState": {"terminated": {"exitCode": 1, "finishedAt": finished}}})
    };
    let two = json!([at(2, "2026-03-10T11:50:00Z"), at(1, "2026-03-10T11:55:00Z")]);
    shows(pod(json!({"phase": "Running", "containerStatuses": two})), "2/2", "Running", "3 (5m ago)");
    let none = json!([at(0, "2026-03-10T11:50:00Z")]);
    shows(pod(json!({"phase": "Running", "containerStatuses": none})), "1/2", "Running", "0");
}

/// A pod with two init containers. The first is a sidecar if `sidecar` is true.
fn initializing(sidecar: bool, statuses: Value, conditions: Value) -> Value {
    let policy = if sidecar { json!("Always") } else { Value::Null };
    json!({
        "spec": {"containers": [{"name": "a"}],
            "initContainers": [{"name": "first", "restartPolicy": policy}, {"name": "second"}]},
        "status": {"phase": "Pending", "initContainerStatuses": statuses, "conditions": conditions,
            "containerStatuses": [waiting("PodInitializing")]},
    })
}

#[test]
fn init_containers_come_before_the_others() {
    let first = |state: Value| json!([{"name": "first", "restartCount": 4, "state": state}]);
    let status_of = |state: Value| initializing(false, first(state), json!([]));
    shows(status_of(json!({"running": {}})), "0/1", "Init:0/2", "4");
    shows(status_of(json!({"waiting": {"reason": "PodInitializing"}})), "0/1", "Init:0/2", "4");
    shows(status_of(json!({"waiting": {"reason": "CrashLoopBackOff"}})), "0/1", "Init:CrashLoopBackOff", "4");
    shows(status_of(json!({"terminated": {"reason": "Error", "exitCode": 1}})), "0/1", "Init:Error", "4");
    shows(status_of(json!({"terminated": {"exitCode": 2}})), "0/1", "Init:ExitCode:2", "4");
    shows(status_of(json!({"terminated": {"exitCode": 137, "signal": 9}})), "0/1", "Init:Signal:9", "4");

    let second = json!([
        {"name": "first", "restartCount": 4, "state": {"terminated": {"exitCode": 0}}},
        {"name": "second", "restartCount": 1, "state": {"running": {}}},
    ]);
    shows(initializing(false, second.clone(), json!([])), "0/1", "Init:1/2", "5");
    // Once a pod is initialized, a restart of an init container does not matter.
    let initialized = json!([{"type": "Initialized", "status": "True"}]);
    shows(initializing(false, second, initialized), "0/1", "PodInitializing", "0");
}

#[test]
fn sidecars_count_as_containers() {
    let statuses = |second: Value| {
        json!([
            {"name": "first", "restartCount": 2, "started": true, "ready": true, "state": {"running": {}},
                "lastState": {"terminated": {"exitCode": 1, "finishedAt": "2026-03-10T11:59:00Z"}}},
            {"name": "second", "restartCount": 7, "state": second},
        ])
    };
    shows(initializing(true, statuses(json!({"running": {}})), json!([])), "1/2", "Init:1/2", "9 (60s ago)");
    let done = json!({"terminated": {"exitCode": 0}});
    shows(initializing(true, statuses(done), json!([])), "1/2", "PodInitializing", "2 (60s ago)");
    let starting = json!([{"name": "first", "started": false, "state": {"running": {}}}]);
    shows(initializing(true, starting, json!([])), "0/2", "Init:0/2", "0");
}

#[test]
fn deleted_pods_show_terminating_unless_finished() {
    let deleted = |status: Value| {
        json!({"metadata": {"deletionTimestamp": "2026-03-10T12:00:30Z"},
        "spec": {"containers": [{}]}, "status": status})
    };
    shows(deleted(json!({"phase": "Running", "containerStatuses": [running(0)]})), "1/1", "Terminating", "0");
    shows(deleted(json!({"phase": "Running", "reason": "NodeLost"})), "0/1", "Unknown", "0");
    let failed = json!({"phase": "Failed", "containerStatuses": [ended(json!({"reason": "Error"}))]});
    shows(deleted(failed), "0/1", "Error", "0");
}

#[test]
fn the_address_may_stand_in_the_older_field() {
    assert_eq!(cell("", "Pod", "IP", pod(json!({"podIP": "10.0.0.9"}))), "10.0.0.9");
}

#[test]
fn rows_of_finished_pods_are_marked() {
    let marks = |phase: &str| {
        let pod = pod(json!({"phase": phase})).to_string();
        printer("", "Pod")
            .conditions(&Outline::read(&pod))
            .iter()
            .map(|mark| (mark.kind, mark.reason))
            .collect::<Vec<_>>()
    };
    assert_eq!(marks("Succeeded"), [("Completed", "Succeeded")]);
    assert_eq!(marks("Failed"), [("Completed", "Failed")]);
    assert_eq!(marks("Running"), []);
}
