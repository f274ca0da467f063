//! A registry on a store, as in a server, and steps of tests on its objects.
//!
//! No HTTP: controllers are clients of the registry.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use keelson_cache::{Cache, CacheConfig};
use keelson_meta::json::Value;
use keelson_meta::options::CreateOptions;
use keelson_meta::random::SeededRandom;
use keelson_meta::{Clock, Object, SystemClock};
use keelson_registry::{Caller, Registry, RegistryConfig, Target};
use keelson_storage::Store;
use tokio::time::Instant;

/// The longest wait for anything in these tests.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A clock that starts at a set time and runs as fast as the test's clock.
pub(crate) struct RunningClock {
    set: SystemTime,
    begun: Instant,
}

impl RunningClock {
    pub(crate) fn set_to(now: SystemTime) -> Arc<Self> {
        Arc::new(Self { set: now, begun: Instant::now() })
    }
}

impl Clock for RunningClock {
    fn now(&self) -> SystemTime {
        self.set + self.begun.elapsed()
    }
}

/// A registry with the system's clock.
pub(crate) async fn registry(store: Arc<dyn Store>) -> Arc<Registry> {
    registry_at(store, Arc::new(SystemClock)).await
}

/// A registry with a clock of its own.
pub(crate) async fn registry_at(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Arc<Registry> {
    let config = CacheConfig::new(clock.clone());
    let cache = Cache::start(store.clone(), keelson_builtin::collection_specs(), config).await.unwrap();
    let random = Arc::new(SeededRandom::new(1));
    let registry = Arc::new(keelson_builtin::registry(store, cache, clock, random, RegistryConfig::default()));
    registry.ensure_system_namespaces().await.unwrap();
    registry
}

/// A collection, in a namespace or in none.
pub(crate) fn target(group: &str, plural: &str, namespace: Option<&str>) -> Target {
    keelson_builtin::surface().target(group, plural).unwrap().in_namespace(namespace)
}

pub(crate) fn config_maps(namespace: &str) -> Target {
    target("", "configmaps", Some(namespace))
}

/// Creates an object with only metadata. Returns its uid.
pub(crate) async fn create(registry: &Registry, target: &Target, name: &str, metadata: Value) -> String {
    let mut object = Object::default();
    object.set_type(target.kind());
    for (field, value) in metadata.as_object().unwrap() {
        object.set_meta(field, value.clone());
    }
    object.set_meta("name", name);
    if let Some(namespace) = &target.namespace {
        object.set_meta("namespace", namespace.as_str());
    }
    let created = registry.create(target, object, &Caller::server(), &CreateOptions::default()).await.unwrap();
    created.object.uid().into_owned()
}
