//! Tests of objects that were stored before the current defaults existed. Every read shows the defaults, at the
//! revision of the last write. The next write stores them.

use std::sync::Arc;

use keelson_storage::memory::MemoryStore;
use keelson_storage::{Store, StoreKey, Transaction};
use keelson_testkit::{Raw, TestServer};
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/default/pods";

/// The key of an object, its URL, its stored form, and the defaults that it lacks.
type Old = (&'static str, &'static str, Value, Vec<(&'static str, Value)>);

/// Stored objects of several kinds.
fn old() -> [Old; 3] {
    let metadata = json!({"name": "old", "namespace": "default", "uid": "5cf4b8a1-0c86-4d3a-9a4f-000000000001",
        "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"age": "old"}});
    let container = json!({"name": "c", "image": "nginx", "ports": [{"containerPort": 80}]});
    [
        (
            "/registry/pods/default/old",
            PODS,
            json!({"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": {"containers": [container]},
                "status": {"phase": "Running"}}),
            vec![
                ("/spec/restartPolicy", json!("Always")),
                ("/spec/enableServiceLinks", json!(true)),
                ("/spec/containers/0/imagePullPolicy", json!("Always")),
                ("/spec/containers/0/ports/0/protocol", json!("TCP")),
                ("/status/phase", json!("Running")),
            ],
        ),
        (
            "/registry/deployments/default/old",
            "/apis/apps/v1/namespaces/default/deployments",
            json!({"kind": "Deployment", "apiVersion": "apps/v1", "metadata": metadata,
                "spec": {"replicas": 3, "selector": {"matchLabels": {"a": "b"}},
                    "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}}}}),
            vec![
                ("/spec/replicas", json!(3)),
                ("/spec/progressDeadlineSeconds", json!(600)),
                ("/spec/strategy/rollingUpdate/maxSurge", json!("25%")),
                ("/spec/template/spec/dnsPolicy", json!("ClusterFirst")),
            ],
        ),
        (
            "/registry/services/specs/default/old",
            "/api/v1/namespaces/default/services",
            json!({"kind": "Service", "apiVersion": "v1", "metadata": metadata,
                "spec": {"clusterIP": "None", "ports": [{"name": "http", "port": 80}]}}),
            vec![
                ("/spec/type", json!("ClusterIP")),
                ("/spec/sessionAffinity", json!("None")),
                ("/spec/internalTrafficPolicy", json!("Cluster")),
                ("/spec/ports/0/targetPort", json!(80)),
            ],
        ),
    ]
}

/// Writes directly to the store. Returns the revision.
async fn put(store: &MemoryStore, key: &str, object: &Value) -> String {
    let written = Transaction::default().put(StoreKey::new(key), object.to_string());
    store.commit(written).await.unwrap().revisions[0].to_string()
}

async fn get(raw: &Raw, path: impl Into<String>) -> Value {
    raw.get(path).await.expect(200).json()
}

fn check(object: &Value, revision: &str, expected: &[(&str, Value)], how: &str) {
    for (path, value) in expected {
        assert_eq!(object.pointer(path).unwrap_or(&Value::Null), value, "{how}: {path} of {object}");
    }
    assert_eq!(object["metadata"]["resourceVersion"], revision, "{how}");
}

/// Reads the current object by every verb.
async fn check_reads(raw: &Raw, url: &str, revision: &str, expected: &[(&str, Value)]) {
    check(&get(raw, format!("{url}/old")).await, revision, expected, "get");
    let list = get(raw, format!("{url}?labelSelector=age%3Dold")).await;
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    check(&list["items"][0], revision, expected, "list");
    let table = "application/json;as=Table;g=meta.k8s.io;v=v1";
    let rows = raw.get(format!("{url}/old?includeObject=Object")).header("accept", table).await.expect(200).json();
    check(&rows["rows"][0]["object"], revision, expected, "table");
    let initial =
        format!("{url}?watch=true&labelSelector=age%3Dold&sendInitialEvents=true&resourceVersionMatch=NotOlderThan");
    let mut watch = raw.get(format!("{initial}&allowWatchBookmarks=true")).stream().await;
    check(&watch.next_json().await.unwrap()["object"], revision, expected, "initial events");
    let before = revision.parse::<u64>().unwrap() - 1;
    let mut watch = raw.get(format!("{url}?watch=true&resourceVersion={before}")).stream().await;
    let event = watch.next_json().await.unwrap();
    check(&event["object"], revision, expected, "watch");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_objects_have_the_defaults_of_today_before_and_after_a_restart() {
    let store = MemoryStore::new();
    // The first object exists when the server starts, the others appear while it runs.
    let [(first, url, object, expected), rest @ ..] = old();
    let revision = put(&store, first, &object).await;
    let mut server = TestServer::builder().shared_store(Arc::new(store.clone())).start().await;
    let mut written = vec![(url, revision, expected)];
    for (key, url, object, expected) in rest {
        written.push((url, put(&store, key, &object).await, expected));
    }
    for (url, revision, expected) in &written {
        check_reads(&server.raw(), url, revision, expected).await;
    }
    server.restart().await;
    for (url, revision, expected) in &written {
        check_reads(&server.raw(), url, revision, expected).await;
    }
    let stored = store.get(&StoreKey::new(first)).await.unwrap().unwrap();
    assert_eq!(stored.value, object.to_string(), "reading writes nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_of_the_past_have_the_defaults_of_today() {
    let store = MemoryStore::new();
    let [(key, url, object, expected), ..] = old();
    let builder = TestServer::builder().shared_store(Arc::new(store.clone()));
    let server = builder.configure(|config| config.history_bytes = 0).start().await;
    let revision = put(&store, key, &object).await;
    // More changes than the cache keeps under any setting.
    for number in 0..200 {
        let newer = json!({"metadata": {"annotations": {"number": number.to_string()}}});
        server.raw().patch(format!("{url}/old"), "application/merge-patch+json", &newer).await.expect(200);
    }
    let past = format!("{url}?resourceVersion={revision}&resourceVersionMatch=Exact");
    let list = get(&server.raw(), past).await;
    check(&list["items"][0], &revision, &expected, "history");
    assert_eq!(list["items"][0]["metadata"]["annotations"], Value::Null);
    let metrics = server.raw().get("/metrics").await.expect(200).text();
    let from_store = metrics.lines().find(|line| line.starts_with("keelson_lists_from_store_total "));
    assert_eq!(from_store, Some("keelson_lists_from_store_total 1.0"), "the cache has forgotten it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unchanged_write_stores_missing_defaults() {
    let store = MemoryStore::new();
    let [(key, url, object, expected), ..] = old();
    let server = TestServer::builder().shared_store(Arc::new(store.clone())).start().await;
    let revision = put(&store, key, &object).await;
    let shown = get(&server.raw(), format!("{url}/old")).await;
    check(&shown, &revision, &expected, "get");
    let written = server.raw().put(format!("{url}/old"), &shown).await.expect(200).json();
    assert_ne!(written["metadata"]["resourceVersion"], revision);
    let stored = store.get(&StoreKey::new(key)).await.unwrap().unwrap();
    let mut stored: Value = serde_json::from_slice(&stored.value).unwrap();
    stored["metadata"]["resourceVersion"] = written["metadata"]["resourceVersion"].clone();
    check(&stored, written["metadata"]["resourceVersion"].as_str().unwrap(), &expected, "store");
    let again = server.raw().put(format!("{url}/old"), &written).await.expect(200).json();
    assert_eq!(again["metadata"]["resourceVersion"], written["metadata"]["resourceVersion"], "nothing is lacking now");
}
