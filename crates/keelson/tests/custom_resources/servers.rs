//! Tests of several servers on one store: a definition created on one is served by all.
//!
//! No server may return 404 after another one has reported the definition established.

use std::sync::Arc;

use keelson_storage::Store;
use keelson_storage::memory::MemoryStore;
use keelson_testkit::TestServer;
use serde_json::json;
use tempfile::TempDir;

use super::{DEFINITIONS, definition, establish, until, until_gone, version};

/// A server on the store. All share the certificates of one cluster.
pub(crate) async fn server(store: &Arc<dyn Store>, certificates: &TempDir, name: &str) -> TestServer {
    let builder = TestServer::builder().shared_store(store.clone()).configure(|config| {
        config.data_dir = Some(certificates.path().to_owned());
        config.server_id = name.to_owned();
    });
    builder.start().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_servers_follow_definitions() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let certificates = TempDir::new().unwrap();
    let first = server(&store, &certificates, "server-a").await;
    let second = server(&store, &certificates, "server-b").await;
    let (here, there) = (first.raw(), second.raw());
    let path = "/apis/many.example.com/v1/namespaces/default/oaks";
    establish(&here, &definition("many.example.com", "oaks", "Oak", json!([version("v1", true)]))).await;
    until(&there, path, |found| found["kind"] == "OakList").await;
    there.post(path, &json!({ "metadata": { "name": "a" } })).await.expect(201);
    here.get(format!("{path}/a")).await.expect(200);

    for number in 0..20 {
        let (plural, kind) = (format!("elms{number}"), format!("Elm{number}"));
        let definition = definition("many.example.com", &plural, &kind, json!([version("v1", true)]));
        let raw = if number % 2 == 0 { &here } else { &there };
        raw.post(DEFINITIONS, &definition).await.expect(201);
    }
    for raw in [&here, &there] {
        until(raw, "/apis/many.example.com/v1", |found| {
            found["resources"].as_array().is_some_and(|all| all.len() == 21)
        })
        .await;
    }
    let tag = async |raw: &keelson_testkit::Raw| {
        let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        raw.get("/apis").header("accept", accept).await.expect(200).header("etag").to_owned()
    };
    assert_eq!(tag(&here).await, tag(&there).await, "who serves the same describes it alike");

    there.delete(format!("{DEFINITIONS}/oaks.many.example.com")).await.expect(200);
    for raw in [&here, &there] {
        until_gone(raw, path).await;
        until_gone(raw, &format!("{DEFINITIONS}/oaks.many.example.com")).await;
    }
}
