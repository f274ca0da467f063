//! The conformance suite on a real etcd: an old one.
//!
//! `cluster.rs` runs it on the newest, with several members.

#![allow(clippy::unwrap_used)] // A test fails by a panic.

use std::sync::Arc;

use keelson_storage::Store;
use keelson_storage::conformance::Factory;
use keelson_storage_etcd::{EtcdConfig, EtcdStore};
use keelson_teststores::EtcdServer;

/// An etcd of its own for each case: revisions count for a whole etcd, and cases expect to be alone.
struct OnEtcd(EtcdServer);

impl Factory for OnEtcd {
    async fn open(&mut self) -> Arc<dyn Store> {
        let url = format!("etcd://{}/conformance/of", self.0.endpoint());
        Arc::new(EtcdStore::open(EtcdConfig::from_url(&url).unwrap()).await.unwrap())
    }
}

keelson_storage::conformance_tests!(match EtcdServer::start() {
    Some(server) => OnEtcd(server),
    // Without an etcd; the test kit has reported that.
    None => return,
});
