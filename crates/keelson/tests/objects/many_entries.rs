//! Tests of objects with the largest possible number of entries. The server answers requests of others while these
//! objects change.
//!
//! Code that compares each entry with every other one takes minutes here.

use std::time::Duration;

use keelson_testkit::{Call, Raw, TestServer};
use serde_json::{Map, Value, json};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";
const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";
/// The longest wait for a response. A comparison of all pairs takes several times as long.
const PATIENCE: Duration = Duration::from_secs(60);

/// The code of a response, which must come in time.
async fn code(call: Call, what: &str) -> u16 {
    match tokio::time::timeout(PATIENCE, call.into_future()).await {
        Ok(answer) => answer.status,
        Err(_) => panic!("{what}: no answer in {PATIENCE:?}"),
    }
}

/// Reads the written object and another one, both consistently.
async fn others_are_answered(raw: &Raw, what: &str) {
    for path in ["/api/v1/namespaces/kube-system/configmaps", "/api/v1/namespaces/default"] {
        assert_eq!(code(raw.get(path), what).await, 200, "{what}: {path}");
    }
}

fn entries(number: usize, form: impl Fn(usize) -> (String, Value)) -> Map<String, Value> {
    (0..number).map(form).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_changed_labels_are_processed_in_time() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let labelled = |mark: &str| {
        let labels = entries(80_000, |number| (format!("{mark}{number}"), json!("")));
        json!({ "metadata": { "name": "a", "labels": labels } })
    };
    // The watch is woken by a label, and each event has many labels.
    let watch = format!("{CONFIG_MAPS}?watch=true&timeoutSeconds=300&labelSelector=b1");
    let _followed = server.raw().get(watch).stream().await;
    assert_eq!(code(raw.post(CONFIG_MAPS, &labelled("a")), "a create").await, 201);
    for mark in ["b", "c"] {
        assert_eq!(code(raw.put(format!("{CONFIG_MAPS}/a"), &labelled(mark)), "an update").await, 200);
        others_are_answered(&raw, "an update").await;
    }
    assert_eq!(code(raw.delete(format!("{CONFIG_MAPS}/a")), "a deletion").await, 200);
    others_are_answered(&raw, "a deletion").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_changed_quota_limits_are_processed_in_time() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let limited = |mark: &str| {
        let hard = entries(40_000, |number| (format!("count/{mark}{number}.g.io"), json!("5")));
        json!({ "metadata": { "name": "q" }, "spec": { "hard": hard } })
    };
    assert_eq!(code(raw.post(QUOTAS, &limited("a")), "a create").await, 201);
    others_are_answered(&raw, "a create").await;
    assert_eq!(code(raw.put(format!("{QUOTAS}/q"), &limited("b")), "an update").await, 200);
    others_are_answered(&raw, "an update").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_changed_gates_and_tolerations_are_processed_in_time() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let pod = |name: &str, field: &str, items: Vec<Value>| json!({ "metadata": { "name": name }, "spec": { "containers": [{ "name": "c", "image": "i" }], field: items } });
    let gates = |mark: &str| {
        pod("g", "schedulingGates", (0..40_000).map(|n| json!({ "name": format!("{mark}{n}") })).collect())
    };
    assert_eq!(code(raw.post(PODS, &gates("a")), "a create").await, 201);
    assert_eq!(code(raw.put(format!("{PODS}/g"), &gates("b")), "other gates").await, 422);
    let tolerated: Vec<Value> = (0..25_000).map(|n| json!({ "key": format!("k{n}"), "operator": "Exists" })).collect();
    assert_eq!(code(raw.post(PODS, &pod("t", "tolerations", tolerated.clone())), "a create").await, 201);
    let turned = tolerated.into_iter().rev().collect();
    let patch = json!({ "spec": { "tolerations": Value::Array(turned) } });
    let merged = raw.patch(format!("{PODS}/t"), "application/merge-patch+json", &patch);
    assert!(matches!(code(merged, "the same in another order").await, 200 | 422));
    others_are_answered(&raw, "updates of pods").await;
}
