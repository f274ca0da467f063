//! What collections cost that hold nothing: a cluster may have thousands of them.
//!
//! Alone in its program, since memory is counted of the whole process.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::time::{Duration, Instant};

use common::*;
use keelson_cache::{Cache, CollectionSpec};
use keelson_codec::FieldPath;
use keelson_storage::memory::MemoryStore;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const COUNT: usize = 3000;
/// What an empty collection may take, in bytes.
const MOST_BYTES: usize = 8 << 10;
/// What so many may add to a start: 100 ms, with room for a build without optimization on a machine that others use.
const LONGEST_START: Duration = Duration::from_secs(1);

fn things() -> Vec<CollectionSpec> {
    let one = |number| CollectionSpec {
        prefix: format!("/registry/example.com/things{number:04}/"),
        fields: vec![FieldPath::parse("metadata.name"), FieldPath::parse("spec.color")],
        dispatch: None,
        namespaced: true,
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
async fn an_empty_collection_is_small_and_starts_fast() {
    let store = MemoryStore::new();
    let cache = start(&store).await;
    let before = allocated();
    let begun = Instant::now();
    let added = cache.add(things()).await.unwrap();
    let took = begun.elapsed();
    let each = (allocated() - before) / COUNT;
    println!("{each} bytes an empty collection; {COUNT} are added in {took:?}");
    assert!(each <= MOST_BYTES, "{each} bytes each");
    assert!(took <= LONGEST_START, "{took:?}");
    drop(added);
    cache.remove(&things().into_iter().map(|spec| spec.prefix).collect::<Vec<_>>()).await;
    let left = allocated().saturating_sub(before) / COUNT;
    assert!(left <= 64, "{left} bytes are left of each");

    let begun = Instant::now();
    let many = Cache::start(std::sync::Arc::new(store.clone()), things(), config()).await.unwrap();
    let took = begun.elapsed();
    assert_eq!(many.collections().len(), COUNT);
    assert!(took <= LONGEST_START, "{took:?}");
}
