//! Tests of namespaces with more quotas than one write can be charged to: the error has the reason and the remedy, and
//! deletions work.
//!
//! No quota controller runs here. The test writes the status of each quota.

use futures::{StreamExt as _, stream};
use keelson_server::Switches;
use keelson_testkit::{Raw, TestServer};
use serde_json::{Value, json};

const QUOTAS: &str = "/api/v1/namespaces/lab/resourcequotas";
const MAPS: &str = "/api/v1/namespaces/lab/configmaps";
/// The number of concurrent requests.
const AT_ONCE: usize = 8;

async fn lab() -> (TestServer, Raw) {
    let controllers = Switches::parse(std::iter::empty()).unwrap();
    let server = TestServer::builder().sqlite().configure(|config| config.controllers = controllers).start().await;
    let raw = server.raw();
    raw.post("/api/v1/namespaces", &json!({ "metadata": { "name": "lab" } })).await.expect(201);
    raw.post(MAPS, &named("before")).await.expect(201);
    (server, raw)
}

fn named(name: &str) -> Value {
    json!({ "metadata": { "name": name } })
}

/// Creates quotas with a status, each with this number of bytes of annotations.
async fn add_quotas(raw: &Raw, numbers: std::ops::Range<usize>, bytes: usize) {
    let add = async |number: usize| {
        let annotations = json!({ "a": "x".repeat(bytes) });
        let metadata = json!({ "name": format!("q{number}"), "annotations": annotations });
        raw.post(QUOTAS, &json!({ "metadata": metadata, "spec": { "hard": { "configmaps": "9" } } })).await.expect(201);
        let status = json!({ "status": { "hard": { "configmaps": "9" }, "used": { "configmaps": "1" } } });
        raw.patch(format!("{QUOTAS}/q{number}/status"), "application/merge-patch+json", &status).await.expect(200);
    };
    let count = numbers.end;
    stream::iter(numbers).for_each_concurrent(AT_ONCE, add).await;
    cached(raw, QUOTAS, count, true).await;
}

/// Waits until the cache, which admission uses, has this number of objects, with a status if required.
pub(super) async fn cached(raw: &Raw, path: &str, count: usize, with_status: bool) {
    let is_there = async || {
        let list = raw.get(format!("{path}?resourceVersion=0")).await.expect(200).json();
        let items = list["items"].as_array().unwrap();
        items.len() == count && (!with_status || items.iter().all(|item| item["status"]["used"]["configmaps"] == "1"))
    };
    while !is_there().await {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

async fn used(raw: &Raw, number: usize) -> Value {
    raw.get(format!("{QUOTAS}/q{number}")).await.expect(200).json()["status"]["used"]["configmaps"].clone()
}

async fn refused(raw: &Raw) -> String {
    let refused = raw.post(MAPS, &named("new")).await.expect(403).json();
    assert_eq!((&refused["reason"], &refused["details"]["name"]), (&json!("Forbidden"), &json!("new")), "{refused}");
    let message = refused["message"].as_str().unwrap().to_owned();
    assert!(message.starts_with("configmaps \"new\" is forbidden: "), "{message}");
    assert!(message.contains("kubectl delete resourcequotas NAME -n lab"), "{message}");
    message
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_under_too_many_quotas_are_refused_with_advice() {
    let (_server, raw) = lab().await;
    add_quotas(&raw, 0..101, 0).await;
    let message = refused(&raw).await;
    assert!(message.contains("101 resource quotas count it, and a write is charged to 100 at most"), "{message}");
    // Deletions are charged to no quota, and an object that no quota counts can be created.
    raw.delete(format!("{MAPS}/before")).await.expect(200);
    raw.post("/api/v1/namespaces/lab/secrets", &named("other")).await.expect(201);
    raw.delete(format!("{QUOTAS}/q100")).await.expect(200);
    raw.post(MAPS, &named("new")).await.expect(201);
    for number in 0..100 {
        assert_eq!(used(&raw, number).await, "2", "q{number}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_quotas_are_not_reported_as_large_objects() {
    let (_server, raw) = lab().await;
    add_quotas(&raw, 0..20, 45_000).await;
    // The client's object alone would not exceed the limit of a transaction.
    let large = json!({ "metadata": { "name": "new" }, "data": { "k": "x".repeat(800_000) } });
    let message = raw.post(MAPS, &large).await.expect(403).json()["message"].as_str().unwrap().to_owned();
    assert!(message.contains("the 20 resource quotas that count it are too large for one transaction"), "{message}");
    add_quotas(&raw, 20..23, 45_000).await;
    let message = refused(&raw).await;
    assert!(message.contains("namespace lab has 23 resource quotas with "), "{message}");
    raw.delete(format!("{MAPS}/before")).await.expect(200);
    // Each of several batched writes gets its own error.
    let many = stream::iter(0..16).map(|number| {
        let raw = &raw;
        async move { raw.post(MAPS, &named(&format!("m{number}"))).await.expect(403) }
    });
    many.buffer_unordered(16).for_each(async |_| ()).await;
    for number in 0..10 {
        raw.delete(format!("{QUOTAS}/q{number}")).await.expect(200);
    }
    raw.post(MAPS, &named("new")).await.expect(201);
    assert_eq!(used(&raw, 15).await, "2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quotas_too_large_to_read_are_refused_with_advice() {
    let (_server, raw) = lab().await;
    let quota = |name: &str| json!({ "metadata": { "name": name }, "spec": { "hard": { "secrets": "9" } } });
    let add = async |number: usize| {
        raw.post(QUOTAS, &quota(&format!("q{number}"))).await.expect(201);
    };
    stream::iter(0..501).for_each_concurrent(AT_ONCE, add).await;
    cached(&raw, QUOTAS, 501, false).await;
    let message = refused(&raw).await;
    assert!(
        message.contains("namespace lab has 501 resource quotas with ")
            && message.contains(" and a write looks at 500 with "),
        "{message}"
    );
    // The create of one more quota is such a write too, so their number is limited.
    raw.post(QUOTAS, &quota("more")).await.expect(403);
    raw.delete(format!("{MAPS}/before")).await.expect(200);
    raw.delete(QUOTAS).await.expect(200);
    cached(&raw, QUOTAS, 0, false).await;
    raw.post(MAPS, &named("new")).await.expect(201);
}
