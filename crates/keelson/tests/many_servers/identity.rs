//! Tests of the leases of servers: each server writes only while its own lease is valid, and one server is the leader.
//!
//! The important case is a server that was paused for longer than its lease.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use keelson_server::Config;
use keelson_storage::faulty::FaultyStore;
use keelson_storage::memory::MemoryStore;
use keelson_storage::{Store, StoreKey, Transaction};
use keelson_testkit::{Raw, TestServer};
use serde_json::Value;
use tempfile::TempDir;

use crate::{CONFIG_MAPS, config_map, items, name, until};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
const IDENTITIES: &str = "labelSelector=apiserver.kubernetes.io%2Fidentity%3Dkube-apiserver";
const LEADER: &str = "keelson-controllers";
/// The number of attempts to delete a lease and write before the server itself notices the deletion.
const ATTEMPTS: usize = 20;

/// A store, and the keys that its servers share.
pub(crate) struct Cluster {
    pub(crate) store: MemoryStore,
    keys: TempDir,
}

impl Cluster {
    pub(crate) fn new() -> Self {
        Self { store: MemoryStore::new(), keys: TempDir::new().unwrap() }
    }

    pub(crate) async fn server(&self, id: &str) -> TestServer {
        self.server_with(id, |_| {}).await
    }

    /// Starts a server with a short lease.
    async fn short_lived(&self, id: &str) -> TestServer {
        let short = |config: &mut Config| {
            config.identity_duration = Duration::from_secs(2);
            config.identity_interval = Duration::from_millis(200);
        };
        self.server_with(id, short).await
    }

    pub(crate) async fn server_with(&self, id: &str, change: impl FnOnce(&mut Config)) -> TestServer {
        let shared = TestServer::builder().shared_store(Arc::new(self.store.clone()));
        let shared = shared.configure(|config| {
            config.server_id = id.to_owned();
            config.data_dir = Some(self.keys.path().to_owned());
        });
        shared.configure(change).start().await
    }
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
async fn live_servers_have_leases_and_stopping_ones_delete_them() {
    let cluster = Cluster::new();
    let first = cluster.server("one").await;
    let mut second = cluster.server("two").await;
    let raw = first.raw();
    let found = identities(&raw).await;
    assert_eq!(found.iter().map(name).collect::<Vec<_>>(), ["one", "two"]);
    let (metadata, spec) = (&found[1]["metadata"], &found[1]["spec"]);
    assert!(metadata["annotations"]["kubernetes.io/peer-advertise-address"].as_str().unwrap().contains(':'));
    let annotations: Vec<&String> = metadata["annotations"].as_object().unwrap().keys().collect();
    let keys = ["certificate-authorities", "service-account-issuer", "service-account-keys", "settings"];
    let keys = keys.iter().map(|key| format!("keelson.io/{key}"));
    assert!(annotations.into_iter().cloned().eq(keys.chain(["kubernetes.io/peer-advertise-address".to_owned()])));
    assert_eq!(metadata["managedFields"][0]["manager"], "kube-apiserver");
    assert!(holder(&found[1]).starts_with("two_") && spec["renewTime"].is_string());
    assert_eq!(spec["leaseDurationSeconds"], 3600);
    second.stop().await;
    assert_eq!(identities(&raw).await.iter().map(name).collect::<Vec<_>>(), ["one"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_declared_dead_writes_only_after_registering_again() {
    let cluster = Cluster::new();
    let server = cluster.server("one").await;
    let raw = server.raw();
    let before = lease(&raw, "one").await["metadata"]["uid"].clone();
    // Deletes the lease, as another server does with expired leases. It repeats this until a write notices the deletion
    // before the server, which checks its lease regularly.
    let key = StoreKey::new("/registry/leases/kube-system/one");
    let mut refused = None;
    for number in 0..ATTEMPTS {
        cluster.store.commit(Transaction::default().delete(key.clone())).await.unwrap();
        let name = format!("b-{number}");
        let answer = raw.post(CONFIG_MAPS, &config_map(&name, 1)).await;
        if answer.status == 503 {
            refused = Some((name, answer));
            break;
        }
        answer.expect(201);
    }
    let (name, answer) = refused.expect("writes are not compared with the lease");
    assert_eq!(answer.header("retry-after"), "1");
    raw.get(format!("{CONFIG_MAPS}/{name}")).await.expect(404);
    until("writes pass again", || async { raw.post(CONFIG_MAPS, &config_map("a", 1)).await.status == 201 }).await;
    assert_ne!(lease(&raw, "one").await["metadata"]["uid"], before, "it is another registration");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lease_of_a_dead_server_is_collected_after_expiry() {
    let cluster = Cluster::new();
    // The server is dropped without a stop, as if it were killed.
    drop(cluster.short_lived("dead").await);
    let living = cluster.short_lived("living").await;
    let raw = living.raw();
    until("it is collected", || async { identities(&raw).await.iter().all(|lease| name(lease) != "dead") }).await;
    assert_eq!(identities(&raw).await.iter().map(name).collect::<Vec<_>>(), ["living"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_server_leads_and_hands_the_lead_on_when_it_stops() {
    let cluster = Cluster::new();
    let mut first = cluster.server("one").await;
    let second = cluster.server("two").await;
    let raw = second.raw();
    until("somebody leads", || async { raw.get(format!("{LEASES}/{LEADER}")).await.status == 200 }).await;
    assert!(holder(&lease(&raw, LEADER).await).starts_with("one_"));
    first.stop().await;
    until("the other leads", || async { holder(&lease(&raw, LEADER).await).starts_with("two_") }).await;
    assert_eq!(lease(&raw, LEADER).await["spec"]["leaseTransitions"], 1);
    // The server does the work of a leader: it removes a deleted namespace.
    raw.post("/api/v1/namespaces", &serde_json::json!({"metadata": {"name": "gone"}})).await.expect(201);
    raw.delete("/api/v1/namespaces/gone").await.expect(200);
    until("it goes", || async { raw.get("/api/v1/namespaces/gone").await.status == 404 }).await;
}

/// A running server gives way to a later one with its name. So the later one takes the name only when its start can no
/// longer fail.
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_start_keeps_the_lease_of_a_running_server() {
    let cluster = Cluster::new();
    let server = cluster.short_lived("one").await;
    let (raw, before) = (server.raw(), lease(&server.raw(), "one").await);
    let kubeconfig = cluster.keys.path().join("kubeconfig");
    fs::remove_file(&kubeconfig).unwrap();
    fs::create_dir(&kubeconfig).unwrap();
    let again = TestServer::builder().shared_store(Arc::new(cluster.store.clone())).configure(|config| {
        config.server_id = "one".to_owned();
        config.data_dir = Some(cluster.keys.path().to_owned());
    });
    let failed = again.try_start().await.err().unwrap();
    assert!(failed.contains("writing the kubeconfig"), "{failed}");
    until("the lease is renewed", || async { lease(&raw, "one").await["spec"] != before["spec"] }).await;
    assert_eq!(holder(&lease(&raw, "one").await), holder(&before));
    raw.post(CONFIG_MAPS, &config_map("after", 1)).await.expect(201);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_a_response_withdraws_its_lease() {
    let cluster = Cluster::new();
    let way = FaultyStore::new(Arc::new(cluster.store.clone()));
    let key = StoreKey::new("/registry/leases/kube-system/one");
    way.lose_answers(key.as_str(), 1);
    let server =
        TestServer::builder().shared_store(Arc::new(way)).configure(|config| config.server_id = "one".to_owned());
    let failed = server.try_start().await.err().unwrap();
    assert!(failed.contains("registering this server's identity"), "{failed}");
    let kept = cluster.store.get(&key).await.unwrap();
    assert!(kept.is_none(), "{kept:?}");
}

/// The later start wins: from then on the earlier server writes nothing, however long it still runs.
#[tokio::test(flavor = "multi_thread")]
async fn of_two_servers_of_one_name_the_earlier_gives_way() {
    let cluster = Cluster::new();
    let earlier = cluster.short_lived("one").await;
    let (raw, old) = (earlier.raw(), lease(&earlier.raw(), "one").await);
    raw.post(CONFIG_MAPS, &config_map("before", 1)).await.expect(201);
    let later = cluster.short_lived("one").await;
    raw.post(CONFIG_MAPS, &config_map("after", 1)).await.expect(503);
    until("it is not ready", || async { raw.get("/readyz").await.status == 500 }).await;
    let readiness = raw.get("/readyz").await.expect(500).text();
    assert!(readiness.contains("[-]etcd failed"), "{readiness}");
    let new = lease(&later.raw(), "one").await;
    assert_eq!((&new["metadata"]["uid"], holder(&new) == holder(&old)), (&old["metadata"]["uid"], false));
    until("the lease is renewed", || async { lease(&later.raw(), "one").await["spec"] != new["spec"] }).await;
    raw.patch(format!("{CONFIG_MAPS}/before"), "application/merge-patch+json", &config_map("before", 2))
        .await
        .expect(503);
    later.raw().post(CONFIG_MAPS, &config_map("after", 2)).await.expect(201);
    assert_eq!(holder(&lease(&later.raw(), "one").await), holder(&new));
    later.raw().get("/readyz").await.expect(200);
}
