//! Definitions of custom resources with several servers: made on one, served, changed and emptied by the others.
//!
//! One server runs the controllers; none may rely on being it.

use keelson_storage::{RangeRequest, Store, StoreKey};
use keelson_testkit::{DEFINITIONS, Raw, definition_version};
use serde_json::{Value, json};

use crate::cluster::{Cluster, SERVERS};
use crate::engines::{Engine, on_every_engine};
use crate::{items, name, until};

on_every_engine!(what_is_defined_on_one_server_is_served_changed_and_emptied_by_the_others);

const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/oaks.many.example.com";
/// Where the store has the objects.
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

/// Waits until every server answers like this.
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
        // Each server stores in the new version as soon as it has heard of it, whichever version a client speaks.
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
