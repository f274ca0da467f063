//! Tests two servers that share a store and use different storage versions.
//!
//! Each reads the objects of the other. Only a write changes the stored version.

use std::sync::Arc;
use std::time::SystemTime;

use keelson_builtin::collection_specs;
use keelson_cache::{Cache, CacheConfig};
use keelson_meta::Object;
use keelson_meta::clock::ManualClock;
use keelson_meta::json::{Value, json};
use keelson_meta::options::{CreateOptions, PatchOptions};
use keelson_meta::random::SeededRandom;
use keelson_registry::{Caller, Patch, PatchKind, Registry, RegistryConfig, Target, WriteResult, fit};
use keelson_storage::Store;
use keelson_storage::memory::MemoryStore;

const HPA: &str = "horizontalpodautoscalers.autoscaling";

async fn server(store: &Arc<dyn Store>, storage_version: Option<&str>) -> Registry {
    let clock = Arc::new(ManualClock::new(SystemTime::UNIX_EPOCH));
    let cache = Cache::start(store.clone(), collection_specs(), CacheConfig::new(clock.clone())).await.unwrap();
    let mut config = RegistryConfig::default();
    if let Some(version) = storage_version {
        config.store_as(keelson_builtin::catalogue(), &format!("{HPA}={version}")).unwrap();
    }
    let registry = keelson_builtin::registry(store.clone(), cache, clock, Arc::new(SeededRandom::new(1)), config);
    registry.ensure_system_namespaces().await.unwrap();
    registry
}

fn autoscalers(server: &Registry, version: &str, name: Option<&str>) -> Target {
    let target = server.surface().lookup("autoscaling", version, "horizontalpodautoscalers").unwrap();
    let target = target.in_namespace(Some("default"));
    name.map_or_else(|| target.clone(), |name| target.clone().named(name))
}

async fn patch(server: &Registry, version: &str, document: Value) -> WriteResult {
    let patch = Patch { kind: PatchKind::Merge, document, faults: Vec::new() };
    server
        .patch(&autoscalers(server, version, Some("a")), "a", &patch, &Caller::server(), &PatchOptions::default())
        .await
        .unwrap()
}

#[tokio::test]
async fn unchanged_writes_convert_objects_to_the_storage_version() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let (old, new) = (server(&store, Some("v1")).await, server(&store, None).await);
    let metrics = json!([{ "type": "Resource", "resource": { "name": "memory", "target": { "type": "Utilization", "averageUtilization": 5 } } }]);
    let body = json!({ "metadata": { "name": "a" }, "spec": { "maxReplicas": 3, "metrics": metrics,
        "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "a" } } });
    let target = autoscalers(&old, "v2", None);
    let mut object = Object::from_value(body).unwrap();
    fit(&target, &mut object).unwrap();
    let created = old.create(&target, object, &Caller::server(), &CreateOptions::default()).await.unwrap();
    assert_eq!(created.object.api_version(), "autoscaling/v1");

    // A write without changes converts a stored object to the current version.
    let rewritten = patch(&new, "v1", json!({})).await;
    assert_eq!(rewritten.object.api_version(), "autoscaling/v2");
    assert!(rewritten.revision > created.revision);
    assert_eq!(rewritten.object.decode(rewritten.revision.unwrap()).get(&["spec", "metrics"]), Some(&metrics));
    for version in ["v1", "v2"] {
        assert_eq!(patch(&new, version, json!({})).await.revision, rewritten.revision, "it is up to date");
    }

    let back = patch(&old, "v2", json!({ "spec": { "maxReplicas": 4 } })).await;
    assert_eq!(back.object.api_version(), "autoscaling/v1");
    assert_eq!(back.object.decode(back.revision.unwrap()).get(&["spec", "maxReplicas"]), Some(&json!(4)));
}

/// If a conversion fails, the object is never returned under the name of another version.
#[tokio::test]
async fn failed_conversions_return_an_error_with_the_object_name() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let server = server(&store, Some("v1")).await;
    let body = json!({ "metadata": { "name": "a" }, "spec": { "maxReplicas": 3,
        "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "a" } } });
    let mut object = Object::from_value(body).unwrap();
    let target = autoscalers(&server, "v2", None);
    fit(&target, &mut object).unwrap();
    let made = server.create(&target, object, &Caller::server(), &CreateOptions::default()).await.unwrap();
    let (view, revision) = (target.view(), made.revision.unwrap());
    assert!(!view.fits(&made.object));
    let mut written = Vec::new();
    let refused = [
        view.decode(&made.object, revision).map(|_| ()).unwrap_err(),
        view.write_object(&made.object, revision, &mut written).unwrap_err(),
    ];
    for refused in refused {
        let expected = "horizontalpodautoscalers.autoscaling \"default/a\" can't be converted from autoscaling/v1 to autoscaling/v2";
        assert!(refused.to_string().contains(expected), "{refused}");
        assert_eq!(refused.code(), 500);
    }
    assert!(written.is_empty());
    let shown = view.show(&made.object).await.unwrap();
    assert_eq!(view.decode(&shown, revision).unwrap().api_version(), Some("autoscaling/v2"));
}

#[test]
fn storage_versions_must_exist() {
    let refused =
        |setting: &str| RegistryConfig::default().store_as(keelson_builtin::catalogue(), setting).unwrap_err();
    assert_eq!(refused("pods"), r#""pods" is not of the form resource.group=version"#);
    assert_eq!(refused("pots=v1"), r#"there is no resource "pots""#);
    assert_eq!(refused(&format!("{HPA}=v3")), format!(r#"{HPA} have no version "v3"; known versions are v2, v1"#));
    assert!(refused("events.events.k8s.io=v1").contains("can't be chosen"), "core events are selected by their fields");
    assert!(refused("tokenreviews.authentication.k8s.io=v1").contains("can't be chosen"), "they are not stored");
    assert_eq!(RegistryConfig::default().store_as(keelson_builtin::catalogue(), "pods=v1"), Ok(()));
}
