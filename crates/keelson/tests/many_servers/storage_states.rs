//! Tests of storage states: the versions in which objects may be stored, for tools that upgrade servers. A version is
//! added before it is written, and removed when everything has been rewritten. A client's definition with the same name
//! replaces them.

use std::sync::Arc;

use keelson_registry::RegistryConfig;
use keelson_resources::storage_version_hash;
use keelson_server::Config;
use keelson_storage::memory::MemoryStore;
use keelson_storage::{RangeRequest, Store as _, StoreKey};
use keelson_testkit::{Raw, TestServer};
use serde_json::{Value, json};

use crate::migrations::{holds, migrations, storing, with_migrator};
use crate::{items, name, until};

pub(crate) const STATES: &str = "/apis/migration.k8s.io/v1alpha1/storagestates";
const SCALERS: &str = "horizontalpodautoscalers.autoscaling";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const MERGE: &str = "application/merge-patch+json";

fn hash(version: &str) -> String {
    storage_version_hash("autoscaling", version, "HorizontalPodAutoscaler")
}

pub(crate) fn persisted(state: &Value) -> Vec<&str> {
    let hashes = state["status"]["persistedStorageVersionHashes"].as_array();
    hashes.into_iter().flatten().map(|hash| hash.as_str().unwrap()).collect()
}

async fn until_persisted(raw: &Raw, resource: &str, expected: &[&str]) {
    let path = format!("{STATES}/{resource}");
    until(&format!("{resource} has the hashes {expected:?}"), || async {
        let found = raw.get(&*path).await;
        found.status == 200 && persisted(&found.json()) == expected
    })
    .await;
}

/// Makes a running server store the autoscalers in another version, as SIGHUP does.
pub(crate) async fn store_as(server: &TestServer, version: &str) {
    let mut config = RegistryConfig::default();
    config.store_as(keelson_builtin::catalogue(), &format!("{SCALERS}={version}")).unwrap();
    server.running().registry().store_builtin_as(config.storage_versions).await;
}

pub(crate) async fn make_scaler(raw: &Raw, name: &str) {
    let of = json!({ "kind": "Deployment", "name": "d", "apiVersion": "apps/v1" });
    let scaler = json!({ "metadata": { "name": name }, "spec": { "scaleTargetRef": of, "maxReplicas": 3 } });
    raw.post("/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers", &scaler).await.expect(201);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn storage_states_add_a_version_before_writes_and_drop_it_after_migration() {
    let server = TestServer::builder().configure(with_migrator).configure(storing("v1")).start().await;
    let raw = server.raw();
    let (old, new) = (hash("v1"), hash("v2"));
    until_persisted(&raw, SCALERS, &[&old]).await;
    make_scaler(&raw, "a").await;
    let versions = raw.get("/apis/internal.apiserver.k8s.io/v1alpha1/storageversions").await.expect(200).json();
    until("all that is stored has a state", || async {
        let states = raw.get(STATES).await.expect(200).json();
        let is_settled = |state: &Value| matches!(persisted(state)[..], [only] if only != "Unknown");
        items(&states).len() == items(&versions).len() && items(&states).iter().all(is_settled)
    })
    .await;
    let before = raw.get(STATES).await.expect(200).json();
    for state in items(&before) {
        let resource = &state["spec"]["resource"];
        let (group, plural) = (resource["group"].as_str().unwrap_or_default(), resource["resource"].as_str().unwrap());
        let expected = if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") };
        assert_eq!(name(state), expected);
        assert!(state["status"]["lastHeartbeatTime"].is_string(), "{state}");
    }

    let since = before["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let watch = format!("{STATES}?watch=1&resourceVersion={since}&fieldSelector=metadata.name%3D{SCALERS}");
    let mut changes = raw.get(watch).stream().await;
    store_as(&server, "v2").await;
    for expected in [vec![&*old, &new], vec![&*new]] {
        let event = changes.next_json().await.unwrap();
        assert_eq!((&event["type"], persisted(&event["object"])), (&json!("MODIFIED"), expected), "{event}");
        assert_eq!(event["object"]["status"]["currentStorageVersionHash"], *new);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_agreement_the_storage_state_is_unknown() {
    let store = MemoryStore::new();
    let start = |controllers: bool| {
        let builder = TestServer::builder().shared_store(Arc::new(store.clone()));
        builder
            .configure(move |config| {
                if controllers {
                    with_migrator(config);
                }
            })
            .start()
    };
    // A server without storage states also writes to the store.
    let mut alone = start(false).await;
    let other = json!({
        "metadata": { "name": "other", "labels": { "apiserver.kubernetes.io/identity": "kube-apiserver" } },
        "spec": { "holderIdentity": "other_1", "leaseDurationSeconds": 3600, "renewTime": "2999-01-01T00:00:00.000000Z" },
    });
    alone.raw().post(LEASES, &other).await.expect(201);
    alone.stop().await;
    let server = start(true).await;
    let raw = server.raw();
    until_persisted(&raw, SCALERS, &["Unknown"]).await;
    until_persisted(&raw, "secrets", &["Unknown"]).await;
    raw.delete(format!("{LEASES}/other")).await.expect(200);
    until_persisted(&raw, SCALERS, &[&hash("v2")]).await;
    until_persisted(&raw, "secrets", &[&storage_version_hash("", "v1", "Secret")]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn states_are_found_shown_and_checked_like_other_objects() {
    let server = TestServer::builder().configure(|config| config.registry.storage_states = true).start().await;
    let raw = server.raw();
    let list = raw.get("/apis/migration.k8s.io/v1alpha1").await.expect(200).json();
    let names: Vec<&str> =
        list["resources"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["storagestates", "storagestates/status"]);
    until("the group is found", || async {
        let groups = raw.get("/apis").await.expect(200).json();
        groups["groups"].as_array().unwrap().iter().any(|group| group["name"] == "migration.k8s.io")
    })
    .await;
    let definitions = raw.get(DEFINITIONS).await.expect(200).json();
    assert!(items(&definitions).is_empty(), "nothing is installed for them");
    let state = |name: &str, group: &str, resource: &str| {
        json!({
            "apiVersion": "migration.k8s.io/v1alpha1", "kind": "StorageState", "metadata": { "name": name },
            "spec": { "resource": { "group": group, "resource": resource } },
        })
    };
    for (name, group, resource) in [("a.x", "x", "b"), ("a.x", "", "a"), ("a", "x", "a")] {
        let refused = raw.post(STATES, &state(name, group, resource)).await.expect(422).text();
        assert!(refused.contains("the name must be <spec.resource.resource>.<spec.resource.group>"), "{refused}");
    }
    raw.post(STATES, &state("a.x", "x", "a")).await.expect(201);
    raw.post(STATES, &state("a", "", "a")).await.expect(201);
    let moved = json!({ "spec": { "resource": { "resource": "b" } } });
    raw.patch(format!("{STATES}/a"), MERGE, &moved).await.expect(422);
    let status = json!({ "status": { "persistedStorageVersionHashes": ["x="], "currentStorageVersionHash": "x=" } });
    raw.patch(format!("{STATES}/a/status"), MERGE, &status).await.expect(200);
    let unnamed = json!({ "status": { "persistedStorageVersionHashes": [""] } });
    raw.patch(format!("{STATES}/a/status"), MERGE, &unnamed).await.expect(422);
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let table = raw.get(STATES).header("accept", table).await.expect(200).json();
    let columns = table["columnDefinitions"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap());
    assert_eq!(columns.collect::<Vec<_>>(), ["Name", "Current", "Persisted", "Age"]);
    assert_eq!(table["rows"][0]["cells"].as_array().unwrap()[..3], [json!("a"), json!("x="), json!("[\"x=\"]")]);

    let without = |config: &mut Config| config.registry.storage_version_api = false;
    let off = TestServer::builder().configure(with_migrator).configure(without).start().await;
    off.raw().get(STATES).await.expect(404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn disabled_storage_states_are_not_served_and_migrations_still_run() {
    let store = MemoryStore::new();
    let by_default = |config: &mut Config| config.registry.storage_states = RegistryConfig::default().storage_states;
    let server = TestServer::builder()
        .shared_store(Arc::new(store.clone()))
        .configure(with_migrator)
        .configure(by_default)
        .configure(storing("v1"))
        .start()
        .await;
    let raw = server.raw();
    make_scaler(&raw, "a").await;
    store_as(&server, "v2").await;
    until("the object was migrated", || async {
        migrations(&raw).await.iter().any(|migration| holds(migration, "Succeeded"))
    })
    .await;
    let group = STATES.rsplit_once('/').unwrap().0;
    for path in [STATES, group, "/apis/migration.k8s.io"] {
        raw.get(path).await.expect(404);
    }
    let v2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    for accept in ["application/json", v2] {
        let groups = raw.get("/apis").header("accept", accept).await.expect(200).text();
        assert!(groups.contains("\"apps\"") && !groups.contains("\"migration.k8s.io\""), "{groups}");
    }
    let prefix = "/registry/migration.k8s.io/";
    let (from, to) = (StoreKey::new(prefix), StoreKey::prefix_end(prefix));
    let stored = store.range(RangeRequest { from, to, revision: None, limit: None }).await.unwrap();
    assert!(stored.entries.is_empty(), "{} states are stored", stored.entries.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outdated_storage_state_is_rebuilt_from_the_store() {
    let store = MemoryStore::new();
    let start = |version: &'static str, configure: fn(&mut Config)| {
        let builder = TestServer::builder().shared_store(Arc::new(store.clone()));
        builder.configure(configure).configure(storing(version)).start()
    };
    let mut first = start("v1", with_migrator).await;
    until_persisted(&first.raw(), SCALERS, &[&hash("v1")]).await;
    first.stop().await;
    let mut without = start("v2", |_| ()).await;
    make_scaler(&without.raw(), "a").await;
    without.stop().await;
    let since = store.current_revision().await.unwrap();
    let second = start("v1", with_migrator).await;
    let raw = second.raw();
    let watch = format!("{STATES}?watch=1&resourceVersion={since}&fieldSelector=metadata.name%3D{SCALERS}");
    let mut changes = raw.get(watch).stream().await;
    for expected in [vec!["Unknown", &*hash("v1")], vec![&*hash("v1")]] {
        let event = changes.next_json().await.unwrap();
        assert_eq!((&event["type"], persisted(&event["object"])), (&json!("MODIFIED"), expected), "{event}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_installed_definition_replaces_storage_states_until_its_deletion() {
    let server = TestServer::builder().configure(with_migrator).start().await;
    let raw = server.raw();
    let current = hash("v2");
    until_persisted(&raw, SCALERS, &[&current]).await;
    let schema = json!({ "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } });
    let version = |name: &str, stored: bool| json!({ "name": name, "served": true, "storage": stored, "schema": schema, "subresources": { "status": {} } });
    let installed = json!({
        "metadata": {
            "name": "storagestates.migration.k8s.io", "annotations": { "api-approved.kubernetes.io": "https://x.example.com/1" }
        },
        "spec": {
            "group": "migration.k8s.io",
            "scope": "Cluster",
            "names": { "plural": "storagestates", "kind": "StorageState" },
            "versions": [version("v1alpha1", true), version("v1beta1", false)],
        },
    });
    raw.post(DEFINITIONS, &installed).await.expect(201);
    let newer = "/apis/migration.k8s.io/v1beta1/storagestates";
    until("the definition is served", || async { raw.get(newer).await.status == 200 }).await;
    let kept = raw.get(format!("{newer}/{SCALERS}")).await.expect(200).json();
    assert_eq!(persisted(&kept), [&*current], "what is stored stays");
    // After that only clients write these objects, with any content.
    let said = json!({ "status": { "persistedStorageVersionHashes": ["mine"] } });
    raw.patch(format!("{newer}/{SCALERS}/status"), MERGE, &said).await.expect(200);
    store_as(&server, "v1").await;
    let agreed = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions/autoscaling.horizontalpodautoscalers";
    until("another version is published", || async {
        raw.get(agreed).await.expect(200).json()["status"]["commonEncodingVersion"] == "autoscaling/v1"
    })
    .await;
    make_scaler(&raw, "a").await;
    assert_eq!(persisted(&raw.get(format!("{newer}/{SCALERS}")).await.expect(200).json()), ["mine"]);

    raw.delete(format!("{DEFINITIONS}/storagestates.migration.k8s.io")).await.expect(200);
    until("the definition is gone", || async { raw.get(newer).await.status == 404 }).await;
    until("the server has its own again", || async { raw.get(STATES).await.status == 200 }).await;
    store_as(&server, "v2").await;
    until_persisted(&raw, SCALERS, &[&current]).await;
}
