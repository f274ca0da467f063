//! Measures the start of a cache: fills a SQLite store with pods, overwrites them many times, and starts a cache on the
//! store.
//!
//! `cargo run --release -p keelson-cache --example restart -- 100000 0` creates 100,000 pods and does not overwrite
//! them. The second number is the number of later writes. A third argument names a directory for the store, which the
//! next run uses again.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a program that measures talks, and may panic")]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use keelson_cache::{Cache, CacheConfig, CollectionSpec};
use keelson_codec::FieldPath;
use keelson_meta::{Revision, SystemClock};
use keelson_storage::{Store, StoreKey, Transaction, Write};
use keelson_storage_sql::{SqliteConfig, SqliteStore};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const PREFIX: &str = "/registry/pods/";
/// The approximate size of a pod in bytes.
const POD_BYTES: usize = 4900;
/// The number of writes in one transaction while the store is filled.
const TOGETHER: usize = 500;
/// The step between overwritten pods. It divides no usual number of pods.
const STRIDE: usize = 7919;

fn put(number: usize, write: usize) -> Write {
    let (namespace, app) = (number % 20, number % 500);
    let head = format!(
        r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"p{number:07}","namespace":"ns-{namespace}","uid":"0b5a3c0e-7d3c-4e56-8f0a-{number:012}","generation":1,"labels":{{"app":"a{app}","write":"w{write}"}}}},"spec":{{"nodeName":"n{}","containers":["#,
        number % 1000
    );
    let container = r#"{"name":"main","image":"registry.example.com/team/app:1.2.3","env":[{"name":"A","value":"some text"},{"name":"B","value":"more text"}],"resources":{"limits":{"cpu":"1","memory":"1Gi"}}}"#;
    let count = (POD_BYTES - head.len()) / (container.len() + 1);
    let value = format!("{head}{}]}},\"status\":{{\"phase\":\"Running\"}}}}", vec![container; count].join(","));
    let key = StoreKey::new(format!("{PREFIX}ns-{namespace}/p{number:07}"));
    Write::Put { key, value: value.into(), expires: None }
}

async fn fill(store: &SqliteStore, pods: usize, writes: usize) {
    let numbers: Vec<(usize, usize)> = (0..pods)
        .map(|number| (number, 0))
        .chain((0..writes).map(|write| (write * STRIDE % pods, write + 1)))
        .collect();
    for (place, some) in numbers.chunks(TOGETHER).enumerate() {
        let mut last: Vec<(usize, usize)> = some.to_vec();
        last.sort_unstable();
        last.dedup_by_key(|(number, _)| *number);
        let writes = last.into_iter().map(|(number, write)| put(number, write)).collect();
        store.commit(Transaction { writes, ..Transaction::default() }).await.unwrap();
        if place * TOGETHER < pods && (place + 1) * TOGETHER >= pods {
            // Compaction removes the creates from the history.
            store.compact(store.current_revision().await.unwrap()).await.unwrap();
        }
    }
}

/// Current and peak resident memory in MB.
fn memory() -> (u64, u64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let of = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1000
    };
    (of("VmRSS:"), of("VmHWM:"))
}

#[tokio::main]
async fn main() {
    let mut args = std::env::args().skip(1);
    let pods: usize = args.next().map_or(100_000, |text| text.parse().unwrap());
    let writes: usize = args.next().map_or(0, |text| text.parse().unwrap());
    let directory = args.next().map_or_else(|| std::env::temp_dir().join("keelson-restart"), PathBuf::from);
    let found = directory.exists();
    std::fs::create_dir_all(&directory).unwrap();
    let store = SqliteStore::open(SqliteConfig::directory(&directory)).unwrap();
    if !found {
        let begun = Instant::now();
        fill(&store, pods, writes).await;
        println!("filled in {:?}; run again to measure a start that has done nothing before", begun.elapsed());
        return;
    }
    let spec = CollectionSpec {
        prefix: PREFIX.to_owned(),
        fields: ["spec.nodeName", "status.phase", "spec.schedulerName"].map(FieldPath::parse).to_vec(),
        dispatch: Some(0),
        complete: None,
        typed_items: false,
    };
    let begun = Instant::now();
    let config = CacheConfig::new(Arc::new(SystemClock));
    let cache = Cache::start(Arc::new(store), vec![spec], config).await.unwrap();
    let (now, highest) = memory();
    println!("{} pods ready after {:?}; {now} MB, at most {highest} MB", cache.collections()[0].len(), begun.elapsed());
    let begun = Instant::now();
    cache.wait_for_history(Revision::ZERO, Duration::from_secs(600)).await;
    let (now, highest) = memory();
    let events = cache.collections()[0].stats().events;
    println!("{events} events of history behind that in {:?}; {now} MB, at most {highest} MB", begun.elapsed());
}
