//! A custom resource that a webhook converts, on several servers: its stored version changes and changes back while writers run, and
//! whoever writes anew may be killed. All of it ends in the one version, and nothing is lost.

use std::sync::Arc;

use keelson_storage::{Store, StoreKey, Transaction};
use keelson_testkit::{HookReply, HookRequest, HookServer, ProcessServer, Raw, TestServer};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::custom_migrations::{DEFINITION, MERGE, converted, define, definition, stored, versions};
use crate::engines::{Engine, on_engine, on_every_engine};
use crate::migrations::{Writers, Written, contents, has_ended, holds, migrations, with_migrator};
use crate::{items, until};

on_every_engine!(what_several_servers_store_follows_its_definition_there_and_back);
on_engine!(killed_postgres, postgres: what_a_killed_server_was_converting_another_brings_to_its_end);
on_engine!(killed_etcd, etcd: what_a_killed_server_was_converting_another_brings_to_its_end);

const SERVERS: usize = 3;
/// How many objects there are beside those that writers change.
const OBJECTS: usize = 120;
/// How many there are where one server is killed among them.
const MANY: usize = 3000;
const HOSTS: &str = "/apis/move.example.com/v1/namespaces/default/hosts";

static WRITTEN: Written = Written {
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

/// Waits until nothing is stored in another version, and the definition says so.
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
    // There and back again before the first is over: the last word is what holds.
    store_as(&clients[1], "v1").await;
    store_as(&clients[2], "v2").await;
    store_as(&clients[0], "v1").await;
    until_all_are(raw, &*store, "v1").await;
    writers.end(raw, &before).await;
    until_all_are(raw, &*store, "v1").await;
    until("all migrations end", || async { migrations(raw).await.iter().all(has_ended) }).await;
}

/// Puts objects into the store as a server writes them that stores the first version.
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
