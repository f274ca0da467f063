//! Tests of the deletion of namespaces with objects on aggregated servers. The main server deletes the objects on
//! available servers. An unavailable one blocks only the namespace itself.

use keelson_testkit::{HookReply, Raw, TestServer};
use serde_json::{Value, json};

use super::backend::{Backend, resource};
use super::{AGGREGATED, until, until_of};

/// A resource whose objects block the deletion of a namespace.
fn blocking_resource() -> Value {
    let mut held = resource("things", "Thing");
    held["verbs"] = json!(["delete", "deletecollection", "get", "list"]);
    held
}

async fn make(raw: &Raw, namespace: &str) {
    raw.post("/api/v1/namespaces", &json!({ "metadata": { "name": namespace } })).await.expect(201);
    raw.post(format!("/api/v1/namespaces/{namespace}/configmaps"), &json!({ "metadata": { "name": "a" } }))
        .await
        .expect(201);
}

/// Registers the version of a group, and waits until discovery has it with this freshness.
async fn register(raw: &Raw, backend: &Backend, group: &str, freshness: &str) {
    backend.register(raw, group, "v1").await;
    let shown = |found: &Value| {
        let items = found["items"].as_array().cloned().unwrap_or_default();
        items.iter().any(|item| item["metadata"]["name"] == group && item["versions"][0]["freshness"] == freshness)
    };
    until_of(raw, "/apis", AGGREGATED, shown).await;
}

/// Status, reason and message of a namespace's condition.
fn condition(namespace: &Value, kind: &str) -> [String; 3] {
    let all = namespace["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = all.into_iter().find(|condition| condition["type"] == kind).unwrap_or_default();
    ["status", "reason", "message"].map(|field| found[field].as_str().unwrap_or_default().to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn namespace_content_on_other_servers_is_deleted() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let backend = Backend::start(&raw, "holds").await;
    backend.serve(&[("holds.example.org", "v1", json!([blocking_resource()]))]);
    register(&raw, &backend, "holds.example.org", "Current").await;
    make(&raw, "ns").await;
    let path = "/apis/holds.example.org/v1/namespaces/ns/things";
    let thing = json!({ "metadata": { "name": "t", "finalizers": ["example.org/hold"] } });
    backend.answer(path, HookReply::Json(json!({ "kind": "ThingList", "items": [thing] })));
    raw.delete("/api/v1/namespaces/ns").await.expect(200);
    let left = |found: &Value| condition(found, "NamespaceContentRemaining")[0] == "True";
    let found = until(&raw, "/api/v1/namespaces/ns", left).await;
    let message = "Some resources are remaining: things.holds.example.org has 1 resource instances";
    assert_eq!(condition(&found, "NamespaceContentRemaining")[2], message);
    let message = "Some content in the namespace has finalizers remaining: example.org/hold in 1 resource instances";
    assert_eq!(condition(&found, "NamespaceFinalizersRemaining")[2], message);
    let owners = found["metadata"]["managedFields"].as_array().unwrap();
    let of_status = owners.iter().find(|owner| owner["subresource"] == "status").unwrap();
    assert_eq!(of_status["manager"], "kube-controller-manager");
    let asked = &backend.asked(path)[0].headers;
    assert_eq!(asked["x-remote-user"], "system:serviceaccount:kube-system:namespace-controller");
    backend.answer(path, HookReply::Json(json!({ "kind": "ThingList", "items": [] })));
    until(&raw, "/api/v1/namespaces/ns", |found| found["code"] == 404).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreachable_server_blocks_the_namespace_but_not_its_content() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let (dead, hangs) = (Backend::start(&raw, "dead").await, Backend::start(&raw, "hangs").await);
    dead.answer("/apis/dead.example.org/v1", HookReply::Other(500, vec![], String::new()));
    register(&raw, &dead, "dead.example.org", "Stale").await;
    hangs.serve(&[("hangs.example.org", "v1", json!([blocking_resource()]))]);
    hangs.answer("/apis/hangs.example.org/v1/namespaces/ns/things", HookReply::Hangs);
    register(&raw, &hangs, "hangs.example.org", "Current").await;
    make(&raw, "ns").await;
    raw.delete("/api/v1/namespaces/ns").await.expect(200);
    until(&raw, "/api/v1/namespaces/ns/configmaps", |found| found["items"].as_array().is_some_and(Vec::is_empty)).await;
    let told = |found: &Value| {
        ["NamespaceDeletionDiscoveryFailure", "NamespaceDeletionContentFailure"]
            .iter()
            .all(|kind| condition(found, kind)[0] == "True")
    };
    let found = until(&raw, "/api/v1/namespaces/ns", told).await;
    let [_, reason, message] = condition(&found, "NamespaceDeletionDiscoveryFailure");
    let expected = "Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server APIs: \
                    dead.example.org/v1: stale GroupVersion discovery: dead.example.org/v1";
    assert_eq!((&*reason, &*message), ("DiscoveryFailed", expected));
    let [_, reason, message] = condition(&found, "NamespaceDeletionContentFailure");
    assert_eq!(reason, "ContentDeletionFailed");
    assert!(message.contains("things.hangs.example.org"), "{message}");

    // A user who does not want to wait finalizes the namespace.
    make(&raw, "other").await;
    raw.delete("/api/v1/namespaces/other").await.expect(200);
    until(&raw, "/api/v1/namespaces/other/configmaps", |found| found["items"].as_array().is_some_and(Vec::is_empty))
        .await;
    let finalized = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "other" }, "spec": { "finalizers": [] } });
    raw.put("/api/v1/namespaces/other/finalize", &finalized).await.expect(200);
    until(&raw, "/api/v1/namespaces/other", |found| found["code"] == 404).await;

    // When the servers are available again, everything is deleted.
    hangs.answer("/apis/hangs.example.org/v1/namespaces/ns/things", HookReply::Json(json!({ "items": [] })));
    dead.serve(&[("dead.example.org", "v1", json!([blocking_resource()]))]);
    dead.answer("/apis/dead.example.org/v1/namespaces/ns/things", HookReply::Json(json!({ "items": [] })));
    until(&raw, "/api/v1/namespaces/ns", |found| found["code"] == 404).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lying_server_blocks_only_its_own_part_of_a_namespace() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let nonsense =
        |text: &str| HookReply::Other(200, vec![("content-type", "application/json".to_owned())], text.to_owned());
    let lies = [
        ("closes", HookReply::Closes),
        ("stalls", HookReply::Stalls),
        ("dies", HookReply::DiesInTheMiddle),
        ("endless", HookReply::Endless),
        ("garbage", nonsense("none of your business")),
        ("alien", nonsense(r#"{"kind":"ThingList","items":"none"}"#)),
    ];
    let path = |group: &str| format!("/apis/{group}/v1/namespaces/ns/things");
    let mut backends = Vec::new();
    for (name, lie) in lies {
        let (backend, group) = (Backend::start(&raw, name).await, format!("{name}.example.org"));
        backend.serve(&[(&group, "v1", json!([blocking_resource()]))]);
        backend.answer(&path(&group), lie);
        register(&raw, &backend, &group, "Current").await;
        backends.push((backend, group));
    }
    make(&raw, "ns").await;
    raw.delete("/api/v1/namespaces/ns").await.expect(200);
    until(&raw, "/api/v1/namespaces/ns/configmaps", |found| found["items"].as_array().is_some_and(Vec::is_empty)).await;
    // The message names each of them as a reason.
    let told = |found: &Value| {
        let [status, _, message] = condition(found, "NamespaceDeletionContentFailure");
        status == "True" && backends.iter().all(|(_, group)| message.contains(&format!("things.{group}")))
    };
    until(&raw, "/api/v1/namespaces/ns", told).await;
    raw.get("/readyz").await.expect(200);
    for (backend, group) in &backends {
        backend.answer(&path(group), HookReply::Json(json!({ "kind": "ThingList", "items": [] })));
    }
    until(&raw, "/api/v1/namespaces/ns", |found| found["code"] == 404).await;
}
