//! Tests of the largest object: the limit is the same on every store, and a larger object is rejected before anything
//! is written.
//!
//! With equal limits, a cluster can move to another store without objects that are too large for it.

use keelson_testkit::{Answer, Raw, TestServer};
use serde_json::{Value, json};

use crate::engines::{Engine, on_every_engine};
use crate::revision;

on_every_engine!(
    no_object_grows_beyond_what_fits_on_every_store,
    a_lower_bound_holds_on_every_store,
    a_name_that_no_store_holds_is_refused_on_every_store
);

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

/// PostgreSQL answered 500 or 503, as if it were damaged or away. With names of 50 KB on other stores, continue tokens were
/// longer than a URL may be, which broke the lists of all users.
async fn a_name_that_no_store_holds_is_refused_on_every_store(engine: Engine) {
    let server = TestServer::builder().shared_store(engine.open().await).start().await;
    let raw = server.raw();
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
    // No repetition, which PostgreSQL would compress.
    let mut seed = 1_u64;
    let mut letter = |_| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        char::from(b"abcdefghijklmnopqrstuvwxyzABCDEF"[(seed >> 40) as usize % 32])
    };
    let name: String = (0..5000).map(&mut letter).collect();
    let role = |name: &str| json!({"metadata": {"name": name, "finalizers": ["a/b"]}, "rules": []});
    for (refused, why) in [
        (&name[..], "must be no more than 2048 bytes"),
        (&name[..2049], "must be no more than 2048 bytes"),
        ("a\0b", "must not contain a zero byte"),
    ] {
        let status = raw.post(roles, &role(refused)).await.expect(422).json();
        assert!(status["message"].as_str().unwrap().ends_with(why), "{status}");
    }
    let longest = format!("{roles}/{}", &name[..2048]);
    raw.post(roles, &role(&name[..2048])).await.expect(201);
    let none = json!({"metadata": {"finalizers": null}});
    raw.patch(&longest, "application/merge-patch+json", &none).await.expect(200);
    raw.delete(&longest).await.expect(200);
    raw.get(&longest).await.expect(404);
    for odd in ["a\u{1}b\n", "'\"\\$1--", "\u{10ffff}\u{ffff}", " e\u{301} "] {
        raw.post(roles, &role(odd)).await.expect(201);
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
