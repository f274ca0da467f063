//! Tests of metadata inside of custom resources, and of custom resources that another program has stored.
//!
//! Invalid metadata fields are dropped at a read.

use std::sync::Arc;

use keelson_storage::memory::MemoryStore;
use keelson_storage::{Store, StoreKey, Transaction};
use keelson_testkit::TestServer;
use serde_json::{Value, json};

use super::{definition, definition_version, establish};

const BOXES: &str = "/apis/embedded.example.com/v1/namespaces/default/boxes";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn defaults_of_embedded_objects_are_pruned_of_unknown_metadata() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let text = |default: &str| json!({ "type": "string", "default": default });
    let whole = json!({ "apiVersion": "foos/v1", "kind": "Foo", "metadata": { "name": "Bar", "unknown": "unknown" } });
    let embedded = |mut schema: Value, preserves: bool| {
        schema["type"] = json!("object");
        schema["x-kubernetes-embedded-resource"] = json!(true);
        if preserves {
            schema["x-kubernetes-preserve-unknown-fields"] = json!(true);
        }
        schema
    };
    let typed = |metadata: Value| json!({ "properties": { "apiVersion": text("foos/v1"), "kind": text("Foo"), "metadata": metadata } });
    let names = json!({ "type": "object", "properties": { "name": text("Bar"), "unknown": text("unknown") } });
    let metadata = json!({ "type": "object", "default": { "name": "Bar", "unknown": "unknown" } });
    let foo = json!({ "properties": { "foo": { "type": "string" } } });
    let mut properties = json!({});
    for (prefix, preserves) in [("", false), ("preserve-", true)] {
        let mut field = |name: &str, schema: Value| properties[format!("{prefix}{name}")] = schema;
        field("fields", embedded(typed(names.clone()), preserves));
        field("fullMetadata", embedded(typed(metadata.clone()), preserves));
        let mut full = foo.clone();
        full["default"] = whole.clone();
        field("fullObject", embedded(full, preserves));
        let inner = json!({ "embedded": embedded(foo.clone(), preserves) });
        field("spanning", json!({ "type": "object", "properties": inner, "default": { "embedded": whole } }));
    }
    let schema = json!({ "type": "object", "properties": properties });
    let versions = json!([definition_version("v1", true, schema)]);
    establish(&raw, &definition("embedded.example.com", "boxes", "Box", versions)).await;

    let mut sent = json!({ "apiVersion": "embedded.example.com/v1", "kind": "Box", "metadata": { "name": "a" } });
    for prefix in ["", "preserve-"] {
        sent[format!("{prefix}fields")] = json!({ "metadata": {} });
        sent[format!("{prefix}fullMetadata")] = json!({});
    }
    let made = raw.post(BOXES, &sent).await.expect(201).json();
    let read = raw.get(format!("{BOXES}/a")).await.expect(200).json();
    let pruned = json!({ "apiVersion": "foos/v1", "kind": "Foo", "metadata": { "name": "Bar" } });
    for object in [made, read] {
        for prefix in ["", "preserve-"] {
            for name in ["fields", "fullMetadata", "fullObject"] {
                assert_eq!(object[format!("{prefix}{name}")], pruned, "{prefix}{name}");
            }
            assert_eq!(object[format!("{prefix}spanning")]["embedded"], pruned, "{prefix}spanning");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_metadata_in_the_store_goes_and_the_object_can_be_changed() {
    let store = MemoryStore::new();
    let server = TestServer::builder().shared_store(Arc::new(store.clone())).start().await;
    let raw = server.raw();
    let embedded = json!({
        "type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true,
    });
    let schema = json!({ "type": "object", "properties": { "embedded": embedded } });
    let versions = json!([definition_version("v1", true, schema)]);
    establish(&raw, &definition("embedded.example.com", "boxes", "Box", versions)).await;
    let metadata = json!({
        "unknown": 42, "labels": { "invalid": "x y" }, "annotations": { "number": 42, "text": "abc" }, "finalizers": "none",
    });
    let mut object = json!({
        "apiVersion": "embedded.example.com/v1", "kind": "Box", "metadata": metadata,
        "embedded": { "apiVersion": "foo/v1", "kind": "Foo", "metadata": metadata },
    });
    for (field, value) in [("name", json!("a")), ("namespace", json!("default")), ("generation", Value::Null)] {
        object["metadata"][field] = value;
    }
    let key = StoreKey::new("/registry/embedded.example.com/boxes/default/a");
    store.commit(Transaction::default().put(key, object.to_string())).await.unwrap();

    let mut read = raw.get(format!("{BOXES}/a")).await.expect(200).json();
    let listed = raw.get(BOXES).await.expect(200).json();
    assert_eq!(listed["items"][0], read);
    assert_eq!(read["metadata"]["generation"], 1);
    for metadata in [&read["metadata"], &read["embedded"]["metadata"]] {
        assert_eq!(metadata["labels"], json!({ "invalid": "x y" }));
        for gone in ["unknown", "annotations", "finalizers"] {
            assert_eq!(metadata[gone], Value::Null, "{gone}");
        }
    }
    // Labels that are texts stay, and the next write validates them.
    read["metadata"]["labels"]["something"] = json!("changed");
    raw.put(format!("{BOXES}/a"), &read).await.expect(422);
    read["metadata"]["labels"]["invalid"] = json!("fixed");
    raw.put(format!("{BOXES}/a"), &read).await.expect(422);
    read["embedded"]["metadata"]["labels"]["invalid"] = json!("fixed");
    let written = raw.put(format!("{BOXES}/a"), &read).await.expect(200).json();
    assert_eq!(written["embedded"]["metadata"]["labels"], json!({ "invalid": "fixed" }));
    raw.delete(format!("{BOXES}/a")).await.expect(200);
}
