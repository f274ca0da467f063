//! Tests of values that kube-apiserver has written to a shared store. JSON and protobuf are served. Encrypted and other
//! unreadable values are not served, but they count as present, and are never overwritten.

use std::sync::Arc;
use std::time::Duration;

use keelson_meta::Object;
use keelson_storage::memory::MemoryStore;
use keelson_storage::{Store, StoreKey, Transaction};
use keelson_testkit::TestServer;
use serde_json::{Value, json};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn key(name: &str) -> StoreKey {
    StoreKey::new(format!("/registry/configmaps/default/{name}"))
}

async fn store(value: impl Into<bytes::Bytes>, name: &str, into: &MemoryStore) {
    into.commit(Transaction::default().put(key(name), value)).await.unwrap();
}

fn config_map(name: &str) -> Value {
    json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name}})
}

/// A ConfigMap in kube-apiserver's JSON encoding.
fn stored_json(name: &str) -> String {
    let metadata = json!({
        "name": name, "namespace": "default", "uid": "5cf4b8a1-0c86-4d3a-9a4f-000000000001",
        "creationTimestamp": "2026-01-01T00:00:00Z",
    });
    format!("{{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"metadata\":{metadata},\"data\":{{\"a\":\"b\"}}}}\n")
}

async fn server_with_foreign_values() -> (MemoryStore, TestServer) {
    let shared = MemoryStore::new();
    store(stored_json("json"), "json", &shared).await;
    let object = Object::from_value(serde_json::from_str(&stored_json("protobuf")).unwrap()).unwrap();
    store(keelson_protobuf::encode("v1", "ConfigMap", &object).unwrap(), "protobuf", &shared).await;
    store("k8s\0\u{a}\u{2}v1", "broken", &shared).await;
    store("k8s:enc:aescbc:v1:key1:\u{1}", "encrypted", &shared).await;
    let server = TestServer::builder().shared_store(Arc::new(shared.clone())).start().await;
    (shared, server)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn json_and_protobuf_of_another_server_are_served_and_changed() {
    let (_shared, server) = server_with_foreign_values().await;
    for name in ["json", "protobuf"] {
        let path = format!("{CONFIG_MAPS}/{name}");
        let found = server.raw().get(path.as_str()).await.expect(200).json();
        assert_eq!((&found["data"]["a"], &found["metadata"]["name"]), (&json!("b"), &json!(name)));
        let mut changed = found.clone();
        changed["data"]["a"] = json!("c");
        let changed = server.raw().put(path.as_str(), &changed).await.expect(200).json();
        assert_eq!(changed["data"]["a"], "c");
        assert_ne!(changed["metadata"]["resourceVersion"], found["metadata"]["resourceVersion"]);
    }
}

/// A cluster can be moved in this way: every object is replaced by itself, as for any new encoding.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_converts_a_protobuf_object_to_json() {
    let (shared, server) = server_with_foreign_values().await;
    let path = format!("{CONFIG_MAPS}/protobuf");
    let before = server.raw().get(path.as_str()).await.expect(200).json();
    let mut after = server.raw().put(path.as_str(), &before).await.expect(200).json();
    let stored = shared.get(&key("protobuf")).await.unwrap().unwrap().value;
    let stored: Value = serde_json::from_slice(&stored).unwrap();
    assert_eq!((&stored["kind"], &stored["data"]), (&json!("ConfigMap"), &before["data"]));
    let again = server.raw().put(path.as_str(), &after).await.expect(200).json();
    assert_eq!(again, after, "what is JSON already is not written");
    after["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"].clone();
    assert_eq!(after, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreadable_objects_are_reported_and_never_overwritten() {
    let (shared, server) = server_with_foreign_values().await;
    for (name, words) in
        [("broken", "in protobuf, and"), ("encrypted", "identity transformer tried to read encrypted data")]
    {
        let before = shared.get(&key(name)).await.unwrap();
        let url = format!("{CONFIG_MAPS}/{name}");
        let read = server.raw().get(&url).await.expect(500).json();
        assert!(read["message"].as_str().unwrap().contains(words), "{read}");
        server.raw().post(CONFIG_MAPS, &config_map(name)).await.expect(409);
        server.raw().put(&url, &config_map(name)).await.expect(500);
        server.raw().delete(&url).await.expect(500);
        assert_eq!(shared.get(&key(name)).await.unwrap(), before);
    }
    server.raw().get(format!("{CONFIG_MAPS}/nothing")).await.expect(404);
}

/// A client that takes a partial list for complete would delete the dependents of the missing objects.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreadable_objects_fail_a_list_unless_it_may_omit_them() {
    let (shared, server) = server_with_foreign_values().await;
    for path in
        [CONFIG_MAPS.to_owned(), "/api/v1/configmaps?limit=1".to_owned(), format!("{CONFIG_MAPS}?labelSelector=a")]
    {
        let status = server.raw().get(path).await.expect(500).json();
        assert_eq!(status["message"], "failed to read one or more configmaps from the storage");
        assert_eq!((&status["reason"], &status["details"]["kind"]), (&json!("StoreReadError"), &json!("configmaps")));
        let causes = status["details"]["causes"].as_array().unwrap();
        let fields: Vec<&str> = causes.iter().map(|cause| cause["field"].as_str().unwrap()).collect();
        assert_eq!(fields, ["broken", "encrypted"].map(|name| format!("/registry/configmaps/default/{name}")));
    }
    server.raw().delete(CONFIG_MAPS).await.expect(500);
    server.raw().get("/api/v1/namespaces/kube-system/configmaps").await.expect(200);
    let lenient = TestServer::builder().shared_store(Arc::new(shared)).configure(|config| {
        config.registry.skip_unreadable = true;
        config.allow_other_keys = true;
        config.server_id = "lenient".to_owned();
    });
    let list = lenient.start().await.raw().get(CONFIG_MAPS).await.expect(200).json();
    let names: Vec<&str> =
        list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"json") && !names.contains(&"broken"), "{names:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreadable_objects_need_an_explicit_option_for_deletes() {
    let (shared, server) = server_with_foreign_values().await;
    let raw = server.raw();
    let unsafely = |name: &str| format!("{CONFIG_MAPS}/{name}?ignoreStoreReadErrorWithClusterBreakingPotential=true");
    for name in ["json", "nothing"] {
        let status = raw.delete(unsafely(name)).await.expect(422).json();
        let text = status["message"].as_str().unwrap();
        assert!(text.contains("is exclusively used to delete corrupt object(s)"), "{text}");
    }
    let status = raw.delete(format!("{CONFIG_MAPS}?ignoreStoreReadErrorWithClusterBreakingPotential=true")).await;
    assert!(status.expect(422).text().contains("is not allowed with DELETECOLLECTION"));
    raw.get(format!("{CONFIG_MAPS}/json")).await.expect(200);
    for name in ["broken", "encrypted"] {
        raw.delete(format!("{CONFIG_MAPS}/{name}")).await.expect(500);
        assert_eq!(raw.delete(unsafely(name)).await.expect(200).json()["status"], "Success");
        assert!(shared.get(&key(name)).await.unwrap().is_none());
        raw.get(format!("{CONFIG_MAPS}/{name}")).await.expect(404);
    }
    raw.get(CONFIG_MAPS).await.expect(200);
}

/// Dependents of an unreadable owner remain; dependents of a missing owner are deleted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_collected_because_its_owner_can_not_be_read() {
    let (_shared, server) = server_with_foreign_values().await;
    for (name, owner) in [("kept", "broken"), ("collected", "nothing")] {
        let mut dependent = config_map(name);
        let uid = "5cf4b8a1-0c86-4d3a-9a4f-000000000002";
        dependent["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": uid}]);
        server.raw().post(CONFIG_MAPS, &dependent).await.expect(201);
    }
    let collected = tokio::time::timeout(Duration::from_secs(60), async {
        while server.raw().get(format!("{CONFIG_MAPS}/collected")).await.status != 404 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    collected.await.expect("what belongs to nothing is collected");
    server.raw().get(format!("{CONFIG_MAPS}/kept")).await.expect(200);
}

/// A service and its address are two objects, and kube-apiserver may have written either of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_in_protobuf_gives_back_its_address_in_protobuf() {
    let shared = MemoryStore::new();
    let server = TestServer::builder().shared_store(Arc::new(shared.clone())).start().await;
    let services = "/api/v1/namespaces/default/services";
    let service = json!({"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}});
    let made = server.raw().post(services, &service).await.expect(201).json();
    let ip = made["spec"]["clusterIP"].as_str().unwrap();
    for (path, version, kind) in [
        ("services/specs/default/web".to_owned(), "v1", "Service"),
        (format!("ipaddresses/{ip}"), "networking.k8s.io/v1", "IPAddress"),
    ] {
        let key = StoreKey::new(format!("/registry/{path}"));
        let stored = shared.get(&key).await.unwrap().unwrap().value;
        let object = Object::from_value(serde_json::from_slice(&stored).unwrap()).unwrap();
        let value = keelson_protobuf::encode(version, kind, &object).unwrap();
        shared.commit(Transaction::default().put(key, value)).await.unwrap();
    }
    let address = format!("/apis/networking.k8s.io/v1/ipaddresses/{ip}");
    server.raw().get(address.as_str()).await.expect(200);
    server.raw().delete(format!("{services}/web")).await.expect(200);
    server.raw().get(address.as_str()).await.expect(404);
}
