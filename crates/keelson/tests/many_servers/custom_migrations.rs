//! Tests of migrations of custom resources. When a definition changes its storage version, objects are converted. The
//! old version leaves `storedVersions` when no object has it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use keelson_resources::storage_version_hash;
use keelson_storage::memory::MemoryStore;
use keelson_storage::{RangeRequest, Store, StoreKey};
use keelson_testkit::{
    DEFINITIONS, HookReply, HookRequest, HookServer, Raw, TestServer, converted_review, definition_version,
};
use serde_json::{Value, json};

use crate::migrations::{MIGRATIONS, condition, has_ended, holds, migrations, with_migrator};
use crate::storage_states::{STATES, persisted};
use crate::{items, name, until};

pub(crate) const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/hosts.move.example.com";
const STORED: &str = "/registry/move.example.com/hosts/";
pub(crate) const MERGE: &str = "application/merge-patch+json";
pub(crate) const OBJECTS: usize = 30;

fn place(version: &str) -> String {
    format!("/apis/move.example.com/{version}/namespaces/default/hosts")
}

pub(crate) fn versions(stored: &str) -> Value {
    let version = |name: &str, field: &str| {
        let spec = json!({ "type": "object", "properties": { field: { "type": "string" } } });
        let schema = json!({ "type": "object", "properties": { "spec": spec } });
        definition_version(name, name == stored, schema)
    };
    json!([version("v1", "host"), version("v2", "address")])
}

/// Moves `host` to `address` and back.
pub(crate) fn converted(review: &Value) -> Value {
    converted_review(review, |spec, wanted| {
        let value = [&spec["host"], &spec["address"]].into_iter().find(|value| value.is_string()).cloned();
        let field = if wanted.ends_with("v2") { "address" } else { "host" };
        json!({ field: value })
    })
}

/// The objects in the store.
pub(crate) async fn stored(store: &dyn Store) -> Vec<Value> {
    let (from, to) = (StoreKey::new(STORED), StoreKey::prefix_end(STORED));
    let page = store.range(RangeRequest { from, to, revision: None, limit: None }).await.unwrap();
    page.entries.iter().map(|entry| serde_json::from_slice(&entry.value).unwrap()).collect()
}

pub(crate) async fn definition(raw: &Raw) -> Value {
    raw.get(DEFINITION).await.expect(200).json()
}

/// Creates the definition, with the webhook as its converter.
pub(crate) async fn define(raw: &Raw, hook: &HookServer) {
    let client = json!({ "url": hook.url("/convert"), "caBundle": hook.ca_bundle() });
    let webhook = json!({ "clientConfig": client, "conversionReviewVersions": ["v1"] });
    let mut hosts = keelson_testkit::definition("move.example.com", "hosts", "Host", versions("v1"));
    hosts["spec"]["conversion"] = json!({ "strategy": "Webhook", "webhook": webhook });
    raw.post(DEFINITIONS, &hosts).await.expect(201);
    until("it is established", || async { holds(&definition(raw).await, "Established") }).await;
}

/// Starts a server with objects in the first version and a conversion webhook. The flag makes the webhook fail.
pub(crate) async fn start() -> (MemoryStore, TestServer, HookServer, Arc<AtomicBool>) {
    let is_broken = Arc::new(AtomicBool::new(false));
    let hook = HookServer::start(&["127.0.0.1"], {
        let is_broken = is_broken.clone();
        move |request: HookRequest| {
            let is_broken = is_broken.load(Ordering::SeqCst);
            std::future::ready(HookReply::Json(if is_broken { json!({}) } else { converted(&request.body) }))
        }
    })
    .await;
    let store = MemoryStore::new();
    let server = TestServer::builder().shared_store(Arc::new(store.clone())).configure(with_migrator).start().await;
    let raw = server.raw();
    define(&raw, &hook).await;
    for number in 0..OBJECTS {
        let host =
            json!({ "metadata": { "name": format!("h{number:02}") }, "spec": { "host": format!("at-{number}") } });
        raw.post(place("v1"), &host).await.expect(201);
    }
    (store, server, hook, is_broken)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_storage_version_migrates_objects_and_drops_the_old_version() {
    let (store, server, _hook, _) = start().await;
    let raw = server.raw();
    let before = raw.get(place("v1")).await.expect(200).json();
    let changed =
        raw.patch(DEFINITION, MERGE, &json!({ "spec": { "versions": versions("v2") } })).await.expect(200).json();
    assert_eq!(changed["status"]["storedVersions"], json!(["v1", "v2"]));
    until("the old version leaves the list", || async {
        definition(&raw).await["status"]["storedVersions"] == json!(["v2"])
    })
    .await;
    let all = stored(&store).await;
    assert_eq!(all.len(), OBJECTS);
    for (number, object) in all.iter().enumerate() {
        assert_eq!(object["apiVersion"], "move.example.com/v2");
        assert_eq!(object["spec"], json!({ "address": format!("at-{number}") }));
    }
    let without = |list: &Value| -> Vec<(String, Value)> {
        items(list).iter().map(|object| (name(object).to_owned(), object["spec"].clone())).collect()
    };
    assert_eq!(without(&raw.get(place("v1")).await.expect(200).json()), without(&before));
    let told = definition(&raw).await;
    let migrating = condition(&told, "StorageMigrating");
    assert_eq!((&migrating["status"], &migrating["reason"]), (&json!("False"), &json!("MigrationSucceeded")));
    assert_eq!(migrating["message"], "The migration has succeeded and the stored versions have been updated");
    assert_eq!(migrating["observedGeneration"], 2);
    until("it ends", || async { migrations(&raw).await.iter().all(has_ended) }).await;
    assert!(migrations(&raw).await.iter().all(|it| holds(it, "Succeeded")));
    // So the old version can be removed from the definition.
    let only =
        json!({ "spec": { "versions": [versions("v2")[1]], "conversion": { "strategy": "None", "webhook": null } } });
    raw.patch(DEFINITION, MERGE, &only).await.expect(200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unconvertible_objects_are_reported_and_keep_the_old_version_listed() {
    let (store, server, _hook, is_broken) = start().await;
    let raw = server.raw();
    let state = format!("{STATES}/hosts.move.example.com");
    let hash = |version: &str| storage_version_hash("move.example.com", version, "Host");
    until("it is known what is stored", || async {
        let found = raw.get(&*state).await;
        found.status == 200 && persisted(&found.json()) == [hash("v1")]
    })
    .await;
    is_broken.store(true, Ordering::SeqCst);
    raw.patch(DEFINITION, MERGE, &json!({ "spec": { "versions": versions("v2") } })).await.expect(200);
    let running =
        |migration: &Value| condition(migration, "Running")["message"].as_str().unwrap_or_default().to_owned();
    let text = format!("The migration is running: writing {OBJECTS} objects failed and is retried, such as default/h");
    until("it is told", || async { migrations(&raw).await.iter().any(|it| running(it).starts_with(&text)) }).await;
    let migrating = condition(&definition(&raw).await, "StorageMigrating").clone();
    assert_eq!(
        (&migrating["status"], &migrating["reason"]),
        (&json!("True"), &json!("MigrationRunning")),
        "{migrating}"
    );
    // Meanwhile no client can remove the version from the status.
    let trimmed = json!({ "status": { "storedVersions": ["v2"] } });
    let refused = raw.patch(format!("{DEFINITION}/status"), MERGE, &trimmed).await.expect(422).json();
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains(&format!("v1 can't be taken out: {OBJECTS} objects are stored in it")), "{message}");
    // A second migration of the same resource does not begin.
    let second = json!({
        "metadata": { "name": "second" }, "spec": { "resource": { "group": "move.example.com", "resource": "hosts" } }
    });
    raw.post(MIGRATIONS, &second).await.expect(201);
    let path = format!("{MIGRATIONS}/second");
    until("it fails", || async { holds(&raw.get(&*path).await.expect(200).json(), "Failed") }).await;
    let failed = raw.get(&*path).await.expect(200).json();
    let why = condition(&failed, "Failed")["message"].as_str().unwrap().to_owned();
    assert!(why.ends_with(" of the same resource is under way"), "{why}");
    assert!(stored(&store).await.iter().all(|object| object["apiVersion"] == "move.example.com/v1"));
    let of_both = raw.get(&*state).await.expect(200).json();
    assert_eq!(
        persisted(&of_both),
        [hash("v1"), hash("v2")],
        "what can't be written anew keeps its version among the others"
    );

    is_broken.store(false, Ordering::SeqCst);
    until("the old version leaves the list", || async {
        definition(&raw).await["status"]["storedVersions"] == json!(["v2"])
    })
    .await;
    assert!(stored(&store).await.iter().all(|object| object["apiVersion"] == "move.example.com/v2"));
    until("the old version leaves the state, too", || async {
        persisted(&raw.get(&*state).await.expect(200).json()) == [hash("v2")]
    })
    .await;
    raw.delete(DEFINITION).await.expect(200);
    until("the state goes with the resource", || async { raw.get(&*state).await.status == 404 }).await;
}
