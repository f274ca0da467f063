//! Comparisons of the cache with the store: a collection that differs is reloaded, and an equal one is unchanged.
//!
//! Such differences do not occur by themselves, so the tests create them by dropping tail events.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::*;
use keelson_cache::{Cache, CacheConfig, Scope};
use keelson_storage::faulty::{Fault, FaultyStore};
use keelson_storage::memory::MemoryStore;
use keelson_storage::{StoreKey, Transaction, Write};

const INTERVAL: Duration = Duration::from_secs(60);

fn body(number: u32) -> Body {
    Body { app: Some(1), node: None, number }
}

/// A cache that is compared with its store, with 1,200 pods: several pages.
async fn start() -> (FaultyStore, Arc<Cache>) {
    let (store, _, cache) = start_over_memory().await;
    (store, cache)
}

/// A cache with its store and the inner one, which has no faults.
async fn start_over_memory() -> (FaultyStore, MemoryStore, Arc<Cache>) {
    let inner = MemoryStore::new();
    let store = FaultyStore::new(Arc::new(inner.clone()));
    for number in 0..1200 {
        commit(&store, &format!("a/p{number:04}"), Some(&body(number))).await;
    }
    let config = CacheConfig { check_interval: Some(INTERVAL), ..config() };
    let cache = Cache::start(Arc::new(store.clone()), specs(), config).await.unwrap();
    (store, inner, cache)
}

async fn swallow(store: &FaultyStore, key: &str, written: Option<&Body>) {
    store.swallow(StoreKey::new(format!("/registry/pods/{key}")));
    commit(store, key, written).await;
}

/// After any lost event, the collection equals the store again, and its watches end.
async fn check_repaired(key: &str, written: Option<&Body>) {
    let (store, cache) = start().await;
    let others = cache.collection(NODES).unwrap().watch(cache.watermark(), Scope::All).unwrap();
    let mut watch = pods(&cache).watch(cache.watermark(), Scope::All).unwrap();
    swallow(&store, key, written).await;
    let newest = commit(&store, "b/later", Some(&body(1))).await;
    catch_up(&store, &cache).await;
    assert_eq!(watch.next(10).await.unwrap().events.len(), 1, "the lost event is told to nobody");
    let shown = |cache: &Cache| pods(cache).get(key).map(|entry| body_of(&entry));
    assert_ne!(shown(&cache), written.cloned());

    let gone = watch.next(10).await.err().expect("a watch that has missed something ends");
    assert_eq!(gone.oldest, newest);
    assert_eq!(shown(&cache), written.cloned());
    assert_eq!((cache.stats().repairs, cache.stats().reloads), (1, 0));
    assert!(others.delivered_up_to().is_some(), "watches of other collections go on");
    // The collection follows the store as before.
    let mut again = pods(&cache).watch(newest, Scope::All).unwrap();
    commit(&store, key, Some(&body(7))).await;
    assert_eq!(again.next(10).await.unwrap().events.len(), 1);
    tokio::time::sleep(INTERVAL * 3).await;
    assert_eq!(cache.stats().repairs, 1, "what is equal is left alone");
}

/// While a slow store reloads a collection, the watches of this collection whose scopes are unaffected, and those of
/// other collections, still get events.
#[tokio::test(start_paused = true)]
async fn a_collection_reload_does_not_delay_events_of_others() {
    let (store, inner, cache) = start_over_memory().await;
    let lost = "a/p0700";
    swallow(&store, lost, Some(&body(5000))).await;
    catch_up(&store, &cache).await;
    let newest = cache.watermark();
    store.set_calls(Fault::Slow(Duration::from_secs(20)));
    let mut nodes = cache.collection(NODES).unwrap().watch(newest, Scope::All).unwrap();
    let mut number = 0;
    while cache.stats().repairs == 0 {
        number += 1;
        assert!(number < 1000, "it was never loaded anew");
        commit(&inner, "a/p0001", Some(&body(number))).await;
        let node = StoreKey::new(format!("{NODES}n1"));
        let write = Write::Put { key: node, value: value("n1", &body(number)), expires: None };
        keelson_storage::Store::commit(&inner, Transaction { writes: vec![write], ..Transaction::default() })
            .await
            .unwrap();
        let written = tokio::time::Instant::now();
        assert_eq!(nodes.next(10).await.unwrap().events.len(), 1);
        assert!(written.elapsed() < Duration::from_secs(1), "it was told after {:?}", written.elapsed());
        let shown = pods(&cache).get("a/p0001").map(|entry| body_of(&entry));
        assert_eq!(shown, Some(body(number)), "readers see no older state at any time");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let shown = |key: &str| pods(&cache).get(key).map(|entry| body_of(&entry));
    assert_eq!((shown(lost), shown("a/p0001")), (Some(body(5000)), Some(body(number))));
}

#[tokio::test(start_paused = true)]
async fn a_lost_change_is_found_and_mended() {
    check_repaired("a/p0700", Some(&body(5000))).await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_creation_is_found_and_mended() {
    check_repaired("a/p0700-new", Some(&body(5000))).await;
    check_repaired("z/last", Some(&body(5000))).await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_deletion_is_found_and_mended() {
    check_repaired("a/p0000", None).await;
    check_repaired("a/p1199", None).await;
}

#[tokio::test(start_paused = true)]
async fn a_cache_that_shows_what_the_store_has_is_left_alone() {
    let (store, cache) = start().await;
    let broken = Write::Put { key: StoreKey::new("/registry/pods/a/broken"), value: "no object".into(), expires: None };
    keelson_storage::Store::commit(&store, Transaction { writes: vec![broken], ..Transaction::default() })
        .await
        .unwrap();
    for round in 0..200 {
        commit(&store, &format!("a/p{:04}", round * 5), Some(&body(round))).await;
        tokio::time::sleep(INTERVAL / 50).await;
    }
    assert!(cache.stats().checks >= 6, "{:?}", cache.stats());
    assert_eq!(cache.stats().repairs, 0);
    // A failed comparison is repeated later.
    let before = cache.stats().checks;
    store.set_calls(Fault::Error);
    tokio::time::sleep(INTERVAL * 2).await;
    assert_eq!(cache.stats().checks, before);
    store.set_calls(Fault::None);
    tokio::time::sleep(INTERVAL * 2).await;
    assert!(cache.stats().checks > before);
    assert_eq!(cache.stats().repairs, 0);
}

/// The store loses rows after the comparison, before or while the collection is loaded anew.
#[tokio::test(start_paused = true)]
async fn a_store_that_loses_rows_during_a_reload_takes_nothing_from_the_cache() {
    let (store, cache) = start().await;
    swallow(&store, "a/p0007", None).await;
    commit(&store, "b/later", Some(&body(1))).await;
    catch_up(&store, &cache).await;
    store.lose_rows_after(1);
    tokio::time::sleep(INTERVAL * 3).await;
    assert!(pods(&cache).get("a/p0007").is_some());
    assert_eq!(cache.stats().repairs, 0);
    store.lose_rows(false);
    tokio::time::sleep(INTERVAL * 3).await;
    assert!(pods(&cache).get("a/p0007").is_none());
    assert_eq!(cache.stats().repairs, 1);
}

/// The cache keeps objects that a damaged store has lost, so that clients do not see them as deleted.
#[tokio::test(start_paused = true)]
async fn nothing_is_taken_from_the_cache_that_the_store_has_lost() {
    let (store, cache) = start().await;
    store.lose_rows(true);
    // As after a row was deleted by hand: the store lacks the object, and there is no event.
    swallow(&store, "a/p0007", None).await;
    let newest = commit(&store, "b/later", Some(&body(1))).await;
    catch_up(&store, &cache).await;
    let mut watch = pods(&cache).watch(newest, Scope::All).unwrap();
    tokio::time::sleep(INTERVAL * 3).await;
    assert!(pods(&cache).get("a/p0007").is_some());
    assert_eq!(cache.stats().repairs, 0);
    assert!(watch.try_next(10).unwrap().events.is_empty(), "the watch goes on");
    store.lose_rows(false);
    tokio::time::sleep(INTERVAL * 3).await;
    assert!(pods(&cache).get("a/p0007").is_none());
}
