//! Tests of migrations in servers written with the library. One of the processes that share a store rewrites objects of
//! an older version, and the main server shows the progress.

use std::time::Duration;

use keelson_storage::{RangeRequest, Store, StoreKey, Transaction};
use keelson_storage_sql::{SqliteConfig, SqliteStore};
use keelson_testkit::{Raw, TestServer};
use serde_json::{Value, json};

use crate::example::Example;
use crate::{MERGE, PATIENCE, SERVICES, api_service, until};

/// The number of objects, enough for many steps of a migration.
const MANY: usize = 300;
/// The number of objects in the test that kills one process meanwhile.
const MANY_STORED: usize = 2000;
const V1: &str = "moved.example.com/v1";
const V2: &str = "moved.example.com/v2";
/// The path of the objects, and their stored prefix.
const CRATES: &str = "/apis/moved.example.com/v1/namespaces/default/crates";
const STORED: &str = "/registry/moved.example.com/crates/";
/// The path of their published versions on the main server.
const PUBLISHED: &str = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions/moved.example.com.crates";
const MIGRATIONS: &str = "/apis/storagemigration.k8s.io/v1beta1/storageversionmigrations";

async fn make(raw: &Raw, count: usize) {
    for number in 0..count {
        let sent = json!({
            "apiVersion": "moved.example.com/v1", "kind": "Crate", "metadata": { "name": format!("c-{number}") },
            "spec": { "content": format!("{number}") },
        });
        raw.post(CRATES, &sent).await.expect(201);
    }
}

/// The objects as clients see them, without revisions.
async fn contents(raw: &Raw) -> Vec<Value> {
    let mut list = until(raw, CRATES, |list| list["kind"] == "CrateList").await;
    let items = list["items"].as_array_mut().unwrap();
    items.iter_mut().for_each(|item| drop(item["metadata"].as_object_mut().unwrap().remove("resourceVersion")));
    std::mem::take(items)
}

/// The versions in which a store has the objects, without duplicates.
async fn versions(store: &dyn Store) -> Vec<String> {
    let (from, to) = (StoreKey::new(STORED), StoreKey::prefix_end(STORED));
    let page = store.range(RangeRequest { from, to, revision: None, limit: None }).await.unwrap();
    let version =
        |value: &[u8]| serde_json::from_slice::<Value>(value).unwrap()["apiVersion"].as_str().unwrap().to_owned();
    let mut all: Vec<String> = page.entries.iter().map(|entry| version(&entry.value)).collect();
    all.sort_unstable();
    all.dedup();
    all
}

fn holds(migration: &Value, kind: &str) -> bool {
    let conditions = migration["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|condition| condition["type"] == *kind && condition["status"] == "True")
}

/// The migrations of a resource in a list.
fn migrations_of<'l>(list: &'l Value, resource: &str) -> Vec<&'l Value> {
    let all = list["items"].as_array().into_iter().flatten();
    all.filter(|migration| migration["spec"]["resource"]["resource"] == *resource).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_library_migrates_its_older_objects_even_after_kills() {
    let main = TestServer::start().await;
    let raw = main.raw();
    let mut crates = Example::moved(&main, |directory| format!("sqlite:{}", directory.display())).await;
    make(&raw, MANY).await;
    let before = contents(&raw).await;
    crates.stop().await;
    crates.store_in("v2");
    crates.start_again().await;
    until(&raw, PUBLISHED, |found| found["status"]["commonEncodingVersion"] == "moved.example.com/v2").await;
    until(&raw, MIGRATIONS, |list| !migrations_of(list, "crates").is_empty()).await;
    crates.crash().await;
    let list =
        until(&raw, MIGRATIONS, |list| migrations_of(list, "crates").iter().any(|it| holds(it, "Succeeded"))).await;
    let found = migrations_of(&list, "crates");
    assert_eq!(found.len(), 1, "the one that was begun goes on: {list}");
    assert_eq!(found[0]["metadata"]["labels"]["keelson.io/automatic"], "true");
    assert_eq!(found[0]["metadata"]["annotations"]["keelson.io/objects-done"], MANY.to_string());
    assert_eq!(contents(&raw).await, before, "nothing but the encoding has changed");
    crates.stop().await;
    let store = SqliteStore::open(SqliteConfig::directory(crates.directory())).unwrap();
    assert_eq!(versions(&store).await, ["moved.example.com/v2"]);
}

/// Runs a test on each store that processes can share, if this machine has it.
macro_rules! on_shared_stores {
    ($($test:ident),* $(,)?) => {
        mod postgres {
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $test() {
                    let Some(postgres) = keelson_testkit::PostgresServer::shared() else { return };
                    let url = postgres.create_database(stringify!($test).split_at(20).0);
                    let config = keelson_storage_sql::PostgresConfig::from_url(&url).unwrap();
                    super::$test(url, &keelson_storage_sql::PostgresStore::open(config).await.unwrap()).await;
                }
            )*
        }
        mod etcd {
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $test() {
                    let Some(etcd) = keelson_testkit::EtcdServer::shared() else { return };
                    let url = format!("etcd://{}/{}", etcd.endpoint(), stringify!($test));
                    let config = keelson_storage_etcd::EtcdConfig::from_url(&url).unwrap();
                    super::$test(url, &keelson_storage_etcd::EtcdStore::open(config).await.unwrap()).await;
                }
            )*
        }
    };
}

on_shared_stores!(
    processes_go_over_one_by_one_and_another_ends_what_a_killed_one_has_begun,
    what_a_process_stores_that_dies_or_stands_still_holds_the_others_up_until_its_lease_ends,
);

/// Writes objects to the store in the form of a process that stores the first version.
async fn fill(store: &dyn Store, count: usize) {
    let numbers: Vec<usize> = (0..count).collect();
    for part in numbers.chunks(100) {
        let put = |transaction: Transaction, number: &usize| {
            let value = json!({
                "kind": "Crate", "apiVersion": "moved.example.com/v1",
                "metadata": {
                    "name": format!("c-{number:04}"), "namespace": "default", "uid": format!("u-{number}"), "generation": 1,
                    "creationTimestamp": "2026-01-01T00:00:00Z",
                },
                "spec": { "content": format!("{number}") },
            });
            transaction.put(StoreKey::new(format!("{STORED}default/c-{number:04}")), value.to_string())
        };
        store.commit(part.iter().fold(Transaction::default(), put)).await.unwrap();
    }
}

/// Waits until a condition holds in the store.
async fn until_stored(what: &str, done: impl AsyncFn() -> bool) {
    let wait = async {
        while !done().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("{what}: it did not happen"));
}

/// The published encodings of the processes, and the common one.
fn said(published: &Value) -> (Vec<&str>, Option<&str>) {
    let entries = published["status"]["storageVersions"].as_array();
    let each = entries.into_iter().flatten().map(|entry| entry["encodingVersion"].as_str().unwrap());
    (each.collect(), published["status"]["commonEncodingVersion"].as_str())
}

async fn processes_go_over_one_by_one_and_another_ends_what_a_killed_one_has_begun(url: String, store: &dyn Store) {
    let main = TestServer::start().await;
    let raw = main.raw();
    fill(store, MANY_STORED).await;
    let mut older = Example::moved(&main, |_| url).await;
    let before = contents(&raw).await;
    assert_eq!(before.len(), MANY_STORED);
    let mut newer = older.another_storing("v2").await;
    until(&raw, PUBLISHED, |found| said(found) == (vec![V1, V2], None)).await;
    // The migration fails because it can't be run. This shows that the servers have processed it.
    let asked = json!({ "metadata": { "name": "asked" }, "spec": { "resource": { "group": "moved.example.com", "resource": "crates" } } });
    raw.post(MIGRATIONS, &asked).await.expect(201);
    let failed = until(&raw, &format!("{MIGRATIONS}/asked"), |found| holds(found, "Failed")).await;
    assert!(failed.to_string().contains("the servers do not agree"), "{failed}");
    // A rollback to the older process, and a new start of the newer one.
    newer.stop().await;
    until(&raw, PUBLISHED, |found| said(found) == (vec![V1], Some(V1))).await;
    assert_eq!(versions(store).await, [V1]);
    newer.start_again().await;
    let last = newer.another().await;
    until(&raw, PUBLISHED, |found| said(found) == (vec![V1, V2, V2], None)).await;
    assert_eq!(versions(store).await, [V1], "nothing is written anew before all agree");
    older.stop().await;
    until_stored("it begins", async || versions(store).await.contains(&V2.to_owned())).await;
    newer.kill().await;
    assert_eq!(versions(store).await, [V1, V2], "it was killed in the middle");
    // The published version of the killed process remains until its lease ends. The other process continues before
    // that.
    until(&raw, MIGRATIONS, |list| migrations_of(list, "crates").iter().any(|it| holds(it, "Succeeded"))).await;
    assert_eq!(versions(store).await, [V2]);
    let list = until(&raw, MIGRATIONS, |list| !migrations_of(list, "crates").is_empty()).await;
    assert_eq!(migrations_of(&list, "crates").len(), 2, "the one that was begun went on: {list}");
    newer.start_again().await;
    for process in [&newer, &last] {
        assert_eq!(contents(&process.direct(&main).await.raw()).await, before, "nothing but the encoding has changed");
    }
}

async fn what_a_process_stores_that_dies_or_stands_still_holds_the_others_up_until_its_lease_ends(
    url: String,
    store: &dyn Store,
) {
    let main = TestServer::start().await;
    let raw = main.raw();
    let mut old = Example::moved(&main, |_| url).await;
    make(&raw, 20).await;
    let new = old.another_storing("v2").await;
    let (old_raw, new_raw) = (old.direct(&main).await.raw(), new.direct(&main).await.raw());
    let before = contents(&new_raw).await;
    until(&raw, PUBLISHED, |found| said(found) == (vec![V1, V2], None)).await;
    // The paused process executes earlier requests when it continues, after the end of its lease.
    old.signal("-STOP").await;
    let late = (0..4).map(|number| {
        let (raw, labelled) = (old_raw.clone(), json!({ "metadata": { "labels": { "late": "yes" } } }));
        tokio::spawn(async move { raw.patch(format!("{CRATES}/c-{number}"), MERGE, &labelled).try_send().await })
    });
    let late: Vec<_> = late.collect();
    until(&raw, PUBLISHED, |found| said(found) == (vec![V2], Some(V2))).await;
    until(&raw, MIGRATIONS, |list| migrations_of(list, "crates").iter().any(|it| holds(it, "Succeeded"))).await;
    assert_eq!(versions(store).await, [V2]);
    old.signal("-CONT").await;
    until_stored("it is back and says so", async || {
        let lies_in_old = versions(store).await.iter().any(|version| version == V1);
        let published = raw.get(PUBLISHED).await.expect(200).json();
        let is_said = said(&published).0.contains(&V1);
        assert!(is_said || !lies_in_old, "it has written what it had not published: {published}");
        is_said
    })
    .await;
    for sent in late {
        let _ = sent.await.unwrap();
    }
    // The process writes once more, and is killed.
    let labelled = json!({ "metadata": { "labels": { "last": "yes" } } });
    until_stored("it writes again", async || {
        let sent = old_raw.patch(format!("{CRATES}/c-9"), MERGE, &labelled).try_send().await;
        sent.is_ok_and(|answer| answer.status == 200)
    })
    .await;
    old.kill().await;
    assert_eq!(versions(store).await, [V1, V2]);
    until(&raw, PUBLISHED, |found| said(found) == (vec![V2], Some(V2))).await;
    until_stored("what it wrote is written anew", async || versions(store).await == [V2]).await;
    let after = contents(&new_raw).await;
    let content = |object: &Value| json!([object["metadata"]["name"], object["metadata"]["uid"], object["spec"]]);
    assert_eq!(after.iter().map(content).collect::<Vec<_>>(), before.iter().map(content).collect::<Vec<_>>());
    assert_eq!(after.iter().filter(|object| object["metadata"]["labels"]["last"] == "yes").count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_requested_migration_runs_on_the_publishing_server() {
    let controllers =
        |config: &mut keelson_server::Config| config.controllers = keelson_server::Switches::parse(["*"]).unwrap();
    let main = TestServer::builder().configure(controllers).start().await;
    let raw = main.raw();
    let crates = Example::moved(&main, |_| "memory:".to_owned()).await;
    make(&raw, 3).await;
    let nowhere = json!({ "namespace": "default", "name": "nowhere" });
    raw.post(SERVICES, &api_service("nobody.example.com", "v1", &nowhere)).await.expect(201);
    for (name, group, resource) in
        [("known", "moved.example.com", "crates"), ("unknown", "nobody.example.com", "things")]
    {
        let asked =
            json!({ "metadata": { "name": name }, "spec": { "resource": { "group": group, "resource": resource } } });
        raw.post(MIGRATIONS, &asked).await.expect(201);
    }
    until(&raw, &format!("{MIGRATIONS}/known"), |found| holds(found, "Succeeded")).await;
    let failed = until(&raw, &format!("{MIGRATIONS}/unknown"), |found| holds(found, "Failed")).await;
    let why = "no server has published in which version it stores things.nobody.example.com";
    assert!(failed.to_string().contains(why), "{failed}");
    drop(crates);
}
