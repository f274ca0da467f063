//! Tests of the largest object: the limit is the same on every store, and a larger object is rejected before anything
//! is written.
//!
//! Otherwise a cluster that moves to another store could have objects that do not fit there.

use keelson_testkit::{Answer, Raw, TestServer};
use serde_json::{Value, json};

use crate::engines::{Engine, on_every_engine};
use crate::revision;

on_every_engine!(no_object_grows_beyond_what_fits_on_every_store, a_lower_bound_holds_on_every_store);

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
/// The limit of etcd, and so of every store.
const BOUND: usize = 1536 * 1024;
/// The step of sizes in the search for the largest object.
const STEP: usize = 256;

fn deployment(name: &str, argument: usize) -> Value {
    let labels = json!({"app": name});
    json!({
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "c", "image": "i", "args": ["x".repeat(argument)]}]},
        }},
    })
}

async fn grow(raw: &Raw, name: &str, by: usize) -> Answer {
    let add = json!([{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "x".repeat(by)}]);
    raw.patch(format!("{DEPLOYMENTS}/{name}"), "application/json-patch+json", &add).await
}

/// Checks the error for a too large object, which contains the server's own limit.
#[track_caller]
fn check_too_large(answer: Answer, limit: usize) {
    let status = answer.expect(413).json();
    let message = status["message"].as_str().unwrap();
    assert!(message.starts_with("Request entity too large: the object takes "), "{status}");
    assert!(message.ends_with(&format!("--max-object-bytes of the server allows {limit}")), "{status}");
    assert_eq!(status["reason"], "RequestEntityTooLarge", "{status}");
}

async fn no_object_grows_beyond_what_fits_on_every_store(engine: Engine) {
    let server = TestServer::builder().shared_store(engine.open().await).start().await;
    let raw = server.raw();
    raw.post(DEPLOYMENTS, &deployment("grows", 700_000)).await.expect(201);
    let grown = grow(&raw, "grows", 700_000).await.expect(200).json();
    check_too_large(grow(&raw, "grows", 700_000).await, BOUND);
    let kept = raw.get(format!("{DEPLOYMENTS}/grows")).await.expect(200).json();
    assert_eq!(revision(&kept), revision(&grown), "nothing was written");
    check_too_large(raw.post(DEPLOYMENTS, &deployment("large", BOUND + 1)).await, BOUND);
    raw.get(format!("{DEPLOYMENTS}/large")).await.expect(404);
    // etcd accepts the largest allowed object too, with the overhead of its request.
    let mut length = BOUND;
    while raw.post(DEPLOYMENTS, &deployment("large", length)).await.status != 201 {
        length -= STEP;
        assert!(length > BOUND - 32 * STEP, "the bound is far below what is said");
    }
}

async fn a_lower_bound_holds_on_every_store(engine: Engine) {
    let server = TestServer::builder().shared_store(engine.open().await);
    let server = server.configure(|config| config.max_object_bytes = 100_000).start().await;
    let raw = server.raw();
    raw.post(DEPLOYMENTS, &deployment("small", 90_000)).await.expect(201);
    check_too_large(raw.post(DEPLOYMENTS, &deployment("large", 100_000)).await, 100_000);
    check_too_large(grow(&raw, "small", 20_000).await, 100_000);
}
