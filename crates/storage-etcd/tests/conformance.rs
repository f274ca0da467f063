//! The engine keeps the contract, on a real etcd.

#![allow(clippy::unwrap_used)] // A test fails by a panic.

use std::sync::Arc;

use keelson_storage::Store;
use keelson_storage::conformance::Factory;
use keelson_storage_etcd::{EtcdConfig, EtcdStore};
use keelson_teststores::EtcdServer;

/// An etcd of its own for each case: revisions are counted for a whole etcd, and cases expect to be alone.
struct OnEtcd {
    server: EtcdServer,
}

impl Factory for OnEtcd {
    async fn open(&mut self) -> Arc<dyn Store> {
        let url = format!("etcd://{}/conformance/of", self.server.endpoint());
        Arc::new(EtcdStore::open(EtcdConfig::from_url(&url).unwrap()).await.unwrap())
    }
}

macro_rules! cases {
    (() $($module:ident: [$($case:ident,)*],)*) => {
        $($(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let Some(server) = EtcdServer::start() else { return };
                keelson_storage::conformance::$module::$case(&mut OnEtcd { server }).await;
            }
        )*)*
    };
}

keelson_storage::for_each_conformance_case!(cases, ());
