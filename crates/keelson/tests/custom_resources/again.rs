//! Tests of definitions that are deleted, recreated and changed: a request uses the newest version, never an earlier
//! one.
//!
//! Servers serve a changed definition a moment after it is stored. Requests in between wait for it.

use std::sync::Arc;

use keelson_storage::Store;
use keelson_storage::memory::MemoryStore;
use keelson_testkit::{Answer, Raw};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::servers::server;
use super::{DEFINITIONS, MERGE, definition, establish, until_gone, version};

const TIDES: &str = "/apis/again.example.com/v1/namespaces/default/tides";
const TIDES_DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/tides.again.example.com";
const ROUNDS: usize = 20;

fn tides() -> Value {
    definition("again.example.com", "tides", "Tide", json!([version("v1", true)]))
}

fn tide() -> Value {
    json!({ "apiVersion": "again.example.com/v1", "kind": "Tide", "metadata": { "name": "a" }, "spec": { "a": "abc" } })
}

/// Two servers on one store.
async fn servers() -> (TempDir, [keelson_testkit::TestServer; 2]) {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let certificates = TempDir::new().unwrap();
    let first = server(&store, &certificates, "server-a").await;
    let second = server(&store, &certificates, "server-b").await;
    (certificates, [first, second])
}

/// Repeats a request until the resource is served, which needs accepted names. Every response but a 404 counts.
async fn served(ask: impl AsyncFn() -> Answer) -> Answer {
    let wait = async {
        loop {
            let answer = ask().await;
            if answer.status != 404 {
                return answer;
            }
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), wait).await.expect("it is served")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recreated_definition_serves_no_state_of_the_old_one() {
    let (_certificates, [first, second]) = servers().await;
    let (here, there) = (first.raw(), second.raw());
    for round in 0..ROUNDS {
        here.post(DEFINITIONS, &tides()).await.expect(201);
        // On both servers: neither refuses new objects because of the earlier definition.
        let raw = if round % 2 == 0 { &here } else { &there };
        served(async || raw.post(TIDES, &tide()).await).await.expect(201);
        for raw in [&here, &there] {
            let found = served(async || raw.get("/apis/again.example.com/v1").await).await.expect(200).json();
            let verbs = found["resources"][0]["verbs"].as_array().cloned().unwrap_or_default();
            assert!(verbs.contains(&json!("create")), "round {round}: {found}");
            raw.get(format!("{TIDES}/a")).await.expect(200);
        }
        here.delete(TIDES_DEFINITION).await.expect(200);
        until_gone(&here, TIDES_DEFINITION).await;
        // A client that has seen the definition's deletion finds neither the resource nor the group.
        for raw in [&here, &there] {
            raw.get("/apis/again.example.com/v1").await.expect(404);
            raw.get("/apis/again.example.com").await.expect(404);
            raw.get("/openapi/v3/apis/again.example.com/v1").await.expect(404);
            raw.get(TIDES).await.expect(404);
            raw.post(TIDES, &tide()).await.expect(404);
        }
        let groups = here.get("/apis").await.expect(200).text();
        assert!(!groups.contains("again.example.com"), "round {round}");
    }
}

/// Limits the length of a text.
async fn bound(raw: &Raw, length: u64) {
    let path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/a/maxLength";
    let patch = json!([{ "op": "add", "path": path, "value": length }]);
    raw.patch(TIDES_DEFINITION, "application/json-patch+json", &patch).await.expect(200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_definition_is_in_force_when_its_write_is_answered() {
    let (_certificates, [first, second]) = servers().await;
    let (here, there) = (first.raw(), second.raw());
    establish(&here, &tides()).await;
    let tried = format!("{TIDES}?dryRun=All");
    for round in 0..ROUNDS {
        for (length, status) in [(2, 422), (3, 201)] {
            bound(&here, length).await;
            here.post(&*tried, &tide()).await.expect(status);
            let document = here.get("/openapi/v3/apis/again.example.com/v1").await.expect(200).text();
            assert!(document.contains(&format!("\"maxLength\":{length}")), "round {round}");
            // Another server enforces it as soon as it shows it.
            let shown = there.get(TIDES_DEFINITION).await.expect(200).json();
            let spec = &shown["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
            assert_eq!(spec["properties"]["a"]["maxLength"], length);
            there.post(&*tried, &tide()).await.expect(status);
        }
    }
    // Subresources and versions too, whose paths did not exist before.
    here.post(TIDES, &tide()).await.expect(201);
    let subresources = json!([{ "op": "add", "path": "/spec/versions/0/subresources", "value": { "status": {} } }]);
    here.patch(TIDES_DEFINITION, "application/json-patch+json", &subresources).await.expect(200);
    let labels = json!({ "metadata": { "labels": { "a": "b" } } });
    here.patch(format!("{TIDES}/a/status"), MERGE, &labels).await.expect(200);
    let added = json!([{ "op": "add", "path": "/spec/versions/-", "value": version("v2", false) }]);
    here.patch(TIDES_DEFINITION, "application/json-patch+json", &added).await.expect(200);
    here.get(TIDES.replace("v1", "v2")).await.expect(200);
}
