//! Tests of changed definitions: the effect on stored objects and on running watches.
//!
//! Changes of versions are in `versions.rs`, of names in `names.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use keelson_storage::Store;
use keelson_storage::faulty::{Fault, FaultyStore};
use keelson_storage::memory::MemoryStore;
use keelson_testkit::{Raw, TestServer};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{APPLY, DEFINITIONS, MERGE, definition, establish, until, until_gone};

const GROUP: &str = "change.example.com";
const OLDS: &str = "/apis/change.example.com/v1/namespaces/default/olds";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// One version of a definition with these fields of `spec`.
#[allow(clippy::needless_pass_by_value, reason = "callers write the value where they need it")]
fn with_fields(fields: Value) -> Value {
    let spec = json!({ "type": "object", "properties": fields });
    let schema = json!({ "openAPIV3Schema": { "type": "object", "properties": { "spec": spec } } });
    json!([{ "name": "v1", "served": true, "storage": true, "schema": schema }])
}

fn before() -> Value {
    let text = json!({ "type": "string" });
    with_fields(json!({
        "keep": text, "drop": text, "nul": { "type": "string", "nullable": true },
        "sub": { "type": "object", "properties": { "a": text } }
    }))
}

fn after() -> Value {
    let (text, number) = (json!({ "type": "string" }), |default: i64| json!({ "type": "integer", "default": default }));
    let mut versions = with_fields(json!({
        "keep": text, "new": { "type": "string", "default": "fresh" }, "nul": { "type": "string", "default": "was-null" },
        "sub": { "type": "object", "properties": { "a": text, "b": number(2) } },
        "sub2": { "type": "object", "default": {}, "properties": { "c": number(3) } }
    }));
    versions[0]["selectableFields"] = json!([{ "jsonPath": ".spec.new" }]);
    versions[0]["additionalPrinterColumns"] = json!([{ "name": "New", "type": "string", "jsonPath": ".spec.new" }]);
    versions
}

async fn change(raw: &Raw, versions: &Value) {
    let patch = json!({ "spec": { "versions": versions } });
    raw.patch(format!("{DEFINITIONS}/olds.{GROUP}"), MERGE, &patch).await.expect(200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_that_are_stored_are_read_by_the_schema_of_today() {
    let mut server = TestServer::builder().sqlite().start().await;
    let raw = server.raw();
    establish(&raw, &definition(GROUP, "olds", "Old", before())).await;
    let spec = json!({ "keep": "k", "drop": "d", "nul": null, "sub": { "a": "1" } });
    raw.post(OLDS, &json!({ "metadata": { "name": "a" }, "spec": spec })).await.expect(201);
    raw.post(OLDS, &json!({ "metadata": { "name": "d" }, "spec": { "drop": "d1" } })).await.expect(201);
    change(&raw, &after()).await;
    let now =
        json!({ "keep": "k", "new": "fresh", "nul": "was-null", "sub": { "a": "1", "b": 2 }, "sub2": { "c": 3 } });
    let one = format!("{OLDS}/a");
    until(&raw, &one, |object| object["spec"] == now).await;

    // For every kind of read.
    let list = raw.get(OLDS).await.expect(200).json();
    assert_eq!(list["items"][0]["spec"], now);
    let chosen = raw.get(format!("{OLDS}?fieldSelector=spec.new%3Dfresh")).await.expect(200).json();
    assert_eq!(chosen["items"].as_array().unwrap().len(), 2);
    let table = raw.get(OLDS).header("accept", TABLE).await.expect(200).json();
    assert_eq!(table["rows"][0]["cells"], json!(["a", "fresh"]));
    let mut watch =
        raw.get(format!("{OLDS}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan")).stream().await;
    assert_eq!(watch.next_json().await.unwrap()["object"]["spec"], now);

    // A filled-in default is no change by the writer.
    let labelled = raw.patch(&*one, MERGE, &json!({ "metadata": { "labels": { "l": "1" } } })).await.expect(200).json();
    assert_eq!((&labelled["spec"], &labelled["metadata"]["generation"]), (&now, &json!(1)));

    // A field that is declared again returns, unless the object was written meanwhile.
    let mut again = after();
    again[0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["drop"] = json!({ "type": "string" });
    change(&raw, &again).await;
    until(&raw, &format!("{OLDS}/d"), |object| object["spec"]["drop"] == "d1").await;
    assert_eq!(raw.get(&*one).await.expect(200).json()["spec"], now);

    change(&raw, &after()).await;
    server.restart().await;
    let raw = server.raw();
    let read = raw.get(format!("{OLDS}/d")).await.expect(200).json();
    assert_eq!(read["spec"], json!({ "new": "fresh", "nul": "was-null", "sub2": { "c": 3 } }));
}

/// A list and a map: one owned part by part, the other as a whole. `filled` is a default that identifies the schema.
fn with_parts(list: &str, map: &str, filled: Option<&str>) -> Value {
    let item = json!({
        "type": "object", "required": ["k"],
        "properties": { "k": { "type": "string" }, "v": { "type": "string" } }
    });
    let mut l = json!({ "type": "array", "items": item, "x-kubernetes-list-type": list });
    if list == "map" {
        l["x-kubernetes-list-map-keys"] = json!(["k"]);
    }
    let m = json!({
        "type": "object", "additionalProperties": { "type": "string" }, "x-kubernetes-map-type": map
    });
    let mut fields = json!({ "l": l, "m": m });
    if let Some(filled) = filled {
        fields["filled"] = json!({ "type": "string", "default": filled });
    }
    with_fields(fields)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn owners_of_parts_own_a_field_that_becomes_atomic() {
    let server = TestServer::start().await;
    let raw = server.raw();
    establish(&raw, &definition(GROUP, "olds", "Old", with_parts("atomic", "granular", None))).await;
    let one = format!("{OLDS}/a");
    let applied = |spec: Value| json!({ "apiVersion": format!("{GROUP}/v1"), "kind": "Old", "metadata": { "name": "a" }, "spec": spec });
    let first = applied(json!({ "l": [{ "k": "a", "v": "1" }], "m": { "x": "1" } }));
    raw.patch(format!("{one}?fieldManager=one"), APPLY, &first).await.expect(201);
    change(&raw, &with_parts("map", "atomic", Some("after"))).await;
    until(&raw, &one, |object| object["spec"]["filled"] == "after").await;

    // The list's items have owners now, and the map has one.
    let second = applied(json!({ "l": [{ "k": "b", "v": "2" }] }));
    let both = raw.patch(format!("{one}?fieldManager=two"), APPLY, &second).await.expect(200).json();
    assert_eq!(both["spec"]["l"], json!([{ "k": "a", "v": "1" }, { "k": "b", "v": "2" }]));
    let managers = both["metadata"]["managedFields"].as_array().unwrap();
    let fields = |name: &str| {
        managers.iter().find(|entry| entry["manager"] == name).map(|entry| entry["fieldsV1"]["f:spec"].clone()).unwrap()
    };
    assert_eq!(fields("one"), json!({ "f:l": {}, "f:m": {} }));
    assert_eq!(fields("two"), json!({ "f:l": { "k:{\"k\":\"b\"}": { ".": {}, "f:k": {}, "f:v": {} } } }));

    // Replacing the map now conflicts with its former owner.
    let third = applied(json!({ "m": { "y": "2" } }));
    let refused = raw.patch(format!("{one}?fieldManager=three"), APPLY, &third).await.expect(409).json();
    assert_eq!(refused["message"], "Apply failed with 1 conflict: conflict with \"one\": .spec.m");
    let forced = raw.patch(format!("{one}?fieldManager=three&force=true"), APPLY, &third).await.expect(200).json();
    assert_eq!(forced["spec"]["m"], json!({ "y": "2" }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_the_definition_ends_watches() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let mut olds = definition(GROUP, "olds", "Old", before());
    olds["metadata"]["finalizers"] = json!(["example.com/mine"]);
    establish(&raw, &olds).await;
    let held = json!({ "metadata": { "name": "a", "finalizers": ["example.com/held"] }, "spec": {} });
    raw.post(OLDS, &held).await.expect(201);
    let mut watch = raw.get(format!("{OLDS}?watch=1&resourceVersion=0")).stream().await;
    assert_eq!(watch.next_json().await.unwrap()["type"], "ADDED");
    change(&raw, &after()).await;
    assert_eq!(watch.next_json().await, None, "it ends, and not with an error");

    // A watch that starts before the change is served ends with it.
    until(&raw, &format!("{OLDS}/a"), |object| object["spec"]["new"] == "fresh").await;

    // A terminating definition still shows the deletion of its objects.
    let mut watch = raw.get(format!("{OLDS}?watch=1&resourceVersion=0")).stream().await;
    assert_eq!(watch.next_json().await.unwrap()["type"], "ADDED");
    raw.delete(format!("{DEFINITIONS}/olds.{GROUP}")).await.expect(200);
    let marked = watch.next_json().await.unwrap();
    assert_eq!(
        (&marked["type"], marked["object"]["metadata"]["deletionTimestamp"].is_string()),
        (&json!("MODIFIED"), true)
    );
    raw.patch(format!("{OLDS}/a"), MERGE, &json!({ "metadata": { "finalizers": null } })).await.expect(200);
    assert_eq!(watch.next_json().await.unwrap()["type"], "DELETED");
    raw.patch(format!("{DEFINITIONS}/olds.{GROUP}"), MERGE, &json!({ "metadata": { "finalizers": null } }))
        .await
        .expect(200);
    assert_eq!(watch.next_json().await, None);
    until_gone(&raw, OLDS).await;
}

/// The number of changes of a definition during requests for its objects.
const CHANGES: usize = 60;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_are_answered_while_their_definition_changes() {
    let server = TestServer::start().await;
    let raw = server.raw();
    establish(&raw, &definition(GROUP, "olds", "Old", before())).await;
    raw.post(OLDS, &json!({ "metadata": { "name": "a" }, "spec": { "keep": "k" } })).await.expect(201);
    let is_done = AtomicBool::new(false);
    let changing = async {
        for number in 0..CHANGES {
            change(&raw, &if number % 2 == 0 { after() } else { before() }).await;
        }
        is_done.store(true, Ordering::Relaxed);
    };
    let asking = async {
        let mut asked = 0;
        while !is_done.load(Ordering::Relaxed) {
            raw.get(format!("{OLDS}/a")).await.expect(200);
            raw.get(format!("{OLDS}?limit=1")).await.expect(200);
            let label = json!({ "metadata": { "labels": { "asked": asked.to_string() } } });
            raw.patch(format!("{OLDS}/a"), MERGE, &label).await.expect(200);
            asked += 1;
        }
        asked
    };
    let (asked, ()) = tokio::join!(asking, changing);
    assert!(asked > 0);
}

/// Two servers on one store, and the second one's access to the store.
async fn two_servers(certificates: &TempDir) -> (TestServer, TestServer, FaultyStore) {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let way = FaultyStore::new(store.clone());
    let start = async |store: Arc<dyn Store>, name: &str| {
        let builder = TestServer::builder().shared_store(store).configure(|config| {
            config.data_dir = Some(certificates.path().to_owned());
            config.server_id = name.to_owned();
        });
        builder.start().await
    };
    let first = start(store, "server-a").await;
    let second = start(Arc::new(way.clone()), "server-b").await;
    (first, second, way)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_established_definition_is_served_by_every_server() {
    let certificates = TempDir::new().unwrap();
    let (first, second, way) = two_servers(&certificates).await;
    let (here, there) = (first.raw(), second.raw());
    way.set_tails(Fault::Slow(Duration::from_millis(200)));
    establish(&here, &definition(GROUP, "olds", "Old", before())).await;
    there.get(OLDS).await.expect(200);
    here.post(OLDS, &json!({ "metadata": { "name": "a" } })).await.expect(201);
    there.get(OLDS.replace("v1", "v2")).await.expect(404);
    there.get(OLDS.replace("olds", "others")).await.expect(404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_create_no_objects_of_a_definition_deleted_elsewhere() {
    let certificates = TempDir::new().unwrap();
    let (first, second, way) = two_servers(&certificates).await;
    let (here, there) = (first.raw(), second.raw());
    establish(&here, &definition(GROUP, "olds", "Old", before())).await;
    here.post(OLDS, &json!({ "metadata": { "name": "a", "finalizers": ["example.com/held"] } })).await.expect(201);
    until(&there, &format!("{OLDS}/a"), |object| object["kind"] == "Old").await;

    way.set_tails(Fault::Hang);
    here.delete(format!("{DEFINITIONS}/olds.{GROUP}")).await.expect(200);
    let refused = there.post(format!("{OLDS}?timeout=2s"), &json!({ "metadata": { "name": "late" } })).await;
    assert!(refused.status >= 500, "{}", refused.text());
    here.get(format!("{OLDS}/late")).await.expect(404);
    way.set_tails(Fault::None);
    let refused = async || there.post(OLDS, &json!({ "metadata": { "name": "late" } })).await;
    let mut answer = refused().await;
    while answer.status >= 500 {
        answer = refused().await;
    }
    assert_eq!(answer.status, 403, "{}", answer.text());
    here.patch(format!("{OLDS}/a"), MERGE, &json!({ "metadata": { "finalizers": null } })).await.expect(200);
    until_gone(&there, OLDS).await;
}

/// kube-apiserver refuses applies while an owner has a version that is gone. Here an apply forgets the owner.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn owners_of_a_removed_version_block_no_write() {
    let server = TestServer::builder().start().await;
    let raw = server.raw();
    let any = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let version = |name: &str, storage: bool| json!({ "name": name, "served": true, "storage": storage, "schema": { "openAPIV3Schema": any } });
    establish(&raw, &definition(GROUP, "olds", "Old", json!([version("v1", false), version("v2", true)]))).await;
    let applied = |version: &str, spec: Value| json!({ "apiVersion": format!("{GROUP}/{version}"), "kind": "Old", "metadata": { "name": "a" }, "spec": spec });
    let apply = async |version: &str, manager: &str, spec: Value| {
        let path = format!("/apis/{GROUP}/{version}/namespaces/default/olds/a?fieldManager={manager}");
        raw.patch(path, APPLY, &applied(version, spec)).await
    };
    apply("v1", "first", json!({ "a": "1" })).await.expect(201);
    change(&raw, &json!([version("v2", true)])).await;
    until_gone(&raw, OLDS).await;
    let next = format!("/apis/{GROUP}/v2/namespaces/default/olds/a");
    let managers = |object: &Value| {
        let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        entries.iter().map(|entry| entry["manager"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let mut whole = raw.get(&*next).await.expect(200).json();
    assert_eq!(managers(&whole), ["first"]);
    whole["spec"]["b"] = json!("2");
    raw.put(&*next, &whole).await.expect(200);
    raw.patch(&*next, MERGE, &json!({ "spec": { "c": "3" } })).await.expect(200);
    for _ in 0..2 {
        let done = apply("v2", "second", json!({ "d": "4" })).await.expect(200).json();
        assert_eq!(done["spec"], json!({ "a": "1", "b": "2", "c": "3", "d": "4" }));
        assert!(managers(&done).contains(&"second".to_owned()) && !managers(&done).contains(&"first".to_owned()));
    }
}
