//! Tests of servers on a store that answers reads and rejects writes: a full etcd, and a PostgreSQL that is read-only
//! or whose disk fails.
//!
//! `durability/disk.rs` tests a full embedded store.

use std::sync::Arc;
use std::time::Duration;

use keelson_storage_etcd::{EtcdConfig, EtcdStore};
use keelson_storage_sql::{PostgresConfig, PostgresStore};
use keelson_testkit::{EtcdServer, PostgresServer, TestServer, TestServerBuilder};
use serde_json::json;
use tempfile::TempDir;

use crate::{CONFIG_MAPS, config_map, is_ours, items, name, until};

/// A quota of etcd, in bytes, that a few writes fill.
const QUOTA: u64 = 8 << 20;

async fn on_etcd(url: &str, data: &TempDir) -> TestServerBuilder {
    let store = EtcdStore::open(EtcdConfig::from_url(url).unwrap()).await.unwrap();
    let data = data.path().to_owned();
    TestServer::builder().shared_store(Arc::new(store)).configure(|config| {
        config.data_dir = Some(data);
        config.server_id = "one".to_owned();
        config.identity_interval = Duration::from_millis(200);
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_on_a_full_etcd_frees_space_by_deletions() {
    let Some(etcd) = EtcdServer::builder().arg(format!("--quota-backend-bytes={QUOTA}")).start() else { return };
    let (url, data) = (format!("etcd://{}", etcd.endpoint()), TempDir::new().unwrap());
    let mut server = on_etcd(&url, &data).await.start().await;
    let raw = server.raw();
    until("the server is ready", || async { raw.get("/readyz").await.status == 200 }).await;
    let large =
        |number: usize| json!({"metadata": {"name": format!("large-{number}")}, "data": {"text": "x".repeat(400_000)}});
    let mut count = 0;
    let refused = loop {
        let answer = raw.post(CONFIG_MAPS, &large(count)).await;
        if answer.status != 201 {
            break answer;
        }
        count += 1;
    };
    assert!(refused.text().contains("database space exceeded"), "{}", refused.text());
    server.stop().await;

    let server = on_etcd(&url, &data).await.start_unready().await;
    let raw = server.raw();
    let list = raw.get(CONFIG_MAPS).await.expect(200).json();
    assert_eq!(items(&list).iter().filter(|item| is_ours(name(item))).count(), count);
    let refused = raw.post(CONFIG_MAPS, &config_map("new", 1)).await;
    assert!(refused.status >= 500, "{}", refused.text());
    let why = raw.get("/readyz/store").await.expect(200).text();
    assert!(why.contains("etcd has no room") && why.contains("etcdctl alarm disarm"), "{why}");
    for number in 0..count {
        raw.delete(format!("{CONFIG_MAPS}/large-{number}")).await.expect(200);
    }
    let store = EtcdStore::open(EtcdConfig::from_url(&url).unwrap()).await.unwrap();
    let current = keelson_storage::Store::current_revision(&store).await.unwrap();
    keelson_storage::Store::compact(&store, current).await.unwrap();
    // The server registers and writes again.
    until("a write", || async {
        tokio::task::block_in_place(|| etcd.make_room());
        [201, 409].contains(&raw.post(CONFIG_MAPS, &config_map("new", 1)).await.status)
    })
    .await;
    until("the server is ready", || async { raw.get("/readyz").await.status == 200 }).await;
    assert_eq!(raw.get("/readyz/store").await.expect(200).text(), "ok");
    raw.get("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/one").await.expect(200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_on_a_read_only_database_serves_existing_objects() {
    let Some(postgres) = PostgresServer::start() else { return };
    let (url, data) = (postgres.create_database("cluster"), TempDir::new().unwrap());
    let start = async || {
        let store = PostgresStore::open(PostgresConfig::from_url(&url).unwrap()).await.unwrap();
        let data = data.path().to_owned();
        TestServer::builder().shared_store(Arc::new(store)).configure(|config| {
            config.data_dir = Some(data);
            config.registry.store_wait = Duration::from_secs(1);
        })
    };
    let mut server = start().await.start().await;
    let raw = server.raw();
    until("the server is ready", || async { raw.get("/readyz").await.status == 200 }).await;
    raw.post(CONFIG_MAPS, &config_map("kept", 1)).await.expect(201);
    server.stop().await;
    let set = |value: &str| {
        postgres.sql("postgres", &format!("ALTER DATABASE cluster SET default_transaction_read_only = {value}"))
    };
    tokio::task::block_in_place(|| set("on"));
    let server = start().await.start_unready().await;
    let raw = server.raw();
    raw.get(format!("{CONFIG_MAPS}/kept")).await.expect(200);
    raw.get(CONFIG_MAPS).await.expect(200);
    until("it says so", || async {
        let why = raw.get("/readyz/store").await;
        why.status == 500 && why.text().contains("set default_transaction_read_only to off")
    })
    .await;
    tokio::task::block_in_place(|| set("off"));
    until("a write", || async { [201, 409].contains(&raw.post(CONFIG_MAPS, &config_map("new", 1)).await.status) })
        .await;
    until("the server is ready", || async { raw.get("/readyz").await.status == 200 }).await;
}

/// Load balancers must notice this, whichever error the database returns.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_is_not_ready_if_its_database_refuses_writes() {
    let Some(postgres) = PostgresServer::start() else { return };
    let store =
        PostgresStore::open(PostgresConfig::from_url(&postgres.create_database("cluster")).unwrap()).await.unwrap();
    let server = TestServer::builder().shared_store(Arc::new(store)).start().await;
    let raw = server.raw();
    until("the server is ready", || async { raw.get("/readyz").await.status == 200 }).await;
    let sql = |text: &str| tokio::task::block_in_place(|| postgres.sql("cluster", text));
    // The errors for a failed disk, missing memory, corrupt data and a missing privilege.
    for (code, refusal) in [("58030", 503), ("53200", 503), ("XX001", 500), ("42501", 503)] {
        sql(&format!(
            "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS \
             $$ BEGIN RAISE EXCEPTION 'refused by the test' USING ERRCODE = '{code}'; END $$"
        ));
        sql("CREATE TRIGGER refuse BEFORE INSERT ON keelson_history FOR EACH STATEMENT EXECUTE FUNCTION refuse()");
        raw.post(CONFIG_MAPS, &config_map("refused", 1)).await.expect(refusal);
        until("it says so", || async {
            let why = raw.get("/readyz/store").await;
            why.status == 500 && why.text().contains("PostgreSQL takes no writes") && why.text().contains("by the test")
        })
        .await;
        raw.get("/readyz").await.expect(500);
        raw.get(CONFIG_MAPS).await.expect(200);
        sql("DROP TRIGGER refuse ON keelson_history");
        let made =
            || async { raw.post(CONFIG_MAPS, &config_map(&format!("made-{code}").to_lowercase(), 1)).await.status };
        until("a write", || async { [201, 409].contains(&made().await) }).await;
        until("the server is ready", || async { raw.get("/readyz").await.status == 200 }).await;
    }
}
