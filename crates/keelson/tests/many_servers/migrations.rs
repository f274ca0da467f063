//! Tests of migrations of stored objects. After an upgrade all objects are rewritten in the new version without a
//! request, and nothing is rewritten while servers disagree.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use keelson_server::{Config, Switches};
use keelson_storage::faulty::{Fault, FaultyStore};
use keelson_storage::{RangeRequest, Store, StoreKey, Transaction};
use keelson_testkit::{ProcessServer, Raw, TestServer};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::engines::{Engine, on_engine, on_every_engine};
use crate::{items, name, until};

on_every_engine!(
    an_upgrade_of_all_servers_ends_with_everything_in_the_new_version,
    an_upgrade_that_is_rolled_back_ends_with_everything_in_the_old_version,
    a_server_that_dies_without_cleaning_up_holds_migrations_up_until_its_lease_is_collected,
    a_server_that_was_away_for_longer_than_its_lease_writes_nothing_unseen,
);
on_engine!(killed_postgres, postgres: what_a_killed_server_was_migrating_another_brings_to_its_end);
on_engine!(killed_etcd, etcd: what_a_killed_server_was_migrating_another_brings_to_its_end);

pub(crate) const MIGRATIONS: &str = "/apis/storagemigration.k8s.io/v1beta1/storageversionmigrations";
const SCALERS: &str = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers";
const STORED: &str = "/registry/horizontalpodautoscalers/";
const MERGE: &str = "application/merge-patch+json";
const SERVERS: usize = 3;
/// The number of objects in addition to those of the writers.
const OBJECTS: usize = 200;
const WRITERS: usize = 3;

/// Runs all controllers except for those that add objects to every namespace, and enables the storage states.
pub(crate) fn with_migrator(config: &mut Config) {
    config.registry.storage_states = true;
    let switches = ["*", "-root-ca-certificate-publisher-controller", "-serviceaccount-controller"];
    config.controllers = Switches::parse(switches).unwrap();
}

pub(crate) fn storing(version: &str) -> impl Fn(&mut Config) + use<'_> {
    move |config| {
        config
            .registry
            .store_as(keelson_builtin::catalogue(), &format!("horizontalpodautoscalers.autoscaling={version}"))
            .unwrap();
    }
}

/// Servers on one store that can be restarted with other settings.
struct Fleet {
    engine: Engine,
    store: Arc<dyn Store>,
    keys: TempDir,
    servers: Vec<TestServer>,
    clients: Vec<Raw>,
}

impl Fleet {
    /// Starts servers that store the first version, on a store with objects in it.
    async fn start(engine: Engine) -> Self {
        let store = engine.open().await;
        fill(&*store, OBJECTS).await;
        let mut fleet = Self { engine, store, keys: TempDir::new().unwrap(), servers: Vec::new(), clients: Vec::new() };
        for number in 0..SERVERS {
            let way = fleet.engine.open().await;
            let server = fleet.server(number, way, storing("v1")).await;
            fleet.clients.push(server.raw());
            fleet.servers.push(server);
        }
        fleet
    }

    async fn server(&self, number: usize, way: Arc<dyn Store>, change: impl FnOnce(&mut Config)) -> TestServer {
        let builder = TestServer::builder().shared_store(way).configure(with_migrator).configure(|config| {
            config.server_id = format!("server-{number}");
            config.data_dir = Some(self.keys.path().to_owned());
            config.shutdown_grace = Duration::from_secs(1);
        });
        builder.configure(change).start().await
    }

    async fn restart(&mut self, number: usize, version: &str) {
        self.servers[number].change(storing(version));
        self.servers[number].restart().await;
    }

    fn raw(&self) -> &Raw {
        &self.clients[0]
    }

    async fn until_agreed(&self, version: Option<&str>) {
        until_agreed(self.raw(), version).await;
    }

    /// Waits until all objects are stored in a version, and no migration runs.
    async fn until_stored_in(&self, version: &str) {
        until_stored_in(&*self.store, version).await;
        until("all migrations end", || async { migrations(self.raw()).await.iter().all(has_ended) }).await;
    }
}

async fn until_agreed(raw: &Raw, version: Option<&str>) {
    let path = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions/autoscaling.horizontalpodautoscalers";
    until("the servers agree, or not", || async {
        let found = raw.get(path).await.expect(200).json();
        found["status"]["commonEncodingVersion"].as_str() == version
    })
    .await;
}

pub(crate) async fn migrations(raw: &Raw) -> Vec<Value> {
    items(&raw.get(MIGRATIONS).await.expect(200).json()).to_vec()
}

pub(crate) fn holds(migration: &Value, kind: &str) -> bool {
    condition(migration, kind)["status"] == "True"
}

pub(crate) fn has_ended(migration: &Value) -> bool {
    holds(migration, "Succeeded") || holds(migration, "Failed")
}

/// A condition of an object; `null` if it is missing.
pub(crate) fn condition<'v>(object: &'v Value, kind: &str) -> &'v Value {
    let conditions = object["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    conditions.iter().find(|condition| condition["type"] == kind).unwrap_or(&Value::Null)
}

fn name_of(number: usize) -> String {
    format!("scaler-{number:05}")
}

/// Writes objects to the store in the form of a server that stores the first version.
async fn fill(store: &dyn Store, objects: usize) {
    let numbers: Vec<usize> = (0..objects).collect();
    for part in numbers.chunks(100) {
        let put = |transaction: Transaction, number: &usize| {
            let name = name_of(*number);
            let metrics =
                r#"[{\"type\":\"Resource\",\"resource\":{\"name\":\"memory\",\"targetAverageUtilization\":60}}]"#;
            let value = format!(
                r#"{{"kind":"HorizontalPodAutoscaler","apiVersion":"autoscaling/v1","metadata":{{"name":"{name}","namespace":"default","uid":"u-{number}","creationTimestamp":"2026-01-01T00:00:00Z","annotations":{{"autoscaling.alpha.kubernetes.io/metrics":"{metrics}","n":"{number}"}}}},"spec":{{"scaleTargetRef":{{"kind":"Deployment","name":"d","apiVersion":"apps/v1"}},"minReplicas":1,"maxReplicas":3,"targetCPUUtilizationPercentage":50}},"status":{{"currentReplicas":0,"desiredReplicas":0}}}}"#
            );
            transaction.put(StoreKey::new(format!("{STORED}default/{name}")), value)
        };
        store.commit(part.iter().fold(Transaction::default(), put)).await.unwrap();
    }
}

/// The number of values stored in each version.
async fn versions(store: &dyn Store) -> BTreeMap<String, usize> {
    let (from, to) = (StoreKey::new(STORED), StoreKey::prefix_end(STORED));
    let stored = store.range(RangeRequest { from, to, revision: None, limit: None }).await.unwrap();
    let mut counts = BTreeMap::new();
    for entry in stored.entries {
        let object: Value = serde_json::from_slice(&entry.value).unwrap();
        let version = object["apiVersion"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
        *counts.entry(version).or_default() += 1;
    }
    counts
}

async fn until_stored_in(store: &dyn Store, version: &str) {
    until("everything is stored in one version", || async { versions(store).await.keys().eq([version]) }).await;
}

/// The objects as clients read them, without their revisions.
pub(crate) async fn contents(raw: &Raw, path: &str) -> BTreeMap<String, Value> {
    let list = raw.get(path).await.expect(200).json();
    let without = |object: &Value| {
        let mut object = object.clone();
        object["metadata"].as_object_mut().unwrap().remove("resourceVersion");
        (name(&object).to_owned(), object)
    };
    items(&list).iter().map(without).collect()
}

/// Running writers. Each write sets a number in an object.
pub(crate) struct RunningWriters {
    pub(crate) path: &'static str,
    pub(crate) object: fn(&str, u64) -> Value,
    pub(crate) change: fn(u64) -> Value,
    pub(crate) number: fn(&Value) -> Option<u64>,
}

static SCALERS_WRITTEN: RunningWriters = RunningWriters {
    path: SCALERS,
    object: |name, number| {
        let of = json!({ "kind": "Deployment", "name": "d", "apiVersion": "apps/v1" });
        json!({ "metadata": { "name": name }, "spec": { "scaleTargetRef": of, "maxReplicas": number } })
    },
    change: |number| json!({ "spec": { "maxReplicas": number } }),
    number: |object| object["spec"]["maxReplicas"].as_u64(),
};

/// Changes its own objects on any server that answers, and records the last acknowledged write of each.
async fn write(
    clients: Vec<Raw>,
    written: &RunningWriters,
    writer: usize,
    enough: Arc<AtomicBool>,
) -> BTreeMap<String, (u64, u64)> {
    let mut acknowledged = BTreeMap::new();
    let mut round: u64 = 10;
    while !enough.load(Ordering::SeqCst) {
        round += 1;
        let raw = &clients[round as usize % clients.len()];
        let name = format!("w{writer}-{}", round % 10);
        let sent = if acknowledged.contains_key(&name) {
            raw.patch(format!("{}/{name}", written.path), MERGE, &(written.change)(round))
        } else {
            raw.post(written.path, &(written.object)(&name, round))
        };
        let known: &mut (u64, u64) = match sent.try_send().await {
            Ok(answer) if answer.status < 300 => {
                acknowledged.insert(name, (round, round));
                continue;
            }
            Ok(answer) if answer.status == 409 => acknowledged.entry(name).or_insert((0, round)),
            Ok(answer) => {
                assert!([503, 504].contains(&answer.status), "{}", answer.text());
                tokio::time::sleep(Duration::from_millis(5)).await;
                match acknowledged.get_mut(&name) {
                    Some(known) => known,
                    None => continue,
                }
            }
            Err(_) => {
                tokio::time::sleep(Duration::from_millis(5)).await;
                match acknowledged.get_mut(&name) {
                    Some(known) => known,
                    None => continue,
                }
            }
        };
        // The write may have happened in spite of the error.
        known.1 = round;
    }
    acknowledged
}

pub(crate) struct Writers {
    written: &'static RunningWriters,
    enough: Arc<AtomicBool>,
    tasks: Vec<tokio::task::JoinHandle<BTreeMap<String, (u64, u64)>>>,
}

impl Writers {
    pub(crate) fn start(clients: &[Raw], written: &'static RunningWriters) -> Self {
        let enough = Arc::new(AtomicBool::new(false));
        let write = |writer| tokio::spawn(write(clients.to_vec(), written, writer, enough.clone()));
        Self { tasks: (0..WRITERS).map(write).collect(), enough, written }
    }

    /// Stops the writers, and compares their acknowledged writes with the content.
    async fn check(self, found: &BTreeMap<String, Value>) {
        self.enough.store(true, Ordering::SeqCst);
        for task in self.tasks {
            let acknowledged = task.await.unwrap();
            assert!(!acknowledged.is_empty());
            for (name, (least, most)) in acknowledged {
                let number = (self.written.number)(&found[&name]).unwrap();
                assert!((least..=most).contains(&number), "{name} has {number}, and was left with {least}..={most}");
            }
        }
    }

    /// Stops the writers, and waits until they have ended before it reads.
    pub(crate) async fn end(self, raw: &Raw, before: &BTreeMap<String, Value>) {
        self.enough.store(true, Ordering::SeqCst);
        while !self.tasks.iter().all(tokio::task::JoinHandle::is_finished) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let after = contents(raw, self.written.path).await;
        for (name, object) in before {
            assert_eq!(after.get(name), Some(object), "what nobody changes stays as it was");
        }
        self.check(&after).await;
    }
}

async fn an_upgrade_of_all_servers_ends_with_everything_in_the_new_version(engine: Engine) {
    let mut fleet = Fleet::start(engine).await;
    fleet.until_agreed(Some("autoscaling/v1")).await;
    let before = contents(fleet.raw(), SCALERS).await;
    assert_eq!(before.len(), OBJECTS);
    assert!(migrations(fleet.raw()).await.is_empty(), "what is stored as all agree needs no migration");
    let writers = Writers::start(&fleet.clients, &SCALERS_WRITTEN);
    for number in 0..SERVERS - 1 {
        fleet.restart(number, "v2").await;
        fleet.until_agreed(None).await;
        assert!(migrations(fleet.raw()).await.is_empty(), "nothing is migrated before all agree");
        assert!(versions(&*fleet.store).await["v1"] >= OBJECTS);
    }
    fleet.restart(SERVERS - 1, "v2").await;
    fleet.until_agreed(Some("autoscaling/v2")).await;
    fleet.until_stored_in("v2").await;
    writers.end(fleet.raw(), &before).await;
    assert!(versions(&*fleet.store).await.keys().eq(["v2"]));
    let all = migrations(fleet.raw()).await;
    let done = all.iter().find(|migration| holds(migration, "Succeeded")).unwrap();
    assert_eq!(done["spec"]["resource"], json!({ "group": "autoscaling", "resource": "horizontalpodautoscalers" }));
    assert_eq!(done["metadata"]["labels"]["keelson.io/automatic"], "true");
    let annotations = &done["metadata"]["annotations"];
    assert_eq!(annotations["keelson.io/objects-done"], annotations["keelson.io/objects-total"], "{done}");
}

async fn an_upgrade_that_is_rolled_back_ends_with_everything_in_the_old_version(engine: Engine) {
    let mut fleet = Fleet::start(engine).await;
    for (number, version) in [(0, "v2"), (1, "v2")] {
        fleet.restart(number, version).await;
        fleet.until_agreed(None).await;
    }
    // The new version writes this object once, and then no more.
    let labelled = json!({ "metadata": { "labels": { "a": "b" } } });
    fleet.raw().patch(format!("{SCALERS}/{}", name_of(0)), MERGE, &labelled).await.expect(200);
    assert_eq!(versions(&*fleet.store).await["v2"], 1);
    let before = contents(fleet.raw(), SCALERS).await;
    let writers = Writers::start(&fleet.clients, &SCALERS_WRITTEN);
    fleet.restart(1, "v1").await;
    fleet.until_agreed(None).await;
    assert!(migrations(fleet.raw()).await.is_empty(), "nothing is migrated before all agree");
    fleet.restart(0, "v1").await;
    fleet.until_agreed(Some("autoscaling/v1")).await;
    fleet.until_stored_in("v1").await;
    assert!(migrations(fleet.raw()).await.iter().any(|migration| holds(migration, "Succeeded")));
    // A second attempt of the upgrade.
    for number in 0..SERVERS {
        fleet.restart(number, "v2").await;
    }
    fleet.until_stored_in("v2").await;
    writers.end(fleet.raw(), &before).await;
    assert!(versions(&*fleet.store).await.keys().eq(["v2"]));
}

fn short_lived(config: &mut Config) {
    config.identity_duration = Duration::from_secs(2);
    config.identity_interval = Duration::from_millis(200);
}

async fn a_server_that_dies_without_cleaning_up_holds_migrations_up_until_its_lease_is_collected(engine: Engine) {
    let mut fleet = Fleet::start(engine).await;
    let way = fleet.engine.open().await;
    let mortal = fleet.server(9, way, |config| (storing("v1")(config), short_lived(config)).0).await;
    for number in 0..SERVERS {
        fleet.servers[number].change(short_lived);
        fleet.restart(number, "v2").await;
    }
    fleet.until_agreed(None).await;
    // The server is dropped without a stop, as if it were killed.
    drop(mortal);
    fleet.until_agreed(Some("autoscaling/v2")).await;
    fleet.until_stored_in("v2").await;
}

async fn a_server_that_was_away_for_longer_than_its_lease_writes_nothing_unseen(engine: Engine) {
    let mut fleet = Fleet::start(engine).await;
    let way = FaultyStore::new(fleet.engine.open().await);
    let lost = fleet.server(9, Arc::new(way.clone()), |config| (storing("v1")(config), short_lived(config)).0).await;
    for number in 0..SERVERS {
        fleet.servers[number].change(short_lived);
        fleet.restart(number, "v2").await;
    }
    fleet.until_agreed(None).await;
    let raw = lost.raw();
    way.set(Fault::Hang);
    // Writes run all the time, and continue when the store is available again.
    let change = json!({ "spec": { "maxReplicas": 7 } });
    let late = tokio::spawn({
        let raw = raw.clone();
        let change = change.clone();
        async move { raw.patch(format!("{SCALERS}/{}", name_of(0)), MERGE, &change).try_send().await }
    });
    fleet.until_agreed(Some("autoscaling/v2")).await;
    fleet.until_stored_in("v2").await;
    let succeeded = fleet.store.current_revision().await.unwrap();
    way.set(Fault::None);
    let _ = late.await.unwrap();
    // The server publishes the old version before it writes it.
    until("the server is back", || async {
        raw.patch(format!("{SCALERS}/{}", name_of(1)), MERGE, &change).try_send().await.is_ok_and(|it| it.status == 200)
    })
    .await;
    let path = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions/autoscaling.horizontalpodautoscalers";
    let published = fleet.raw().get(path).await.expect(200).json();
    assert_eq!(published["status"]["commonEncodingVersion"], Value::Null, "{published}");
    let (from, to) = (StoreKey::new(STORED), StoreKey::prefix_end(STORED));
    let stored = fleet.store.range(RangeRequest { from, to, revision: None, limit: None }).await.unwrap();
    let old = stored.entries.iter().filter(|entry| entry.value.windows(14).any(|part| part == b"autoscaling/v1"));
    let published = crate::revision(&published);
    for entry in old {
        assert!(entry.revision > succeeded && entry.revision.get() > published, "{} was written unseen", entry.key);
    }
}

async fn what_a_killed_server_was_migrating_another_brings_to_its_end(engine: Engine) {
    const MANY: usize = 6000;
    let store = engine.open().await;
    fill(&*store, MANY).await;
    let keys = TempDir::new().unwrap();
    let start = |number: usize| {
        let server = ProcessServer::builder(env!("CARGO_BIN_EXE_keelson")).data_dir(keys.path());
        server
            .arg("--store")
            .arg(engine.url())
            .arg("--server-id")
            .arg(format!("server-{number}"))
            .arg("--controllers=*")
    };
    // While this server runs, the servers disagree.
    let mut old = start(7).arg("--storage-version=horizontalpodautoscalers.autoscaling=v1").start().await;
    let mut first = start(0).start().await;
    assert_eq!(versions(&*store).await["v1"], MANY);
    let is_new = async |number: usize| {
        let stored = store.get(&StoreKey::new(format!("{STORED}default/{}", name_of(number)))).await.unwrap().unwrap();
        stored.value.windows(14).any(|part| part == b"autoscaling/v2")
    };
    let begun = until("it has begun", || is_new(0));
    tokio::join!(old.terminate(), begun);
    first.kill().await;
    let at_kill = versions(&*store).await;
    assert!(at_kill.get("v1").is_some_and(|left| *left > 0), "it was killed in the middle: {at_kill:?}");
    let second = start(1).start().await;
    let raw = second.raw();
    until_stored_in(&*store, "v2").await;
    until("the migration ends", || async { migrations(&raw).await.iter().any(|it| holds(it, "Succeeded")) }).await;
    let all = migrations(&raw).await;
    let ours = |it: &&Value| it["spec"]["resource"]["resource"] == "horizontalpodautoscalers";
    assert_eq!(all.iter().filter(ours).count(), 1, "it is the same migration: {all:?}");
    let total = &all.iter().find(ours).unwrap()["metadata"]["annotations"]["keelson.io/objects-total"];
    assert_eq!(*total, MANY.to_string());
    assert_eq!(contents(&raw, SCALERS).await.len(), MANY);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_restart_with_another_version_migrates() {
    let mut server = TestServer::builder().sqlite().configure(with_migrator).configure(storing("v1")).start().await;
    for number in 0..20 {
        let of = json!({ "kind": "Deployment", "name": "d", "apiVersion": "apps/v1" });
        let spec = json!({ "scaleTargetRef": of, "maxReplicas": number + 1 });
        server.raw().post(SCALERS, &json!({ "metadata": { "name": name_of(number) }, "spec": spec })).await.expect(201);
    }
    let before = contents(&server.raw(), SCALERS).await;
    server.restart().await;
    server.change(storing("v2"));
    assert!(migrations(&server.raw()).await.is_empty());
    server.restart().await;
    let raw = server.raw();
    until("it is migrated", || async { migrations(&raw).await.iter().any(|it| holds(it, "Succeeded")) }).await;
    assert_eq!(contents(&raw, SCALERS).await, before);
    let metrics = raw.get("/metrics").await.expect(200).text();
    let of =
        "keelson_stored_encodings{resource=\"horizontalpodautoscalers.autoscaling\",encoding=\"autoscaling/v2\"} 20";
    assert!(metrics.contains(of), "{metrics}");
    assert_eq!(counted(&metrics, "keelson_migration_objects_total"), 20);
    assert!(counted(&metrics, "keelson_migration_pages_total") > 0, "{metrics}");
    // The controller creates it again when it has processed the resource.
    let state = "/apis/migration.k8s.io/v1alpha1/storagestates/horizontalpodautoscalers.autoscaling";
    raw.delete(state).await.expect(200);
    let revisions = |list: &Value| items(list).iter().map(crate::revision).collect::<Vec<_>>();
    let written = revisions(&raw.get(SCALERS).await.expect(200).json());
    server.restart().await;
    let raw = server.raw();
    until("the resource was looked at", || async { raw.get(state).await.status == 200 }).await;
    assert_eq!(migrations(&raw).await.len(), 1, "nothing is to be done, so nothing is begun");
    let metrics = raw.get("/metrics").await.expect(200).text();
    assert_eq!(counted(&metrics, "keelson_migration_pages_total"), 0, "and nothing is looked through");
    assert_eq!(counted(&metrics, "keelson_migration_objects_total"), 0);
    assert_eq!(revisions(&raw.get(SCALERS).await.expect(200).json()), written);
}

/// The value of a metric without labels.
fn counted(metrics: &str, name: &str) -> u64 {
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{name} is not in {metrics}")).parse::<f64>().unwrap() as u64
}

pub(crate) fn migration(name: &str, group: &str, resource: &str) -> Value {
    json!({ "metadata": { "name": name }, "spec": { "resource": { "group": group, "resource": resource } } })
}

/// Waits until a migration has ended, and returns it.
async fn ended(raw: &Raw, name: &str) -> Value {
    let path = format!("{MIGRATIONS}/{name}");
    until(name, || async { has_ended(&raw.get(&*path).await.expect(200).json()) }).await;
    raw.get(&*path).await.expect(200).json()
}

async fn check_failure(raw: &Raw, name: &str, why: &str) {
    let failed = ended(raw, name).await;
    let (failure, running) = (condition(&failed, "Failed"), condition(&failed, "Running"));
    assert_eq!(failure["reason"], "StorageVersionMigrationFailed", "{failed}");
    assert_eq!(failure["message"], why);
    assert_eq!((&running["status"], &running["reason"]), (&json!("False"), &json!("MigrationCompleted")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migration_that_makes_no_sense_fails_and_one_of_nothing_succeeds() {
    let server = TestServer::builder().configure(with_migrator).start().await;
    let raw = server.raw();
    for (name, group, resource) in [
        ("unknown", "", "nothings"),
        ("kind", "", "secret"),
        ("reviews", "authorization.k8s.io", "subjectaccessreviews"),
        ("empty", "", "componentstatuses"),
        ("secrets", "", "secrets"),
    ] {
        raw.post(MIGRATIONS, &migration(name, group, resource)).await.expect(201);
    }
    check_failure(&raw, "unknown", "resource does not exist in discovery").await;
    check_failure(&raw, "kind", "resource does not exist in discovery").await;
    let unsupported =
        |resource: &str| format!("resource \"{resource}\" does not support discovery operations: [update patch list]");
    let reviews = unsupported("authorization.k8s.io/v1, Resource=subjectaccessreviews");
    check_failure(&raw, "reviews", &reviews).await;
    check_failure(&raw, "empty", &unsupported("/v1, Resource=componentstatuses")).await;
    let done = ended(&raw, "secrets").await;
    let expect = |kind: &str, status: &str, reason: &str, message: &str| {
        let found = condition(&done, kind);
        assert_eq!((&found["status"], &found["reason"]), (&json!(status), &json!(reason)), "{done}");
        assert_eq!(found["message"], message);
    };
    expect("Running", "False", "MigrationCompleted", "Migration completed");
    expect("Succeeded", "True", "StorageVersionMigrationSucceeded", "");
    assert!(done["status"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap() > 0);
    assert_eq!(done["metadata"].get("annotations"), None, "{done}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migration_without_agreement_fails_and_writes_nothing() {
    let fleet_store = Engine::memory();
    let store = fleet_store.open().await;
    fill(&*store, 5).await;
    let keys = TempDir::new().unwrap();
    let start = |id: &str, version: &str| {
        let (id, keys) = (id.to_owned(), keys.path().to_owned());
        let builder =
            TestServer::builder().shared_store(store.clone()).configure(with_migrator).configure(storing(version));
        builder.configure(|config| (config.server_id, config.data_dir) = (id, Some(keys))).start()
    };
    let first = start("a", "v1").await;
    let _second = start("b", "v2").await;
    let raw = first.raw();
    let before = raw.get(SCALERS).await.expect(200).json();
    raw.post(MIGRATIONS, &migration("early", "autoscaling", "horizontalpodautoscalers")).await.expect(201);
    check_failure(&raw, "early", "the servers do not agree in which version the resource is stored").await;
    assert_eq!(items(&raw.get(SCALERS).await.expect(200).json()), items(&before));
    assert_eq!(versions(&*store).await["v1"], 5);
}
