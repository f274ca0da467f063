//! Tests of kube-apiserver's flags for lifetimes, defaults and headers, as `keelson serve` takes them.
//!
//! They run the real binary.

use std::process::Stdio;
use std::time::{Duration, Instant};

use keelson_testkit::ProcessServer;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

const KEELSON: &str = env!("CARGO_BIN_EXE_keelson");
const NAMESPACE: &str = "/api/v1/namespaces/default";
const PATIENCE: Duration = Duration::from_secs(60);

async fn start(flags: &[&str]) -> ProcessServer {
    ProcessServer::builder(KEELSON).args(flags).start().await
}

async fn refused(flags: &[&str]) -> String {
    let directory = TempDir::new().unwrap();
    let mut command = Command::new(KEELSON);
    command.args(["serve", "--bind", "127.0.0.1:0", "--data-dir"]).arg(directory.path().join("data")).args(flags);
    let done = command.stdin(Stdio::null()).kill_on_drop(true).output().await.unwrap();
    assert!(!done.status.success(), "{flags:?}");
    String::from_utf8([done.stdout, done.stderr].concat()).unwrap()
}

#[tokio::test]
async fn responses_have_the_header_for_strict_transport_security() {
    let server = start(&["--strict-transport-security-directives", "max-age=31536000,includeSubDomains"]).await;
    let header = "strict-transport-security";
    for path in ["/api/v1/pods", "/livez", "/nosuch"] {
        assert_eq!(server.raw().get(path).await.header(header), "max-age=31536000; includeSubDomains", "{path}");
    }
    assert_eq!(server.anonymous().get("/api/v1/pods").await.header(header), "max-age=31536000; includeSubDomains");
    let why = refused(&["--strict-transport-security-directives", "max-age=x"]).await;
    assert!(why.contains("--strict-transport-security-directives invalid, allowed values"), "{why}");
    let plain = start(&[]).await;
    assert_eq!(plain.raw().get("/livez").await.header(header), "");
}

#[tokio::test]
async fn pods_tolerate_trouble_for_the_seconds_of_the_flags() {
    let flags = ["--default-not-ready-toleration-seconds=30", "--default-unreachable-toleration-seconds=7"];
    let server = start(&flags).await;
    let raw = server.raw();
    let account = raw.post(format!("{NAMESPACE}/serviceaccounts"), &json!({"metadata": {"name": "default"}})).await;
    assert!(matches!(account.status, 201 | 409));
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let pod = raw.post(format!("{NAMESPACE}/pods"), &pod).await.expect(201).json();
    let seconds: Vec<(&str, i64)> = pod["spec"]["tolerations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["key"].as_str().unwrap(), one["tolerationSeconds"].as_i64().unwrap()))
        .collect();
    assert_eq!(seconds, [("node.kubernetes.io/not-ready", 30), ("node.kubernetes.io/unreachable", 7)]);
}

#[tokio::test]
async fn requested_lifetimes_of_tokens_are_shortened() {
    let server = start(&["--service-account-max-token-expiration", "2h"]).await;
    let raw = server.raw();
    let accounts = format!("{NAMESPACE}/serviceaccounts");
    raw.post(&accounts, &json!({"metadata": {"name": "a"}})).await.expect(201);
    let request = |seconds: i64| json!({"spec": {"expirationSeconds": seconds}});
    let long = raw.post(format!("{accounts}/a/token"), &request(90_000)).await.expect(201);
    assert!(long.header("warning").contains("requested expiration of 90000 seconds shortened to 7200 seconds"));
    assert_eq!(long.json()["spec"]["expirationSeconds"], 7200);
    let short = raw.post(format!("{accounts}/a/token"), &request(3600)).await.expect(201);
    assert_eq!((short.header("warning"), short.json()["spec"]["expirationSeconds"].clone()), ("", json!(3600)));
    let why = refused(&["--service-account-max-token-expiration", "10m"]).await;
    assert!(why.contains("must be between 1 hour and 2^32 seconds"), "{why}");
}

fn event(name: &str) -> Value {
    json!({
        "metadata": {"name": name}, "reason": "Test", "message": name, "type": "Normal",
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
    })
}

#[tokio::test]
async fn events_end_a_time_after_their_last_write() {
    let mut server = start(&["--event-ttl", "3s"]).await;
    let events = format!("{NAMESPACE}/events");
    let begun = Instant::now();
    server.raw().post(&events, &event("first")).await.expect(201);
    server.raw().post(&events, &event("second")).await.expect(201);
    // An event from before a restart ends by its own times.
    server.terminate().await;
    server.restart().await;
    let raw = server.raw();
    let merge = "application/merge-patch+json";
    tokio::time::sleep(Duration::from_secs(2).saturating_sub(begun.elapsed())).await;
    let again = raw.patch(format!("{events}/second"), merge, &json!({"count": 2, "message": "again"})).await;
    let written = again.status == 200;
    let gone = async |name: &str| {
        while raw.get(format!("{events}/{name}")).await.status != 404 {
            assert!(begun.elapsed() < PATIENCE, "{name} is still there");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        begun.elapsed()
    };
    let first = gone("first").await;
    assert!(first >= Duration::from_secs(2), "{first:?}");
    let second = gone("second").await;
    assert!(!written || second >= first, "{first:?} {second:?}");
    // Other objects stay.
    raw.get("/api/v1/namespaces/default").await.expect(200);
}

#[tokio::test]
async fn events_stay_without_the_flag() {
    let server = start(&[]).await;
    let events = format!("{NAMESPACE}/events");
    server.raw().post(&events, &event("kept")).await.expect(201);
    server.raw().get(format!("{events}/kept")).await.expect(200);
    let text = server.raw().get("/metrics").await.expect(200).text();
    assert!(!text.contains("event-expiry"), "no task deletes events");
}

#[tokio::test]
async fn the_addresses_of_the_service_are_left_to_others() {
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes";
    let server = start(&["--endpoint-reconciler-type", "none"]).await;
    server.raw().get(format!("{NAMESPACE}/services/kubernetes")).await.expect(200);
    assert_eq!(server.raw().get(slices).await.status, 404);
    let server = start(&["--endpoint-reconciler-type", "master-count"]).await;
    server.raw().get(slices).await.expect(200);
    assert!(refused(&["--endpoint-reconciler-type", "other"]).await.contains("lease, master-count, none"));
}
