//! Runs the conformance suite on a real etcd of an old version.
//!
//! `cluster.rs` runs it on the newest version, with several members.

#![allow(clippy::unwrap_used)] // A test fails by a panic.

use std::sync::Arc;

use keelson_storage::Store;
use keelson_storage::conformance::Factory;
use keelson_storage_etcd::{EtcdConfig, EtcdStore};
use keelson_teststores::EtcdServer;

/// A separate etcd for each case, since revisions count for a whole etcd, and cases expect that no other client writes.
struct OnEtcd(EtcdServer);

impl Factory for OnEtcd {
    async fn open(&mut self) -> Arc<dyn Store> {
        let url = format!("etcd://{}/conformance/of", self.0.endpoint());
        Arc::new(EtcdStore::open(EtcdConfig::from_url(&url).unwrap()).await.unwrap())
    }
}

keelson_storage::conformance_tests!(match EtcdServer::start() {
    Some(server) => OnEtcd(server),
    // There is no etcd, which the test kit has reported.
    None => return,
});
