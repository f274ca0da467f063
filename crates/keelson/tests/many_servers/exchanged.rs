//! Tests of a store that is emptied or replaced under a running server. To clients the store is unavailable, and never
//! a cluster without objects.
//!
//! The crates of the engines test the engines alone.

use std::time::Duration;

use keelson_testkit::{EtcdServer, PostgresServer, ProcessServer, Raw, Stream};
use serde_json::Value;
use tempfile::TempDir;

use crate::{CONFIG_MAPS, config_map, is_ours, items, name, revision, until};

const KEELSON: &str = env!("CARGO_BIN_EXE_keelson");

/// The time in which a wrong event would arrive.
const QUIET: Duration = Duration::from_secs(1);

async fn serve(url: &str, data: &TempDir) -> ProcessServer {
    ProcessServer::builder(KEELSON).data_dir(data.path()).arg("--store").arg(url).start().await
}

fn ours(list: &Value) -> Vec<String> {
    items(list).iter().map(name).filter(|name| is_ours(name)).map(str::to_owned).collect()
}

/// Checks that consistent reads and writes are rejected, the cache keeps its objects, and the operator finds the
/// reason.
async fn check_refused(server: &ProcessServer, words: &str) {
    let raw = server.raw();
    until(words, || async {
        let why = raw.get("/readyz/store").await;
        why.status == 500 && why.text().contains(words)
    })
    .await;
    raw.get(CONFIG_MAPS).await.expect(503);
    raw.get(format!("{CONFIG_MAPS}/kept")).await.expect(503);
    raw.post(CONFIG_MAPS, &config_map("mine", 1)).await.expect(503);
    raw.delete(format!("{CONFIG_MAPS}/kept")).await.expect(503);
    let cached = raw.get(format!("{CONFIG_MAPS}?resourceVersion=0")).await.expect(200).json();
    assert_eq!(ours(&cached), ["kept"]);
    assert!(server.log().contains("stop all servers, and start them again"), "{}", server.log());
}

/// Checks that a watch gets no event of the other store.
async fn check_quiet(watch: &mut Stream) {
    let mut quiet = std::pin::pin!(tokio::time::sleep(QUIET));
    loop {
        tokio::select! {
            () = &mut quiet => return,
            event = watch.next_json() => {
                let event = event.expect("the watch lasts");
                assert!(!is_ours(name(&event["object"])), "{event}");
            }
        }
    }
}

async fn watch(raw: &Raw, at: &Value) -> Stream {
    raw.get(format!("{CONFIG_MAPS}?watch=1&resourceVersion={}", revision(at))).stream().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_etcd_that_was_emptied_under_a_server_deletes_nothing() {
    let Some(mut etcd) = EtcdServer::start() else { return };
    let (url, data) = (format!("etcd://{}", etcd.endpoint()), TempDir::new().unwrap());
    let server = serve(&url, &data).await;
    let raw = server.raw();
    let kept = raw.post(CONFIG_MAPS, &config_map("kept", 1)).await.expect(201).json();
    let mut watching = watch(&raw, &kept).await;
    tokio::task::block_in_place(|| {
        etcd.kill();
        etcd.copy_data();
        etcd.remove_data();
        etcd.start_again();
    });
    check_refused(&server, "holds no objects in place of the store").await;
    check_quiet(&mut watching).await;
    // The server has written nothing to the new store, so everything that is there later is from others.
    let all = r#"{"key":"L3JlZ2lzdHJ5Lw==","range_end":"L3JlZ2lzdHJ5MA==","count_only":true}"#;
    let count = tokio::task::block_in_place(|| etcd.ask("/v3/kv/range", all));
    assert!(!count.contains("\"count\""), "{count}");

    tokio::task::block_in_place(|| {
        etcd.kill();
        etcd.put_data_back();
        etcd.start_again();
    });
    until("the server goes on", || async { raw.get(CONFIG_MAPS).await.status == 200 }).await;
    assert_eq!(ours(&raw.get(CONFIG_MAPS).await.expect(200).json()), ["kept"]);
    until("a write", || async { [201, 409].contains(&raw.post(CONFIG_MAPS, &config_map("next", 1)).await.status) })
        .await;
    let event = crate::next_of(&mut watching, "next").await;
    assert_eq!(event["type"], "ADDED", "{event}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_was_recreated_under_a_server_deletes_nothing() {
    let Some(postgres) = PostgresServer::start() else { return };
    let (url, [data, other_data]) = (postgres.create_database("cluster"), [(); 2].map(|()| TempDir::new().unwrap()));
    let server = serve(&url, &data).await;
    let kept = server.raw().post(CONFIG_MAPS, &config_map("kept", 1)).await.expect(201).json();
    let mut watching = watch(&server.raw(), &kept).await;
    tokio::task::block_in_place(|| {
        postgres.sql("postgres", "DROP DATABASE cluster WITH (FORCE)");
        postgres.create_database("cluster");
    });
    check_refused(&server, "holds no tables of keelson in place of the store").await;
    // Another server begins a cluster in the new store.
    let other = serve(&url, &other_data).await;
    other.raw().post(CONFIG_MAPS, &config_map("other", 1)).await.expect(201);
    check_refused(&server, "holds another store in place of the store").await;
    check_quiet(&mut watching).await;
    let list = other.raw().get(CONFIG_MAPS).await.expect(200).json();
    assert_eq!(ours(&list), ["other"]);
}
