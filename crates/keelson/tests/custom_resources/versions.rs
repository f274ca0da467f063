//! Tests of several versions of a custom resource: served, stored and deprecated ones, and the objects in each.
//!
//! Conversion webhooks are in `webhooks.rs`.

use std::sync::Arc;

use keelson_storage::memory::MemoryStore;
use keelson_storage::{Store, StoreKey};
use keelson_testkit::TestServer;
use serde_json::{Value, json};

use super::{DEFINITIONS, MERGE, definition, definition_version, establish, until, until_gone, version};

const GROUP: &str = "none.example.com";

fn place(version: &str) -> String {
    format!("/apis/{GROUP}/{version}/namespaces/default/multis")
}

/// A version with a field of its own that has a default.
fn with_field(name: &str, stored: bool, field: &str) -> Value {
    let mut version = version(name, stored);
    version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"][field] =
        json!({ "type": "string", "default": name });
    version
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_version_has_its_own_fields_defaults_and_warnings() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let mut old = with_field("v1beta1", false, "old");
    old["deprecated"] = json!(true);
    let mut older = with_field("v1alpha1", false, "older");
    (older["deprecated"], older["deprecationWarning"]) = (json!(true), json!("v1alpha1 is \"old\""));
    let mut hidden = version("v3", false);
    hidden["served"] = json!(false);
    let versions = json!([with_field("v1", true, "one"), with_field("v2", false, "two"), old, older, hidden]);
    establish(&raw, &definition(GROUP, "multis", "Multi", versions)).await;

    let sent = json!({ "metadata": { "name": "x" }, "spec": { "a": "1" } });
    let made = raw.post(place("v1"), &sent).await.expect(201).json();
    assert_eq!(made["spec"], json!({ "a": "1", "one": "v1" }));
    let shown = raw.get(format!("{}/x", place("v2"))).await.expect(200).json();
    // A version that only shows an object adds no defaults.
    assert_eq!((&shown["apiVersion"], &shown["spec"]), (&json!("none.example.com/v2"), &json!({ "a": "1" })));
    let listed = raw.get(place("v2")).await.expect(200).json();
    assert_eq!(listed["items"][0]["spec"], json!({ "a": "1" }));
    let mut watch = raw.get(format!("{}?watch=1&resourceVersion=0", place("v2"))).stream().await;
    assert_eq!(watch.next_json().await.unwrap()["object"]["spec"], json!({ "a": "1" }));
    let patch = json!({ "spec": { "a": "2", "one": null } });
    let patched = raw.patch(format!("{}/x", place("v2")), MERGE, &patch).await.expect(200).json();
    assert_eq!(patched["spec"], json!({ "a": "2" }), "defaults of v2 are not stored");
    let read = raw.get(format!("{}/x", place("v1"))).await.expect(200).json();
    assert_eq!(read["spec"], json!({ "a": "2", "one": "v1" }), "it is stored as v1, which has no field of v2");

    let warned = raw.get(place("v1beta1")).await.expect(200);
    let warning = "299 - \"none.example.com/v1beta1 Multi is deprecated; use none.example.com/v2 Multi\"";
    assert_eq!(warned.header("warning"), warning);
    let warned = raw.get(format!("{}/x", place("v1alpha1"))).await.expect(200);
    assert_eq!(warned.header("warning"), "299 - \"v1alpha1 is \\\"old\\\"\"");
    // A request for a missing subresource still gets the warning of its version.
    for path in ["x/scale", "x/nothing"] {
        let refused = raw.get(format!("{}/{path}", place("v1beta1"))).await.expect(404);
        assert_eq!(refused.header("warning"), warning, "{path}");
        let refused = raw.get(format!("{}/{path}", place("v2"))).await.expect(404);
        assert!(!refused.headers.contains_key("warning"), "{path}");
    }
    raw.get(place("v3")).await.expect(404);
    raw.get(format!("/apis/{GROUP}/v3")).await.expect(404);
    let group = raw.get(format!("/apis/{GROUP}")).await.expect(200).json();
    let names: Vec<&str> =
        group["versions"].as_array().unwrap().iter().map(|it| it["version"].as_str().unwrap()).collect();
    assert_eq!(names, ["v2", "v1", "v1beta1", "v1alpha1"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_stored_version_changes_and_an_unserved_one_still_stores() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let path = format!("{DEFINITIONS}/multis.{GROUP}");
    let both = |stored: &str, served: bool| {
        let mut versions = [version("v1", stored == "v1"), version("v2", stored == "v2")];
        versions[1]["served"] = json!(served);
        json!({ "spec": { "versions": versions } })
    };
    let first = both("v1", true)["spec"]["versions"].clone();
    establish(&raw, &definition(GROUP, "multis", "Multi", first)).await;
    raw.post(place("v1"), &json!({ "metadata": { "name": "x" }, "spec": { "a": "1" } })).await.expect(201);
    let changed = raw.patch(&*path, MERGE, &both("v2", true)).await.expect(200).json();
    assert_eq!(changed["status"]["storedVersions"], json!(["v1", "v2"]));
    raw.patch(format!("{}/x", place("v2")), MERGE, &json!({ "spec": { "a": "2" } })).await.expect(200);
    let only = json!({ "spec": { "versions": [version("v2", true)] } });
    let refused = raw.patch(&*path, MERGE, &only).await.expect(422).json();
    assert!(
        refused["message"]
            .as_str()
            .unwrap()
            .contains("missing from spec.versions; v1 was previously a storage version")
    );

    raw.patch(&*path, MERGE, &both("v2", false)).await.expect(200);
    until_gone(&raw, &place("v2")).await;
    assert_eq!(raw.get(format!("{}/x", place("v1"))).await.expect(200).json()["spec"]["a"], "2");
    raw.post(place("v1"), &json!({ "metadata": { "name": "y" }, "spec": { "a": "3" } })).await.expect(201);
    raw.delete(format!("{}/x", place("v1"))).await.expect(200);
    // No version is served any more, but the objects are still deleted.
    let mut versions = both("v2", false);
    versions["spec"]["versions"][0]["served"] = json!(false);
    raw.patch(&*path, MERGE, &versions).await.expect(200);
    until(&raw, &place("v1"), |found| found["code"] == 404 || found.is_null()).await;
    raw.delete(&*path).await.expect(200);
    until(&raw, &path, |found| found["code"] == 404).await;
    establish(&raw, &definition(GROUP, "multis", "Multi", json!([version("v2", true)]))).await;
    assert_eq!(raw.get(place("v2")).await.expect(200).json()["items"], json!([]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_in_another_version_have_the_defaults_of_the_stored_one() {
    const GROUP: &str = "filled.example.com";
    let store = MemoryStore::new();
    let server = TestServer::builder().shared_store(Arc::new(store.clone())).start().await;
    let raw = server.raw();
    // Each version has a default of its own.
    let versions = |first: &str| {
        let version = |name: &str, stored: bool, own: &str, default: &str| {
            let mut fields = json!({ "one": { "type": "string" }, "two": { "type": "string" } });
            fields[own]["default"] = json!(default);
            let spec = json!({ "type": "object", "properties": fields });
            definition_version(name, stored, json!({ "type": "object", "properties": { "spec": spec } }))
        };
        json!([version("v1", true, "one", first), version("v2", false, "two", "2")])
    };
    establish(&raw, &definition(GROUP, "fills", "Fill", versions("1"))).await;
    let place = |version: &str| format!("/apis/{GROUP}/{version}/namespaces/default/fills");
    for version in ["v1", "v2"] {
        let sent = json!({ "metadata": { "name": version }, "spec": {} });
        let made = raw.post(place(version), &sent).await.expect(201).json();
        let spec = if version == "v1" { json!({ "one": "1" }) } else { json!({ "one": "1", "two": "2" }) };
        assert_eq!(made["spec"], spec, "{version}");
        assert_eq!(raw.get(format!("{}/{version}", place(version))).await.expect(200).json()["spec"], spec);
    }
    let stored = async |name: &str| -> Value {
        let key = StoreKey::new(format!("/registry/{GROUP}/fills/default/{name}"));
        serde_json::from_slice(&store.get(&key).await.unwrap().unwrap().value).unwrap()
    };
    assert_eq!(stored("v1").await["spec"], json!({ "one": "1" }));
    assert_eq!(stored("v2").await["spec"], json!({ "two": "2" }));
    // A write without a change keeps the revision.
    let path = format!("{}/v2", place("v2"));
    let read = raw.get(&*path).await.expect(200).json();
    let labels = json!({ "metadata": { "labels": { "a": "b" } } });
    let kept = raw.put(&*path, &read).await.expect(200).json();
    let again = raw.put(&*path, &kept).await.expect(200).json();
    assert_eq!(kept["metadata"]["resourceVersion"], again["metadata"]["resourceVersion"]);
    raw.patch(format!("{}/v1", place("v2")), MERGE, &labels).await.expect(200);

    let other = json!({ "metadata": { "name": "other" }, "spec": {} });
    raw.post(place("v2"), &other).await.expect(201);
    let patch = json!({ "spec": { "versions": versions("uno") } });
    raw.patch(format!("{DEFINITIONS}/fills.{GROUP}"), MERGE, &patch).await.expect(200);
    let shown = raw.get(format!("{}/other", place("v2"))).await.expect(200).json();
    assert_eq!(shown["spec"], json!({ "one": "uno", "two": "2" }), "it follows the default");
    let shown = raw.get(format!("{}/v1", place("v1"))).await.expect(200).json();
    assert_eq!(shown["spec"]["one"], "1", "it was sent in that version");
}
