//! Servers know of each other by their leases: each writes only as long as its own stands, and one of them leads.

use std::sync::Arc;
use std::time::Duration;

use keelson_storage::memory::MemoryStore;
use keelson_storage::{Store, StoreKey, Transaction};
use keelson_testkit::{Raw, TestServer};
use serde_json::Value;

use crate::{CONFIG_MAPS, config_map, items, name, until};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
const IDENTITIES: &str = "labelSelector=apiserver.kubernetes.io%2Fidentity%3Dkube-apiserver";
const LEADER: &str = "keelson-controllers";

async fn server(store: &MemoryStore, id: &str) -> TestServer {
    let shared = TestServer::builder().shared_store(Arc::new(store.clone()));
    shared.configure(|config| config.server_id = id.to_owned()).start().await
}

/// A server whose lease ends soon unless it is renewed often.
async fn short_lived(store: &MemoryStore, id: &str) -> TestServer {
    let shared = TestServer::builder().shared_store(Arc::new(store.clone()));
    let short = shared.configure(|config| {
        config.server_id = id.to_owned();
        config.identity_duration = Duration::from_secs(2);
        config.identity_interval = Duration::from_millis(200);
    });
    short.start().await
}

async fn identities(raw: &Raw) -> Vec<Value> {
    let list = raw.get(format!("{LEASES}?{IDENTITIES}")).await.expect(200).json();
    items(&list).to_vec()
}

async fn lease(raw: &Raw, name: &str) -> Value {
    raw.get(format!("{LEASES}/{name}")).await.expect(200).json()
}

fn holder(lease: &Value) -> &str {
    lease["spec"]["holderIdentity"].as_str().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_server_that_lives_has_a_lease_and_one_that_stops_takes_it_along() {
    let store = MemoryStore::new();
    let first = server(&store, "one").await;
    let mut second = server(&store, "two").await;
    let raw = first.raw();
    let found = identities(&raw).await;
    assert_eq!(found.iter().map(name).collect::<Vec<_>>(), ["one", "two"]);
    let (metadata, spec) = (&found[1]["metadata"], &found[1]["spec"]);
    assert!(metadata["annotations"]["kubernetes.io/peer-advertise-address"].as_str().unwrap().contains(':'));
    assert_eq!(metadata["managedFields"][0]["manager"], "kube-apiserver");
    assert!(holder(&found[1]).starts_with("two_") && spec["renewTime"].is_string());
    assert_eq!(spec["leaseDurationSeconds"], 3600);
    second.stop().await;
    assert_eq!(identities(&raw).await.iter().map(name).collect::<Vec<_>>(), ["one"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_was_declared_dead_writes_nothing_until_it_is_registered_anew() {
    let store = MemoryStore::new();
    let server = server(&store, "one").await;
    let raw = server.raw();
    let before = lease(&raw, "one").await;
    // As another server would that collects the leases of the dead.
    let key = StoreKey::new("/registry/leases/kube-system/one");
    store.commit(Transaction::default().delete(key)).await.unwrap();
    let refused = raw.post(CONFIG_MAPS, &config_map("a", 1)).await.expect(503);
    assert_eq!(refused.header("retry-after"), "1");
    raw.get(format!("{CONFIG_MAPS}/a")).await.expect(404);
    until("writes pass again", || async { raw.post(CONFIG_MAPS, &config_map("a", 1)).await.status == 201 }).await;
    assert_ne!(holder(&lease(&raw, "one").await), holder(&before), "it is another registration");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lease_of_a_server_that_died_is_collected_when_its_time_is_over() {
    let store = MemoryStore::new();
    // Dropped without being stopped, as if it were killed.
    drop(short_lived(&store, "dead").await);
    let living = short_lived(&store, "living").await;
    let raw = living.raw();
    until("it is collected", || async { identities(&raw).await.iter().all(|lease| name(lease) != "dead") }).await;
    assert_eq!(identities(&raw).await.iter().map(name).collect::<Vec<_>>(), ["living"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_server_leads_and_hands_the_lead_on_when_it_stops() {
    let store = MemoryStore::new();
    let mut first = server(&store, "one").await;
    let second = server(&store, "two").await;
    let raw = second.raw();
    until("somebody leads", || async { raw.get(format!("{LEASES}/{LEADER}")).await.status == 200 }).await;
    assert_eq!(holder(&lease(&raw, LEADER).await), "one");
    first.stop().await;
    until("the other leads", || async { holder(&lease(&raw, LEADER).await) == "two" }).await;
    assert_eq!(lease(&raw, LEADER).await["spec"]["leaseTransitions"], 1);
    // It does what a leader does: a namespace that is deleted goes.
    raw.post("/api/v1/namespaces", &serde_json::json!({"metadata": {"name": "gone"}})).await.expect(201);
    raw.delete("/api/v1/namespaces/gone").await.expect(200);
    until("it goes", || async { raw.get("/api/v1/namespaces/gone").await.status == 404 }).await;
}
