//! Tests with many writers while servers start and definitions change. The history of each stored object is checked: at
//! each write its server had published the version, and the storage state listed it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt as _;
use keelson_meta::Revision;
use keelson_resources::storage_version_hash;
use keelson_storage::memory::MemoryStore;
use keelson_storage::{Store as _, StoreKey, Transaction};
use keelson_testkit::Raw;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::identity::Cluster;
use crate::migrations::{storing, with_migrator};
use crate::storage_states::persisted;
use crate::until;

const WRITERS: usize = 8;
const CHANGES: usize = 6;
const MERGE: &str = "application/merge-patch+json";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// The resource under test.
struct Attacked {
    group: &'static str,
    plural: &'static str,
    kind: &'static str,
    /// The path of its objects in one of its versions.
    path: &'static str,
    object: fn(&str) -> Value,
}

/// Clients that create and change objects and ignore the results.
struct Attack {
    enough: Arc<AtomicBool>,
    written: Arc<AtomicUsize>,
    tasks: Vec<JoinHandle<()>>,
}

impl Attack {
    fn start(raw: &Raw, on: &Attacked) -> Self {
        let (enough, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (path, object) = (on.path, on.object);
        let task = |writer: usize| {
            let (raw, enough, written) = (raw.clone(), enough.clone(), written.clone());
            tokio::spawn(async move {
                let mut number = 0;
                while !enough.load(Ordering::SeqCst) {
                    let name = format!("w{writer}-{}", number % 20);
                    number += 1;
                    let change = json!({ "metadata": { "labels": { "n": number.to_string() } } });
                    for sent in [raw.post(path, &object(&name)), raw.patch(format!("{path}/{name}"), MERGE, &change)] {
                        match sent.try_send().await {
                            Ok(answer) if answer.status < 300 => {
                                written.fetch_add(1, Ordering::SeqCst);
                            }
                            Ok(answer) => {
                                assert!([404, 409, 429, 503, 504].contains(&answer.status), "{}", answer.text());
                            }
                            // The server is unavailable.
                            Err(_) => tokio::task::yield_now().await,
                        }
                    }
                }
            })
        };
        Self { tasks: (0..WRITERS).map(task).collect(), enough, written }
    }

    /// Waits for this number of further writes.
    async fn until_written(&self, more: usize) {
        let before = self.written.load(Ordering::SeqCst);
        until("more is written", || async { self.written.load(Ordering::SeqCst) >= before + more }).await;
    }

    async fn end(self) {
        self.enough.store(true, Ordering::SeqCst);
        for task in self.tasks {
            task.await.unwrap();
        }
    }
}

/// Checks everything that was written since a revision. Returns the number of values in each version.
async fn check_history(store: &MemoryStore, since: Revision, on: &Attacked) -> [usize; 2] {
    let prefix = |group: &str, plural: &str| {
        keelson_builtin::key_prefix(group, plural).unwrap_or_else(|_| format!("/registry/{group}/{plural}/"))
    };
    let objects = prefix(on.group, on.plural);
    let said = format!("{}{}.{}", prefix("internal.apiserver.k8s.io", "storageversions"), on.group, on.plural);
    let kept = format!("/registry/migration.k8s.io/storagestates/{}.{}", on.plural, on.group);
    let last = store.current_revision().await.unwrap();
    let mut tail = store.tail(since).await.unwrap();
    let (mut published, mut state, mut seen, mut reached) = (None, None, [0, 0], since);
    while reached < last {
        let batch = tail.next().await.unwrap().unwrap();
        for event in &batch.events {
            let (key, at) = (event.key.as_str(), event.revision);
            let object = event.value.as_ref().map(|value| serde_json::from_slice::<Value>(value).unwrap());
            if key == said {
                let entry = object.map(|object| object["status"]["storageVersions"][0]["encodingVersion"].clone());
                published = entry.filter(Value::is_string);
            } else if key == kept {
                state = object;
            } else if let Some(object) = object.filter(|_| key.starts_with(&objects)) {
                assert_eq!(Some(&object["apiVersion"]), published.as_ref(), "{key} at {at} is in no published version");
                let version = object["apiVersion"].as_str().unwrap().rsplit('/').next().unwrap();
                let hash = storage_version_hash(on.group, version, on.kind);
                let may_be = state.as_ref().map(persisted).unwrap_or_default();
                let is_known = may_be.is_empty() || may_be.contains(&"Unknown") || may_be.contains(&&*hash);
                assert!(is_known, "{key} at {at} is in {version}, of which the state knows nothing: {state:?}");
                seen[usize::from(version == "v2")] += 1;
            }
        }
        reached = batch.watermark;
    }
    seen
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_write_uses_an_old_version_during_a_server_start() {
    let scalers = Attacked {
        group: "autoscaling",
        plural: "horizontalpodautoscalers",
        kind: "HorizontalPodAutoscaler",
        path: "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers",
        object: |name| {
            let of = json!({ "kind": "Deployment", "name": "d", "apiVersion": "apps/v1" });
            json!({ "metadata": { "name": name }, "spec": { "maxReplicas": 3, "scaleTargetRef": of } })
        },
    };
    let cluster = Cluster::new();
    let since = cluster.store.current_revision().await.unwrap();
    let mut server = cluster.server_with("a", with_migrator).await;
    let attack = Attack::start(&server.raw(), &scalers);
    for change in 0..CHANGES {
        attack.until_written(20).await;
        server.change(storing(["v1", "v2"][change % 2]));
        server.restart().await;
    }
    attack.until_written(20).await;
    attack.end().await;
    let seen = check_history(&cluster.store, since, &scalers).await;
    assert!(seen.iter().all(|seen| *seen > 0), "{seen:?}: in both versions something is written");
}

fn versions(stored: &str) -> Value {
    let schema = json!({ "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } });
    let version = |name: &str| json!({ "name": name, "served": true, "storage": name == stored, "schema": schema });
    json!([version("v1"), version("v2")])
}

/// A definition of hosts in this group, with the first version as the storage version.
fn definition(group: &str) -> Value {
    let names = json!({ "plural": "hosts", "kind": "Host" });
    let spec = json!({ "group": group, "scope": "Namespaced", "names": names, "versions": versions("v1") });
    json!({ "metadata": { "name": format!("hosts.{group}") }, "spec": spec })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_write_uses_an_old_version_during_a_definition_change() {
    let hosts = Attacked {
        group: "attacked.example.com",
        plural: "hosts",
        kind: "Host",
        path: "/apis/attacked.example.com/v1/namespaces/default/hosts",
        object: |name| json!({ "apiVersion": "attacked.example.com/v1", "kind": "Host", "metadata": { "name": name }, "spec": {} }),
    };
    let cluster = Cluster::new();
    let since = cluster.store.current_revision().await.unwrap();
    let server = cluster.server_with("a", with_migrator).await;
    let raw = server.raw();
    raw.post(DEFINITIONS, &definition(hosts.group)).await.expect(201);
    let attack = Attack::start(&raw, &hosts);
    for change in 0..CHANGES {
        attack.until_written(20).await;
        let next = json!({ "spec": { "versions": versions(["v2", "v1"][change % 2]) } });
        raw.patch(format!("{DEFINITIONS}/hosts.attacked.example.com"), MERGE, &next).await.expect(200);
    }
    attack.until_written(20).await;
    attack.end().await;
    let seen = check_history(&cluster.store, since, &hosts).await;
    assert!(seen.iter().all(|seen| *seen > 0), "{seen:?}: in both versions something is written");
}

/// A paused server may still write a version that the other servers have agreed to abandon meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_versions_in_stored_versions_are_published() {
    let cluster = Cluster::new();
    let server = cluster.server("a").await;
    let raw = server.raw();
    let path = "/apis/listed.example.com/v1/namespaces/default/hosts";
    let write = async |number: usize| {
        let host = json!({ "metadata": { "name": format!("host-{number}") } });
        raw.post(path, &host).await.status
    };
    // Changes the definition's status as another server would.
    let list_stored = async |listed: Value| {
        let key = StoreKey::new("/registry/apiextensions.k8s.io/customresourcedefinitions/hosts.listed.example.com");
        let found = cluster.store.get(&key).await.unwrap().unwrap();
        let mut definition: Value = serde_json::from_slice(&found.value).unwrap();
        definition["spec"]["versions"] = versions("v2");
        definition["status"]["storedVersions"] = listed;
        definition["metadata"]["generation"] = json!(definition["metadata"]["generation"].as_u64().unwrap() + 1);
        cluster.store.commit(Transaction::default().put(key, definition.to_string())).await.unwrap();
    };
    raw.post(DEFINITIONS, &definition("listed.example.com")).await.expect(201);
    let number = AtomicUsize::new(0);
    let next = || write(number.fetch_add(1, Ordering::SeqCst));
    until("hosts are served", || async { next().await == 201 }).await;

    list_stored(json!(["v1"])).await;
    until("the definition is followed", || async { next().await == 503 }).await;
    for _ in 0..10 {
        assert_eq!(next().await, 503);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    list_stored(json!(["v1", "v2"])).await;
    until("what it lists is written", || async { next().await == 201 }).await;
}
