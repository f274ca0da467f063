//! Tests of controllers whose watches lose their history, or that are stopped in the middle of their work.
//!
//! The controllers must end in the same state as controllers that saw every event.

use std::sync::Arc;
use std::time::Duration;

use keelson_controllers::{GarbageCollection, NamespaceDeletion};
use keelson_meta::json::{Value, json};
use keelson_meta::options::{DeleteOptions, GetOptions};
use keelson_registry::{Caller, Registry, Target};
use keelson_storage::Store;
use keelson_storage::memory::MemoryStore;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::setup::{PATIENCE, config_maps, create, registry, target};

/// A server without HTTP that runs the controllers.
struct Server {
    store: Arc<dyn Store>,
    registry: Arc<Registry>,
    stopping: CancellationToken,
    controllers: [JoinHandle<()>; 2],
}

impl Server {
    async fn start() -> Self {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let registry = registry(store.clone()).await;
        let stopping = CancellationToken::new();
        let controllers = [
            tokio::spawn(NamespaceDeletion::new(registry.clone()).unwrap().run(stopping.clone())),
            tokio::spawn(GarbageCollection::new(registry.clone()).run(stopping.clone())),
        ];
        Self { store, registry, stopping, controllers }
    }

    async fn create(&self, target: &Target, name: &str, metadata: Value) -> String {
        create(&self.registry, target, name, metadata).await
    }

    async fn delete(&self, target: &Target, name: &str) {
        self.registry.delete(target, name, &Caller::server(), &DeleteOptions::default()).await.unwrap();
    }

    async fn gone(&self, target: &Target, name: &str) {
        let wait = async {
            while self.registry.get(target, name, &Caller::server(), &GetOptions::default()).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("{name} is still there"));
    }

    /// Writes an object, then compacts the store before the cache has seen the write. The cache loads everything again,
    /// and all watches end.
    async fn lose_history(&self, target: &Target, name: &str) {
        self.create(target, name, json!({})).await;
        let newest = self.store.current_revision().await.unwrap();
        self.store.compact(newest).await.unwrap();
    }
}

#[tokio::test]
async fn controllers_continue_after_their_revision_is_compacted() {
    let server = Server::start().await;
    let (namespaces, content) = (target("", "namespaces", None), config_maps("default"));
    for round in 0..5 {
        let (team, owner, child) = (format!("team-{round}"), format!("owner-{round}"), format!("child-{round}"));
        server.create(&namespaces, &team, json!({})).await;
        server.create(&config_maps(&team), "content", json!({})).await;
        let uid = server.create(&content, &owner, json!({})).await;
        let reference = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": uid});
        server.create(&content, &child, json!({"ownerReferences": [reference]})).await;
        server.delete(&namespaces, &team).await;
        server.delete(&content, &owner).await;
        server.lose_history(&content, &format!("lost-{round}")).await;
        server.gone(&content, &child).await;
        server.gone(&namespaces, &team).await;
    }
}

#[tokio::test]
async fn controllers_stop_at_once_with_work_left() {
    let server = Server::start().await;
    let namespaces = target("", "namespaces", None);
    server.create(&namespaces, "held", json!({})).await;
    server.create(&config_maps("held"), "kept", json!({"finalizers": ["example.com/keep"]})).await;
    server.delete(&namespaces, "held").await;
    server.registry.get(&namespaces, "held", &Caller::server(), &GetOptions::default()).await.unwrap();
    server.stopping.cancel();
    for controller in server.controllers {
        tokio::time::timeout(PATIENCE, controller).await.expect("it stops").unwrap();
    }
    let holders = Arc::strong_count(&server.registry);
    assert_eq!(holders, 1, "nothing of the controllers is left");
}
