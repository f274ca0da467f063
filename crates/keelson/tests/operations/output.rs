//! Tests of output that cannot be written: a log on a full disk, and a pipe without a reader. A server continues, a
//! command fails.
//!
//! A response to a client never waits for such output.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use keelson_testkit::ProcessServer;
use serde_json::json;
use tempfile::TempDir;
use tokio::process::Command;

const KEELSON: &str = env!("CARGO_BIN_EXE_keelson");
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

const PATIENCE: Duration = Duration::from_secs(30);

/// Every write fails, as on a full disk.
const FULL_DISK: &str = "exec 3> /dev/full";
/// A pipe whose reader has ended.
const CLOSED_PIPE: &str = "mkfifo \"$0.pipe\"; : < \"$0.pipe\" & exec 3> \"$0.pipe\"; wait";

/// The program with all of its output redirected to this.
fn saying_to(directory: &TempDir, sink: &str) -> PathBuf {
    let script = directory.path().join("keelson");
    std::fs::write(&script, format!("#!/bin/sh\n{sink}\nexec {KEELSON} \"$@\" >&3 2>&3\n")).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o700)).unwrap();
    script
}

/// Checks that a server with much output answers, and stops at a signal.
async fn check_serves(sink: &str) {
    for format in ["text", "json"] {
        let directory = TempDir::new().unwrap();
        let program = saying_to(&directory, sink);
        let server = ProcessServer::builder(program).env("KEELSON_LOG", "debug").env("KEELSON_LOG_FORMAT", format);
        let mut server = server.start().await;
        for number in 0..10 {
            let map = json!({"metadata": {"name": format!("map-{number}")}});
            server.raw().post(CONFIG_MAPS, &map).await.expect(201);
        }
        server.raw().get("/livez").await.expect(200);
        assert_eq!(server.log(), "", "{sink}: nothing reaches anybody");
        assert!(server.terminate().await.success(), "{sink}, {format}");
    }
}

#[tokio::test]
async fn a_full_log_disk_does_not_stop_the_server() {
    check_serves(FULL_DISK).await;
}

#[tokio::test]
async fn a_closed_log_pipe_does_not_stop_the_server() {
    check_serves(CLOSED_PIPE).await;
}

/// The command must not panic, which has another exit code.
#[tokio::test]
async fn a_failed_start_with_unwritable_output_exits_with_1() {
    for sink in [FULL_DISK, CLOSED_PIPE] {
        let directory = TempDir::new().unwrap();
        let mut command = Command::new(saying_to(&directory, sink));
        let status = command.args(["serve", "--store", "nothing:"]).kill_on_drop(true).status().await.unwrap();
        assert_eq!(status.code(), Some(1), "{sink}");
    }
}

/// If standard output is the audit log, it contains only events.
#[tokio::test]
async fn standard_output_has_events_alone_where_it_is_the_log_of_audit() {
    let directory = TempDir::new().unwrap();
    let [events, policy] = ["events", "policy.yaml"].map(|name| directory.path().join(name));
    std::fs::write(&policy, "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n").unwrap();
    let program = saying_to(&directory, &format!("exec 3> {}", events.display()));
    let script = std::fs::read_to_string(&program).unwrap();
    std::fs::write(&program, script.replace("2>&3", "")).unwrap();
    let server = ProcessServer::builder(program).arg("--audit-policy-file").arg(policy);
    let mut server = server.args(["--audit-log-path", "-"]).start().await;
    server.raw().post(CONFIG_MAPS, &json!({"metadata": {"name": "map"}})).await.expect(201);
    // The server writes the event a moment after its response.
    let begun = Instant::now();
    while !server.log().contains("keelson is ready on https://") {
        assert!(begun.elapsed() < PATIENCE, "{}", server.log());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(server.terminate().await.success());
    let text = std::fs::read_to_string(events).unwrap();
    let read = |line| serde_json::from_str::<serde_json::Value>(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    let events: Vec<_> = text.lines().map(read).collect();
    assert!(events.iter().all(|event| event["kind"] == "Event"), "{text}");
    assert!(events.iter().any(|event| event["requestURI"] == CONFIG_MAPS && event["verb"] == "create"), "{text}");
}

#[tokio::test]
async fn commands_fail_if_their_output_cannot_be_written() {
    let directory = TempDir::new().unwrap();
    let mut server = ProcessServer::builder(KEELSON).data_dir(directory.path()).start().await;
    server.terminate().await;
    let check = async |out: Stdio| {
        let mut command = Command::new(KEELSON);
        command
            .args(["storage", "check", "--data-dir"])
            .arg(directory.path())
            .stdout(out)
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command.spawn().unwrap().wait_with_output().await.unwrap()
    };
    let whole = check(Stdio::piped()).await;
    assert!(whole.status.success() && String::from_utf8_lossy(&whole.stdout).contains(" is whole: "));
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let told_nobody = check(full.into()).await;
    let why = String::from_utf8_lossy(&told_nobody.stderr);
    assert_eq!(told_nobody.status.code(), Some(1), "{why}");
    // The progress comes before it.
    let last = why.lines().last();
    assert_eq!(last, Some("keelson: writing to standard output: No space left on device (os error 28)"), "{why}");
}
