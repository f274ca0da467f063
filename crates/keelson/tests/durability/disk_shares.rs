//! Tests of users' shares of the store: one that takes all it can get leaves room for others and for administrators.
//!
//! The store has a small quota, so that the test need not fill a disk.

use keelson_testkit::{Answer, Raw, TestServer};
use serde_json::{Value, json};

use crate::CONFIG_MAPS;

const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";

fn large(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"text": "x".repeat(400_000)}})
}

/// Otherwise the history, and with it lists and watches of others, would last for seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_updates_by_one_user_leave_history_to_others() {
    const HISTORY: u64 = 64 << 20;
    let builder = TestServer::builder().sqlite().configure(|config| config.store_room.history_bytes = HISTORY);
    let server = builder.start().await;
    let raw = server.raw();
    let subjects =
        ["ann", "bob"].map(|name| json!({"kind": "User", "name": name, "apiGroup": "rbac.authorization.k8s.io"}));
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"});
    let binding = json!({"metadata": {"name": "both"}, "roleRef": role, "subjects": subjects});
    raw.post(BINDINGS, &binding).await.expect(201);
    let path = format!("{CONFIG_MAPS}/ann");
    create(&raw, "ann", "ann").await.expect(201);
    let mut count = 0;
    let refused = loop {
        let mut next = large("ann");
        next["data"]["count"] = json!(count.to_string());
        let answer = raw.put(&path, &next).header("impersonate-user", "ann").await;
        if answer.status != 200 {
            break answer;
        }
        count += 1;
        assert!(count < 1000, "{count} updates of 400 KB");
    };
    let message = refused.expect(429).json()["message"].as_str().unwrap().to_owned();
    assert!(message.starts_with("too much of the history: the user has replaced "), "{message}");
    assert!(count > 150, "{count}");
    create(&raw, "ann", "another").await.expect(429);
    let mut smaller = large("ann");
    smaller["data"]["text"] = json!("x".repeat(399_000));
    raw.put(&path, &smaller).header("impersonate-user", "ann").await.expect(429);
    create(&raw, "bob", "bob").await.expect(201);
    raw.put(&path, &large("ann")).await.expect(200);
    let change = json!({"data": {"text": "x"}});
    raw.patch(&path, "application/merge-patch+json", &change).header("impersonate-user", "ann").await.expect(200);
    raw.delete(&path).header("impersonate-user", "ann").await.expect(200);
}

async fn create(raw: &Raw, user: &str, name: &str) -> Answer {
    raw.post(CONFIG_MAPS, &large(name)).header("impersonate-user", user).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_that_fills_the_store_leaves_space_to_others() {
    const QUOTA: u64 = 32 * 1024 * 1024;
    let builder = TestServer::builder().sqlite().configure(|config| config.store_room.quota = Some(QUOTA));
    let server = builder.start().await;
    let raw = server.raw();
    let subjects =
        ["ann", "bob"].map(|name| json!({"kind": "User", "name": name, "apiGroup": "rbac.authorization.k8s.io"}));
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"});
    let binding = json!({"metadata": {"name": "both"}, "roleRef": role, "subjects": subjects});
    raw.post(BINDINGS, &binding).await.expect(201);

    let mut count = 0;
    let refused = loop {
        let answer = create(&raw, "ann", &format!("ann-{count}")).await;
        if answer.status != 201 {
            break answer;
        }
        count += 1;
    };
    assert_eq!(refused.header("retry-after"), "60");
    let message = refused.expect(429).json()["message"].as_str().unwrap().to_owned();
    assert!(message.starts_with("too much of the store: the user has added "), "{message}");
    assert!((20..60).contains(&count), "{count} objects are about half of the store");
    // Others have room, and administrators the rest.
    create(&raw, "bob", "bob").await.expect(201);
    for number in 0..10 {
        raw.post(CONFIG_MAPS, &large(&format!("root-{number}"))).await.expect(201);
    }
    // Changes that add nothing pass, and a deleted object can be created again.
    let change = json!({"data": {"text": "x"}});
    let path = |number: usize| format!("{CONFIG_MAPS}/ann-{number}");
    raw.patch(path(0), "application/merge-patch+json", &change).header("impersonate-user", "ann").await.expect(200);
    for number in 0..count {
        raw.delete(path(number)).header("impersonate-user", "ann").await.expect(200);
    }
    create(&raw, "ann", "again").await.expect(201);
}
