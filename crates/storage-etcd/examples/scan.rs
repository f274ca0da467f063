//! Measures a read of all objects of an etcd, as a server does it at its start.
//!
//! `env $(cargo xtask servers) cargo run --release -p keelson-storage-etcd --example scan [OBJECTS [ROUNDS]]`. Each
//! object has about 5 KB and is written once per round, since earlier versions slow etcd down.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a measurement talks, and fails by a panic")]

use std::sync::Arc;
use std::time::Instant;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use keelson_storage::{ScanRequest, Store, StoreKey, Transaction};
use keelson_storage_etcd::{EtcdConfig, EtcdStore};
use keelson_teststores::EtcdServer;

/// The number of concurrent writes.
const IN_FLIGHT: usize = 64;
/// The number of objects in a transaction.
const BATCH: u64 = 20;
const NAMESPACES: u64 = 40;
/// The names of empty collections before and after the full one.
const OTHERS: [&str; 4] = ["configmaps", "events", "secrets", "services/specs"];

fn key(number: u64) -> StoreKey {
    StoreKey::new(format!("/registry/pods/namespace-{}/pod-{number}", number % NAMESPACES))
}

fn object(number: u64, round: u64) -> Vec<u8> {
    format!(r#"{{"kind":"Pod","number":{number},"round":{round},"rest":"{}"}}"#, "some text ".repeat(485)).into_bytes()
}

async fn fill(store: &EtcdStore, objects: u64, rounds: u64) {
    for round in 0..rounds {
        let writes = (0..objects.div_ceil(BATCH)).map(|batch| {
            let numbers = batch * BATCH..((batch + 1) * BATCH).min(objects);
            let all = numbers.fold(Transaction::default(), |all, number| all.put(key(number), object(number, round)));
            store.commit(all)
        });
        stream::iter(writes).buffer_unordered(IN_FLIGHT).try_for_each(async |_| Ok(())).await.unwrap();
    }
}

#[tokio::main]
async fn main() {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<u64>().unwrap());
    let (objects, rounds) = (args.next().unwrap_or(100_000), args.next().unwrap_or(1));
    let server = EtcdServer::builder().arg("--quota-backend-bytes=20000000000").arg("--unsafe-no-fsync").start();
    let server = server.expect("KEELSON_ETCD names an etcd");
    let url = format!("etcd://{}/registry", server.endpoint());
    let store: Arc<EtcdStore> = Arc::new(EtcdStore::open(EtcdConfig::from_url(&url).unwrap()).await.unwrap());
    let began = Instant::now();
    fill(&store, objects, rounds).await;
    println!("{objects} objects were written {rounds} times in {:?}", began.elapsed());
    let range = |plural: &str| {
        let prefix = format!("/registry/{plural}/");
        (StoreKey::new(&*prefix), StoreKey::prefix_end(&prefix))
    };
    for _ in 0..3 {
        let revision = store.current_revision().await.unwrap();
        let ranges = OTHERS.into_iter().chain(["pods"]).map(range).collect();
        let began = Instant::now();
        let mut pages = store.scan(ScanRequest { ranges, revision }).unwrap();
        let (mut found, mut bytes, mut count) = (0, 0, 0);
        while let Some(page) = pages.try_next().await.unwrap() {
            found += page.len();
            bytes += page.iter().map(|entry| entry.value.len()).sum::<usize>();
            count += 1;
        }
        println!("{found} objects, {} MB, in {count} pages: {:?}", bytes / 1_000_000, began.elapsed());
    }
}
