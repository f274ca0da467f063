//! Tests of a custom resource with a conversion webhook on several servers. Its storage version changes and changes
//! back while writers run, and the migrating or leading server may be killed or paused. In the end all objects have one
//! version, and none is lost.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::StreamExt as _;
use keelson_builtin::key_prefix;
use keelson_meta::Revision;
use keelson_storage::{Store, StoreEvent, StoreKey, Tail, Transaction};
use keelson_testkit::{HookReply, HookRequest, HookServer, ProcessServer, Raw, TestServer};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::custom_migrations::{DEFINITION, MERGE, converted, define, definition, stored, versions};
use crate::engines::{Engine, on_engine, on_every_engine};
use crate::migrations::{RunningWriters, Writers, contents, has_ended, holds, migrations, with_migrator};
use crate::{items, until};

on_every_engine!(what_several_servers_store_follows_its_definition_there_and_back);
on_engine!(
    killed_postgres, postgres:
    what_a_killed_server_was_converting_another_brings_to_its_end,
    a_leader_that_is_killed_holds_the_others_up_until_its_lease_ends,
    a_leader_that_stands_still_while_the_version_changes_writes_nothing_unseen
);
on_engine!(
    killed_etcd, etcd:
    what_a_killed_server_was_converting_another_brings_to_its_end,
    a_leader_that_is_killed_holds_the_others_up_until_its_lease_ends,
    a_leader_that_stands_still_while_the_version_changes_writes_nothing_unseen
);

const SERVERS: usize = 3;
/// The number of objects in addition to those of the writers.
const OBJECTS: usize = 120;
/// The number of objects in the test that kills a server meanwhile.
const MANY: usize = 3000;
const HOSTS: &str = "/apis/move.example.com/v1/namespaces/default/hosts";

static WRITTEN: RunningWriters = RunningWriters {
    path: HOSTS,
    object: |name, number| json!({ "metadata": { "name": name }, "spec": { "host": number.to_string() } }),
    change: |number| json!({ "spec": { "host": number.to_string() } }),
    number: |object| object["spec"]["host"].as_str()?.parse().ok(),
};

async fn hook() -> HookServer {
    let convert = |request: HookRequest| std::future::ready(HookReply::Json(converted(&request.body)));
    HookServer::start(&["127.0.0.1"], convert).await
}

fn host(number: usize) -> Value {
    json!({ "metadata": { "name": format!("h{number:05}") }, "spec": { "host": format!("at-{number}") } })
}

async fn store_as(raw: &Raw, version: &str) {
    raw.patch(DEFINITION, MERGE, &json!({ "spec": { "versions": versions(version) } })).await.expect(200);
}

/// Waits until no object is stored in another version, and the definition's status confirms it.
async fn until_all_are(raw: &Raw, store: &dyn Store, version: &str) {
    until("the other version leaves the list", || async {
        definition(raw).await["status"]["storedVersions"] == json!([version])
    })
    .await;
    let wanted = format!("move.example.com/{version}");
    assert!(stored(store).await.iter().all(|object| object["apiVersion"] == *wanted));
}

async fn what_several_servers_store_follows_its_definition_there_and_back(engine: Engine) {
    let (hook, keys, store) = (hook().await, TempDir::new().unwrap(), engine.open().await);
    let mut servers = Vec::new();
    for number in 0..SERVERS {
        let way: Arc<dyn Store> = engine.open().await;
        let server = TestServer::builder().shared_store(way).configure(with_migrator).configure(|config| {
            config.server_id = format!("server-{number}");
            config.data_dir = Some(keys.path().to_owned());
        });
        servers.push(server.start().await);
    }
    let clients: Vec<Raw> = servers.iter().map(|server| server.raw()).collect();
    let raw = &clients[0];
    define(raw, &hook).await;
    for number in 0..OBJECTS {
        clients[number % SERVERS].post(HOSTS, &host(number)).await.expect(201);
    }
    let before = contents(raw, HOSTS).await;
    let writers = Writers::start(&clients, &WRITTEN);
    store_as(raw, "v2").await;
    until_all_are(raw, &*store, "v2").await;
    // The version changes back before the first migration is complete. The last setting must win.
    store_as(&clients[1], "v1").await;
    store_as(&clients[2], "v2").await;
    store_as(&clients[0], "v1").await;
    until_all_are(raw, &*store, "v1").await;
    writers.end(raw, &before).await;
    until_all_are(raw, &*store, "v1").await;
    until("all migrations end", || async { migrations(raw).await.iter().all(has_ended) }).await;
}

/// Writes objects to the store in the form of a server that stores the first version.
async fn fill(store: &dyn Store) {
    let numbers: Vec<usize> = (0..MANY).collect();
    for part in numbers.chunks(100) {
        let put = |transaction: Transaction, number: &usize| {
            let value = format!(
                r#"{{"kind":"Host","apiVersion":"move.example.com/v1","metadata":{{"name":"h{number:05}","namespace":"default","uid":"u-{number}","generation":1,"creationTimestamp":"2026-01-01T00:00:00Z"}},"spec":{{"host":"at-{number}"}}}}"#
            );
            let key = format!("/registry/move.example.com/hosts/default/h{number:05}");
            transaction.put(StoreKey::new(key), value)
        };
        store.commit(part.iter().fold(Transaction::default(), put)).await.unwrap();
    }
}

async fn what_a_killed_server_was_converting_another_brings_to_its_end(engine: Engine) {
    let (hook, keys, store) = (hook().await, TempDir::new().unwrap(), engine.open().await);
    let start = |number: usize| {
        let server = ProcessServer::builder(env!("CARGO_BIN_EXE_keelson")).data_dir(keys.path());
        let id = format!("server-{number}");
        server.arg("--store").arg(engine.url()).arg("--server-id").arg(id).arg("--controllers=*")
    };
    let mut first = start(0).start().await;
    define(&first.raw(), &hook).await;
    fill(&*store).await;
    until("all are seen", || async { items(&first.raw().get(HOSTS).await.expect(200).json()).len() == MANY }).await;
    store_as(&first.raw(), "v2").await;
    let of = |version: &'static str| {
        let store = &store;
        async move {
            let wanted = format!("move.example.com/{version}");
            stored(&**store).await.iter().filter(|object| object["apiVersion"] == *wanted).count()
        }
    };
    until("it has begun", || async { of("v2").await > 0 }).await;
    first.kill().await;
    let left = of("v1").await;
    assert!(left > 0, "it was killed in the middle");
    let second = start(1).start().await;
    let raw = second.raw();
    until_all_are(&raw, &*store, "v2").await;
    let all = stored(&*store).await;
    assert_eq!(all.len(), MANY);
    for (number, object) in all.iter().enumerate() {
        assert_eq!(object["spec"], json!({ "address": format!("at-{number}") }));
    }
    until("the migration ends", || async { migrations(&raw).await.iter().all(has_ended) }).await;
    let all = migrations(&raw).await;
    let ours: Vec<&Value> = all.iter().filter(|it| it["spec"]["resource"]["resource"] == "hosts").collect();
    assert!(ours.len() == 1 && holds(ours[0], "Succeeded"), "it is the same migration: {ours:?}");
}

/// Checks all writes to a store. Objects have only versions that a server has published, and a migration succeeds only
/// while all servers have published the same version.
struct History {
    last: watch::Sender<Option<Revision>>,
    looking: JoinHandle<BTreeSet<String>>,
}

impl History {
    async fn follow(store: &dyn Store) -> Self {
        let since = store.current_revision().await.unwrap();
        let tail = store.tail(since).await.unwrap();
        let last = watch::Sender::new(None);
        let looking = tokio::spawn(look(tail, since, last.subscribe()));
        Self { last, looking }
    }

    /// Checks the content, and returns the versions of the written objects.
    async fn end(self, store: &dyn Store) -> BTreeSet<String> {
        self.last.send_replace(Some(store.current_revision().await.unwrap()));
        self.looking.await.unwrap()
    }
}

async fn look(mut tail: Tail, mut reached: Revision, mut last: watch::Receiver<Option<Revision>>) -> BTreeSet<String> {
    let (mut published, mut written) = (BTreeSet::new(), BTreeSet::new());
    while last.borrow().is_none_or(|last| reached < last) {
        tokio::select! {
            batch = tail.next() => {
                let batch = batch.unwrap().unwrap();
                batch.events.iter().for_each(|event| judge(event, &mut published, &mut written));
                reached = batch.watermark;
            }
            told = last.changed() => told.unwrap(),
        }
    }
    written
}

fn judge(event: &StoreEvent, published: &mut BTreeSet<String>, written: &mut BTreeSet<String>) {
    let below = |group: &str, plural: &str| key_prefix(group, plural).unwrap();
    let (key, at) = (event.key.as_str(), event.revision);
    let is_said = key == below("internal.apiserver.k8s.io", "storageversions") + "move.example.com.hosts";
    let is_migration = key.starts_with(&below("storagemigration.k8s.io", "storageversionmigrations"));
    let is_object = key.starts_with("/registry/move.example.com/hosts/");
    if !(is_said || is_migration || is_object) {
        return;
    }
    let object: Value = event.value.as_ref().map_or(Value::Null, |value| serde_json::from_slice(value).unwrap());
    if is_said {
        let entries = object["status"]["storageVersions"].as_array().into_iter().flatten();
        *published = entries.map(|entry| entry["encodingVersion"].as_str().unwrap().to_owned()).collect();
    } else if is_object && let Some(version) = object["apiVersion"].as_str() {
        assert!(published.contains(version), "{key} at {at} is in {version}, and only {published:?} are published");
        written.insert(version.to_owned());
    } else if is_migration && object["spec"]["resource"]["resource"] == "hosts" && holds(&object, "Succeeded") {
        assert_eq!(published.len(), 1, "{key} has succeeded at {at}, and {published:?} are published");
    }
}

/// Server processes, the first of them the leader, with a custom resource and writers on all servers except for the
/// first.
struct Processes {
    servers: Vec<ProcessServer>,
    clients: Vec<Raw>,
    history: History,
    store: Arc<dyn Store>,
    before: std::collections::BTreeMap<String, Value>,
    writers: Writers,
    _hook: HookServer,
    _keys: TempDir,
}

impl Processes {
    async fn start(engine: &Engine) -> Self {
        let (hook, keys, store) = (hook().await, TempDir::new().unwrap(), engine.open().await);
        let mut servers = Vec::new();
        for number in 0..SERVERS {
            let server = ProcessServer::builder(env!("CARGO_BIN_EXE_keelson")).data_dir(keys.path());
            let server = server.arg("--store").arg(engine.url()).args(["--identity-lease=20s", "--controllers=*"]);
            servers.push(server.arg(format!("--server-id=server-{number}")).start().await);
        }
        let history = History::follow(&*store).await;
        let clients: Vec<Raw> = servers.iter().map(|server| server.raw()).collect();
        let raw = &clients[1];
        define(raw, &hook).await;
        for number in 0..OBJECTS {
            let at = &clients[number % SERVERS];
            until("it is written", || async { [201, 409].contains(&at.post(HOSTS, &host(number)).await.status) }).await;
        }
        let before = contents(raw, HOSTS).await;
        let version = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions/move.example.com.hosts";
        until("all have published", || async {
            let found = raw.get(version).await.expect(200).json();
            found["status"]["storageVersions"].as_array().is_some_and(|all| all.len() == SERVERS)
        })
        .await;
        let writers = Writers::start(&clients[1..], &WRITTEN);
        Self { servers, clients, history, store, before, writers, _hook: hook, _keys: keys }
    }

    /// Waits until all objects have the second version, and checks the history of the writes.
    async fn end(self) {
        let (raw, store) = (&self.clients[1], &*self.store);
        until_all_are(raw, store, "v2").await;
        self.writers.end(raw, &self.before).await;
        until_all_are(raw, store, "v2").await;
        until("all migrations end", || async { migrations(raw).await.iter().all(has_ended) }).await;
        let written = self.history.end(store).await;
        assert_eq!(written.len(), 2, "both versions were written: {written:?}");
    }
}

async fn a_leader_that_is_killed_holds_the_others_up_until_its_lease_ends(engine: Engine) {
    let mut fleet = Processes::start(&engine).await;
    fleet.servers[0].kill().await;
    store_as(&fleet.clients[1], "v2").await;
    fleet.end().await;
}

async fn a_leader_that_stands_still_while_the_version_changes_writes_nothing_unseen(engine: Engine) {
    let fleet = Processes::start(&engine).await;
    let (server, raw) = (&fleet.servers[0], fleet.clients[0].clone());
    server.signal("-STOP").await;
    // The paused server executes earlier requests when it continues, in the version that it knows.
    let late = (0..8).map(|number| {
        let (raw, host) = (raw.clone(), host(OBJECTS + number));
        tokio::spawn(async move { raw.post(HOSTS, &host).try_send().await })
    });
    let late: Vec<_> = late.collect();
    store_as(&fleet.clients[1], "v2").await;
    until_all_are(&fleet.clients[1], &*fleet.store, "v2").await;
    server.signal("-CONT").await;
    for sent in late {
        let _ = sent.await.unwrap();
    }
    until("it writes again", || async {
        raw.post(HOSTS, &host(2 * OBJECTS)).try_send().await.is_ok_and(|answer| [201, 409].contains(&answer.status))
    })
    .await;
    fleet.end().await;
}
