//! Migrations in servers written with the library: objects that lie in their stores in an older version than they write today are
//! written anew, by one of the processes that share a store, and the main server tells how far that is.

use keelson_storage::{RangeRequest, Store, StoreKey};
use keelson_storage_sql::{PostgresConfig, PostgresStore, SqliteConfig, SqliteStore};
use keelson_testkit::{PostgresServer, Raw, TestServer};
use serde_json::{Value, json};

use crate::example::Example;
use crate::{SERVICES, api_service, until};

/// How many objects there are: many steps of a migration.
const MANY: usize = 300;
/// Where the objects are, and where they are stored.
const CRATES: &str = "/apis/moved.example.com/v1/namespaces/default/crates";
const STORED: &str = "/registry/moved.example.com/crates/";
/// Where the main server has what is published of them.
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

/// What clients see of the objects, but for their revisions.
async fn contents(raw: &Raw) -> Vec<Value> {
    let mut list = until(raw, CRATES, |list| list["kind"] == "CrateList").await;
    let items = list["items"].as_array_mut().unwrap();
    items.iter_mut().for_each(|item| drop(item["metadata"].as_object_mut().unwrap().remove("resourceVersion")));
    std::mem::take(items)
}

/// The versions in which the objects lie in a store, each once.
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

/// The migrations of a resource.
fn of<'l>(list: &'l Value, resource: &str) -> Vec<&'l Value> {
    let all = list["items"].as_array().into_iter().flatten();
    all.filter(|migration| migration["spec"]["resource"]["resource"] == *resource).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_it_stores_in_an_older_version_is_written_anew_by_itself_also_when_it_is_killed_meanwhile() {
    let main = TestServer::start().await;
    let raw = main.raw();
    let mut crates = Example::moved(&main, |directory| format!("sqlite:{}", directory.display())).await;
    make(&raw, MANY).await;
    let before = contents(&raw).await;
    crates.stop().await;
    crates.store_in("v2");
    crates.start_again().await;
    until(&raw, PUBLISHED, |found| found["status"]["commonEncodingVersion"] == "moved.example.com/v2").await;
    until(&raw, MIGRATIONS, |list| !of(list, "crates").is_empty()).await;
    crates.crash().await;
    let list = until(&raw, MIGRATIONS, |list| of(list, "crates").iter().any(|it| holds(it, "Succeeded"))).await;
    let found = of(&list, "crates");
    assert_eq!(found.len(), 1, "the one that was begun goes on: {list}");
    assert_eq!(found[0]["metadata"]["labels"]["keelson.io/automatic"], "true");
    assert_eq!(found[0]["metadata"]["annotations"]["keelson.io/objects-done"], MANY.to_string());
    assert_eq!(contents(&raw).await, before, "nothing but the encoding has changed");
    crates.stop().await;
    let store = SqliteStore::open(SqliteConfig::directory(crates.directory())).unwrap();
    assert_eq!(versions(&store).await, ["moved.example.com/v2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_written_anew_before_all_processes_on_a_store_agree() {
    let Some(postgres) = PostgresServer::shared() else { return };
    let main = TestServer::start().await;
    let raw = main.raw();
    let url = postgres.create_database("moved");
    let store = PostgresStore::open(PostgresConfig::from_url(&url).unwrap()).await.unwrap();
    let mut older = Example::moved(&main, |_| url).await;
    make(&raw, 20).await;
    let newer = older.another_storing("v2").await;
    let both = |found: &Value| found["status"]["storageVersions"].as_array().is_some_and(|all| all.len() == 2);
    let published = until(&raw, PUBLISHED, both).await;
    assert_eq!(published["status"].get("commonEncodingVersion"), None, "{published}");
    // It ends as one that can't be run, which shows that the servers have looked.
    let asked = json!({ "metadata": { "name": "asked" }, "spec": { "resource": { "group": "moved.example.com", "resource": "crates" } } });
    raw.post(MIGRATIONS, &asked).await.expect(201);
    let failed = until(&raw, &format!("{MIGRATIONS}/asked"), |found| holds(found, "Failed")).await;
    assert!(failed.to_string().contains("the servers do not agree"), "{failed}");
    assert_eq!(versions(&store).await, ["moved.example.com/v1"]);
    older.stop().await;
    until(&raw, MIGRATIONS, |list| of(list, "crates").iter().any(|it| holds(it, "Succeeded"))).await;
    assert_eq!(versions(&store).await, ["moved.example.com/v2"]);
    drop(newer);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_migration_that_somebody_asks_for_is_run_by_the_server_that_publishes_the_resource() {
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
