//! Tests of namespaces with more limit ranges than the server compares with one write: the error has the reason and the
//! remedy, and deletions work.

use std::time::{Duration, Instant};

use futures::{StreamExt as _, stream};
use keelson_testkit::{Raw, TestServer};
use serde_json::{Value, json};

use super::many_quotas::cached;

/// The number of concurrent requests.
const AT_ONCE: usize = 8;
const LIMITS: &str = "/api/v1/namespaces/lab/limitranges";
const PODS: &str = "/api/v1/namespaces/lab/pods";

fn pod(name: &str, containers: usize) -> Value {
    let containers: Vec<_> =
        (0..containers).map(|number| json!({ "name": format!("c{number}"), "image": "i" })).collect();
    json!({ "metadata": { "name": name }, "spec": { "automountServiceAccountToken": false, "containers": containers } })
}

async fn refused_pod(raw: &Raw, pod: &Value) -> String {
    let begun = Instant::now();
    let refused = raw.post(PODS, pod).await.expect(403).json();
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    let message = refused["message"].as_str().unwrap().to_owned();
    assert!(message.contains("kubectl delete limitranges NAME -n lab"), "{message}");
    message
}

/// 1,500 containers and 2,000 defaults would make a pod of three million amounts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limit_ranges_too_large_to_check_are_refused_with_advice() {
    let server = TestServer::builder().sqlite().start().await;
    let raw = server.raw();
    let named = |name: &str| json!({ "metadata": { "name": name } });
    raw.post("/api/v1/namespaces", &named("lab")).await.expect(201);
    // A controller may already have created it.
    raw.post("/api/v1/namespaces/lab/serviceaccounts", &named("default")).await;
    let amounts: Value = (0..1000)
        .map(|number| (format!("example.org/x{number}"), json!("1")))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let limit = json!({ "type": "Container", "default": amounts, "defaultRequest": amounts });
    raw.post(LIMITS, &json!({ "metadata": { "name": "large" }, "spec": { "limits": [limit] } })).await.expect(201);
    cached(&raw, LIMITS, 1, false).await;
    raw.post(PODS, &pod("small", 2)).await.expect(201);
    let message = refused_pod(&raw, &pod("large", 1500)).await;
    assert!(
        message.contains("its 1500 containers and the 2001 amounts of the limit ranges in namespace lab"),
        "{message}"
    );
    raw.delete(format!("{LIMITS}/large")).await.expect(200);
    let add = async |number: usize| {
        let limit = json!({ "type": "Pod", "min": { "cpu": "1m" } });
        let range = json!({ "metadata": { "name": format!("l{number}") }, "spec": { "limits": [limit] } });
        raw.post(LIMITS, &range).await.expect(201);
    };
    stream::iter(0..101).for_each_concurrent(AT_ONCE, add).await;
    cached(&raw, LIMITS, 101, false).await;
    let message = refused_pod(&raw, &pod("other", 1)).await;
    assert!(message.contains("namespace lab has 101 limit ranges with "), "{message}");
    raw.delete(format!("{PODS}/small?gracePeriodSeconds=0")).await.expect(200);
    raw.delete(LIMITS).await.expect(200);
    cached(&raw, LIMITS, 0, false).await;
    raw.post(PODS, &pod("other", 1)).await.expect(201);
}
