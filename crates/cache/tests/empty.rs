//! The cost of empty collections, of which a cluster may have thousands: memory, and the time of a start.
//!
//! This is a separate program, since memory is counted for the whole process. Times are printed and not asserted,
//! because the machine may be busy.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may panic, and this one tells what it measures")]

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::*;
use keelson_cache::{Cache, CollectionSpec};
use keelson_codec::FieldPath;
use keelson_storage::memory::MemoryStore;
use keelson_storage::{Store, StoreKey, Transaction};
use keelson_storage_sql::{SqliteConfig, SqliteStore};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const COUNT: usize = 3000;
/// The maximum size of an empty collection in bytes.
const MOST_BYTES: usize = 8 << 10;
/// The number of objects in other collections, so that a start reads some data.
const OBJECTS: u32 = 1000;
/// The number of measured starts. The median is printed.
const RUNS: usize = 5;

fn things() -> Vec<CollectionSpec> {
    let one = |number| CollectionSpec {
        prefix: format!("/registry/example.com/things{number:04}/"),
        fields: vec![FieldPath::parse("metadata.name"), FieldPath::parse("spec.color")],
        dispatch: None,
        complete: None,
        typed_items: false,
    };
    (0..COUNT).map(one).collect()
}

fn allocated() -> usize {
    tikv_jemalloc_ctl::epoch::advance().unwrap();
    tikv_jemalloc_ctl::stats::allocated::read().unwrap()
}

#[tokio::test]
async fn an_empty_collection_is_small_and_gives_its_memory_back() {
    let store = MemoryStore::new();
    let cache = start(&store).await;
    let before = allocated();
    let begun = Instant::now();
    let added = cache.add(things()).await.unwrap();
    let took = begun.elapsed();
    let each = (allocated() - before) / COUNT;
    println!("{each} bytes an empty collection; {COUNT} are added in {took:?}");
    assert!(each <= MOST_BYTES, "{each} bytes each");
    drop(added);
    cache.remove(&things().into_iter().map(|spec| spec.prefix).collect::<Vec<_>>()).await;
    let left = allocated().saturating_sub(before) / COUNT;
    println!("{left} bytes are left of each");
    // Tables keep their capacity, but a leaked collection would be kilobytes.
    assert!(left <= MOST_BYTES / 32, "{left} bytes are left of each");
    a_start_loads_them_together().await;
}

/// Measures starts on the SQLite store with and without empty collections. The common scan loads them.
async fn a_start_loads_them_together() {
    let directory = std::env::temp_dir().join(format!("keelson-empty-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(SqliteConfig::directory(&directory)).unwrap());
    let pods_of_it = (0..OBJECTS).fold(Transaction::default(), |transaction, number| {
        let pod = value("a/p", &Body { app: Some(1), node: None, number });
        transaction.put(StoreKey::new(format!("{PODS}a/p{number}")), pod)
    });
    store.commit(pods_of_it).await.unwrap();
    let mut medians = Vec::new();
    for all in [specs(), specs().into_iter().chain(things()).collect()] {
        let count = all.len();
        let mut runs: Vec<Duration> = Vec::new();
        for _ in 0..RUNS {
            let begun = Instant::now();
            let cache = Cache::start(store.clone(), all.clone(), config()).await.unwrap();
            runs.push(begun.elapsed());
            assert_eq!(cache.collections().len(), count);
            assert_eq!(pods(&cache).len(), OBJECTS as usize);
        }
        runs.sort_unstable();
        medians.push(runs[RUNS / 2]);
    }
    println!("a start takes {:?} without them and {:?} with them", medians[0], medians[1]);
    drop(store);
    std::fs::remove_dir_all(&directory).unwrap();
}
