//! Tests of definitions of custom resources on several servers: created on one, served, changed and emptied by the
//! others.
//!
//! One server runs the controllers. No server may depend on being that one.

use std::sync::Arc;

use futures::StreamExt as _;
use keelson_server::Config;
use keelson_storage::memory::MemoryStore;
use keelson_storage::{RangeRequest, Store, StoreKey};
use keelson_testkit::{DEFINITIONS, Raw, TestServer, definition_version};
use serde_json::{Value, json};

use crate::cluster::{Cluster, SERVERS};
use crate::engines::{Engine, on_every_engine};
use crate::migrations::with_migrator;
use crate::{items, name, until};

on_every_engine!(what_is_defined_on_one_server_is_served_changed_and_emptied_by_the_others);

const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/oaks.many.example.com";
/// The prefix of the stored objects.
const STORED: &str = "/registry/many.example.com/oaks/";
const MERGE: &str = "application/merge-patch+json";

fn path(version: &str) -> String {
    format!("/apis/many.example.com/{version}/namespaces/default/oaks")
}

fn versions(stored: &str) -> Value {
    let spec = json!({ "type": "object", "properties": { "a": { "type": "string" } } });
    let version = |name: &str| {
        let schema = json!({ "type": "object", "properties": { "spec": spec } });
        definition_version(name, name == stored, schema)
    };
    json!([version("v1"), version("v2")])
}

fn definition() -> Value {
    keelson_testkit::definition("many.example.com", "oaks", "Oak", versions("v1"))
}

fn oak(name: &str) -> Value {
    json!({ "metadata": { "name": name }, "spec": { "a": "x" } })
}

/// Waits until every server responds with this status.
async fn on_every_server(cluster: &Cluster, path: &str, status: u16) {
    for raw in cluster.clients() {
        until(path, || async { raw.get(path).try_send().await.is_ok_and(|answer| answer.status == status) }).await;
    }
}

/// The version in which the store has each object, by name.
async fn stored(store: &dyn Store) -> Vec<(String, String)> {
    let (from, to) = (StoreKey::new(STORED), StoreKey::prefix_end(STORED));
    let page = store.range(RangeRequest { from, to, revision: None, limit: None }).await.unwrap();
    let read = |value: &[u8]| -> Value { serde_json::from_slice(value).unwrap() };
    let version = |object: &Value| object["apiVersion"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
    page.entries
        .iter()
        .map(|entry| read(&entry.value))
        .map(|object| (name(&object).to_owned(), version(&object)))
        .collect()
}

async fn names(raw: &Raw, version: &str) -> Vec<String> {
    let list = raw.get(path(version)).await.expect(200).json();
    items(&list).iter().map(|object| name(object).to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_definition_causes_a_fixed_number_of_writes() {
    let store = MemoryStore::new();
    let by_default = |config: &mut Config| config.registry.storage_states = false;
    let builder = TestServer::builder().shared_store(Arc::new(store.clone()));
    let server = builder.configure(with_migrator).configure(by_default).start().await;
    let (raw, since) = (server.raw(), store.current_revision().await.unwrap());
    // The first definition is processed before the second.
    for group in ["first.example.com", "second.example.com"] {
        let defined = keelson_testkit::definition(group, "oaks", "Oak", versions("v1"));
        raw.post(DEFINITIONS, &defined).await.expect(201);
        for path in [
            format!("/apis/apiregistration.k8s.io/v1/apiservices/v2.{group}"),
            format!("/apis/internal.apiserver.k8s.io/v1alpha1/storageversions/{group}.oaks"),
            format!("/apis/{group}/v1/oaks"),
        ] {
            until(&path, || async { raw.get(&*path).await.status == 200 }).await;
        }
        let path = format!("{DEFINITIONS}/oaks.{group}");
        until("it is established", || async {
            let found = raw.get(&*path).await.expect(200).json();
            found["status"]["conditions"].as_array().is_some_and(|all| all.iter().any(|it| it["type"] == "Established"))
        })
        .await;
    }
    let last = store.current_revision().await.unwrap();
    let (mut tail, mut reached, mut written) = (store.tail(since).await.unwrap(), since, Vec::new());
    while reached < last {
        let batch = tail.next().await.unwrap().unwrap();
        written.extend(batch.events.iter().map(|event| event.key.as_str().to_owned()));
        reached = batch.watermark;
    }
    written.retain(|key| key.contains("first.example.com"));
    written.sort_unstable();
    let definition = "/registry/apiextensions.k8s.io/customresourcedefinitions/oaks.first.example.com";
    let service = |version: &str| format!("/registry/apiregistration.k8s.io/apiservices/{version}.first.example.com");
    let published = written.iter().filter(|key| key.ends_with("/first.example.com.oaks")).count();
    assert_eq!(published, 1, "{written:?}");
    written.retain(|key| !key.ends_with("/first.example.com.oaks"));
    // The definition is created, its names are accepted, and it is established.
    let definition = || definition.to_owned();
    assert_eq!(written, [definition(), definition(), definition(), service("v1"), service("v2")]);
}

async fn what_is_defined_on_one_server_is_served_changed_and_emptied_by_the_others(engine: Engine) {
    let cluster = Cluster::start(engine).await;
    cluster.raw(0).post(DEFINITIONS, &definition()).await.expect(201);
    on_every_server(&cluster, &path("v1"), 200).await;
    let mut watch = cluster.raw(2).get(format!("{}?watch=1&resourceVersion=0", path("v2"))).stream().await;
    cluster.raw(1).post(path("v1"), &oak("a")).await.expect(201);
    cluster.raw(2).post(path("v2"), &oak("b")).await.expect(201);
    for expected in ["a", "b"] {
        let event = watch.next_json().await.unwrap();
        assert_eq!((&event["object"]["apiVersion"], name(&event["object"])), (&json!("many.example.com/v2"), expected));
    }
    let mut tags = Vec::new();
    for raw in cluster.clients() {
        assert_eq!(names(&raw, "v1").await, ["a", "b"], "a read sees what any server has acknowledged");
        let described = raw.get("/openapi/v3/apis/many.example.com/v1").await.expect(200);
        tags.push(described.header("etag").to_owned());
    }
    assert!(tags.iter().all(|tag| *tag == tags[0]), "who serves the same describes it alike: {tags:?}");

    let stored_in = |a: &str, b: &str| vec![("a".to_owned(), a.to_owned()), ("b".to_owned(), b.to_owned())];
    assert_eq!(stored(&*cluster.store).await, stored_in("v1", "v1"));
    let changed = json!({ "spec": { "versions": versions("v2") } });
    cluster.raw(1).patch(DEFINITION, MERGE, &changed).await.expect(200);
    for (number, object) in [(0, "a"), (2, "b")] {
        let raw = cluster.raw(number);
        let mut round = 0;
        // Each server stores the new version as soon as it has the definition, whichever version the client uses.
        while !stored(&*cluster.store).await.contains(&(object.to_owned(), "v2".to_owned())) {
            round += 1;
            let label = json!({ "metadata": { "labels": { "round": round.to_string() } } });
            raw.patch(format!("{}/{object}", path("v1")), MERGE, &label).await.expect(200);
        }
    }
    for number in 0..SERVERS {
        let known = cluster.raw(number).get(DEFINITION).await.expect(200).json();
        assert_eq!(known["status"]["storedVersions"], json!(["v1", "v2"]));
    }
    cluster.restart(0).await;
    assert_eq!(names(&cluster.raw(0), "v1").await, ["a", "b"], "a server that starts serves it at once");

    cluster.raw(2).delete(DEFINITION).await.expect(200);
    on_every_server(&cluster, DEFINITION, 404).await;
    on_every_server(&cluster, &path("v1"), 404).await;
    assert_eq!(stored(&*cluster.store).await, []);
    cluster.raw(1).post(DEFINITIONS, &definition()).await.expect(201);
    on_every_server(&cluster, &path("v1"), 200).await;
    for raw in cluster.clients() {
        assert_eq!(names(&raw, "v1").await, [""; 0], "nothing is left of the one before");
    }
}
