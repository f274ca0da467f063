//! Servers in this process. Each has its own connection to the shared store, which a test can break.
//!
//! `killed.rs` tests servers that are processes and are killed.

use std::sync::Arc;
use std::time::Duration;

use keelson_storage::faulty::{Fault, FaultyStore};
use keelson_storage::{RangeRequest, Store, StoreKey, Transaction};
use keelson_testkit::{Raw, TestServer};
use tempfile::TempDir;
use tokio::sync::Mutex;

use crate::engines::Engine;
use crate::{STORED, until};

pub(crate) const SERVERS: usize = 3;
/// The number of concurrent writes that fill a store.
const FILL: usize = 100;

pub(crate) struct Cluster {
    /// A connection to the store that is never broken.
    pub(crate) store: Arc<dyn Store>,
    pub(crate) servers: Vec<Member>,
    /// The certificates, which all servers of a cluster share.
    _certificates: TempDir,
    pub(crate) engine: Engine,
}

pub(crate) struct Member {
    pub(crate) way: FaultyStore,
    pub(crate) server: Mutex<TestServer>,
    raw: Raw,
}

impl Cluster {
    pub(crate) async fn start(engine: Engine) -> Self {
        let store = engine.open().await;
        Self::over(engine, store).await
    }

    /// Starts servers on a store that has this number of objects and as little history as possible.
    pub(crate) async fn filled(engine: Engine, objects: usize) -> Self {
        let store = engine.open().await;
        fill(&*store, objects).await;
        Self::over(engine, store).await
    }

    async fn over(engine: Engine, store: Arc<dyn Store>) -> Self {
        let mut servers = Vec::new();
        let certificates = TempDir::new().unwrap();
        for number in 0..SERVERS {
            let way = FaultyStore::new(engine.open().await);
            let server = TestServer::builder()
                .shared_store(Arc::new(way.clone()))
                .configure(|config| {
                    config.data_dir = Some(certificates.path().to_owned());
                    config.server_id = format!("server-{number}");
                    config.registry.store_wait = Duration::from_secs(1);
                    config.registry.revision_wait = Duration::from_secs(1);
                    config.shutdown_grace = Duration::from_secs(1);
                })
                .start()
                .await;
            let raw = server.raw();
            servers.push(Member { way, server: Mutex::new(server), raw });
        }
        Self { store, servers, _certificates: certificates, engine }
    }

    /// A client with a new connection to one of the servers, by its number modulo the number of servers.
    pub(crate) fn raw(&self, number: usize) -> Raw {
        self.servers[number % SERVERS].raw.clone()
    }

    /// A client of each server.
    pub(crate) fn clients(&self) -> Vec<Raw> {
        (0..SERVERS).map(|number| self.raw(number)).collect()
    }

    /// Stops a server and starts it again at the same address.
    pub(crate) async fn restart(&self, number: usize) {
        self.servers[number % SERVERS].server.lock().await.restart().await;
    }

    /// Breaks or repairs the connections of all servers to the store.
    pub(crate) fn set(&self, fault: Fault) {
        self.servers.iter().for_each(|member| member.way.set(fault));
    }

    /// Waits until all servers are ready.
    pub(crate) async fn ready(&self) {
        for number in 0..SERVERS {
            let raw = self.raw(number);
            until("ready", || async { raw.get("/readyz").try_send().await.is_ok_and(|answer| answer.status == 200) })
                .await;
        }
    }

    /// The names and revisions of the objects in the store at a revision.
    pub(crate) async fn stored_at(&self, revision: u64) -> Vec<(String, u64)> {
        stored_at(&*self.store, revision).await
    }
}

/// Writes this number of objects, and compacts their history.
pub(crate) async fn fill(store: &dyn Store, objects: usize) {
    let numbers: Vec<usize> = (0..objects).collect();
    for part in numbers.chunks(FILL) {
        let put = |transaction: Transaction, number: &usize| {
            let name = format!("{:02}-object-{number:05}", number % 100);
            let value = format!(
                r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"{name}","namespace":"default","uid":"{number}","creationTimestamp":"2026-01-01T00:00:00Z"}},"data":{{"number":"{number}"}}}}"#
            );
            transaction.put(StoreKey::new(format!("{STORED}{name}")), value)
        };
        store.commit(part.iter().fold(Transaction::default(), put)).await.unwrap();
    }
    let newest = store.current_revision().await.unwrap();
    store.compact(newest).await.unwrap();
}

/// The names and revisions of the objects in a store at a revision.
pub(crate) async fn stored_at(store: &dyn Store, revision: u64) -> Vec<(String, u64)> {
    let (from, to) = (StoreKey::new(STORED), StoreKey::prefix_end(STORED));
    let revision = Some(keelson_meta::Revision::new(revision));
    let page = store.range(RangeRequest { from, to, revision, limit: None }).await.unwrap();
    let named = |key: &StoreKey| key.as_str().strip_prefix(STORED).unwrap().to_owned();
    page.entries.iter().map(|stored| (named(&stored.key), stored.revision.get())).collect()
}
