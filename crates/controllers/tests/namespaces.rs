//! Emptying a namespace that holds something which can't be reached.

#![allow(clippy::unwrap_used, reason = "clippy takes only test functions for tests, not their helpers")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use keelson_cache::{Cache, CacheConfig, CollectionSpec};
use keelson_controllers::{Content, Left, NamespaceDeletion};
use keelson_meta::options::{CreateOptions, DeleteOptions, GetOptions};
use keelson_meta::random::SeededRandom;
use keelson_meta::{ApiError, GroupResource, Object, SystemClock};
use keelson_registry::{Registry, RegistryConfig, Target, Writer, namespaces_target};
use keelson_resources::Catalogue;
use keelson_storage::Store;
use keelson_storage::memory::MemoryStore;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

const PATIENCE: Duration = Duration::from_secs(30);

/// Something that is kept where nobody answers, until somebody does.
struct Remote(Arc<AtomicBool>);

impl Content for Remote {
    fn resource(&self) -> GroupResource {
        GroupResource { group: "example.org".to_owned(), resource: "gadgets".to_owned() }
    }

    fn empty<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Left, ApiError>> {
        let message = "nobody answers for gadgets".to_owned();
        let failure = ApiError::ServiceUnavailable { message, retry_after_seconds: None };
        let answer = if self.0.load(Ordering::SeqCst) { Ok(Left::default()) } else { Err(failure) };
        Box::pin(std::future::ready(answer))
    }
}

async fn registry() -> Arc<Registry> {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let clock = Arc::new(SystemClock);
    let stored = Catalogue::builtin().collections().iter();
    let specs = stored.map(|collection| CollectionSpec {
        prefix: collection.key_prefix(),
        fields: Vec::new(),
        dispatch: None,
        namespaced: collection.namespaced,
        complete: None,
    });
    let cache = Cache::start(store.clone(), specs.collect(), CacheConfig::new(clock.clone())).await.unwrap();
    Arc::new(Registry::new(store, cache, clock, Arc::new(SeededRandom::new(1)), RegistryConfig::default()))
}

fn config_maps() -> Target {
    let (resource, version) = Catalogue::builtin().lookup("", "v1", "configmaps").unwrap();
    Target { resource, version, subresource: None, namespace: Some("team".to_owned()), name: None }
}

async fn create(registry: &Registry, target: &Target, name: &str) {
    let mut object = Object::default();
    object.set_type(&target.kind());
    object.set_meta("name", name);
    if let Some(namespace) = &target.namespace {
        object.set_meta("namespace", namespace.as_str());
    }
    registry.create(target, object, &Writer::server(), &CreateOptions::default()).await.unwrap();
}

/// Waits until the object is as expected; `None` once it is gone.
async fn until(registry: &Registry, target: &Target, name: &str, expected: impl Fn(Option<Value>) -> bool) {
    let wait = async {
        loop {
            let found = registry.get(target, name, &GetOptions::default()).await.ok();
            if expected(found.map(|entry| serde_json::from_str(entry.object.text()).unwrap())) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("{name} is never as expected"));
}

#[tokio::test]
async fn what_cannot_be_reached_is_told_and_keeps_nothing_else() {
    let registry = registry().await;
    let namespaces = namespaces_target().unwrap();
    create(&registry, &namespaces, "team").await;
    create(&registry, &config_maps(), "content").await;
    let reachable = Arc::new(AtomicBool::new(false));
    let controller = NamespaceDeletion::new(registry.clone()).unwrap().also(Box::new(Remote(reachable.clone())));
    let stopping = CancellationToken::new();
    let running = tokio::spawn(controller.run(stopping.clone()));
    registry.delete(&namespaces, "team", &DeleteOptions::default()).await.unwrap();
    until(&registry, &config_maps(), "content", |content| content.is_none()).await;
    let failure = json!("Failed to delete all resource types, 1 remaining: nobody answers for gadgets");
    until(&registry, &namespaces, "team", |namespace| {
        let conditions = namespace.expect("it has to wait")["status"]["conditions"].clone();
        let failed = |condition: &Value| {
            condition["type"] == "NamespaceDeletionContentFailure" && condition["message"] == failure
        };
        conditions.as_array().into_iter().flatten().any(failed)
    })
    .await;
    reachable.store(true, Ordering::SeqCst);
    until(&registry, &namespaces, "team", |namespace| namespace.is_none()).await;
    stopping.cancel();
    running.await.unwrap();
}
