//! Following a store that fails: the tail is opened again, nothing is lost, and what can't be told is admitted.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use common::*;
use futures::StreamExt;
use keelson_cache::{Cache, CacheConfig, Scope};
use keelson_meta::Revision;
use keelson_meta::clock::ManualClock;
use keelson_storage::memory::MemoryStore;
use keelson_storage::{
    CommitError, Committed, KeyValue, RangePage, RangeRequest, Store, StoreError, StoreKey, Tail, Transaction, Write,
};
use tokio::sync::Notify;

/// A memory store whose tails can be cut.
#[derive(Clone, Default)]
struct Flaky {
    inner: MemoryStore,
    cut: Arc<Notify>,
    down: Arc<AtomicBool>,
}

impl Flaky {
    fn fail(&self) {
        self.down.store(true, Ordering::SeqCst);
        self.cut.notify_waiters();
    }

    fn recover(&self) {
        self.down.store(false, Ordering::SeqCst);
    }
}

#[async_trait]
impl Store for Flaky {
    async fn commit(&self, transaction: Transaction) -> Result<Committed, CommitError> {
        self.inner.commit(transaction).await
    }
    async fn get(&self, key: &StoreKey) -> Result<Option<KeyValue>, StoreError> {
        self.inner.get(key).await
    }
    async fn range(&self, request: RangeRequest) -> Result<RangePage, StoreError> {
        self.inner.range(request).await
    }
    async fn count(&self, request: RangeRequest) -> Result<u64, StoreError> {
        self.inner.count(request).await
    }
    async fn current_revision(&self) -> Result<Revision, StoreError> {
        self.inner.current_revision().await
    }
    async fn oldest_revision(&self) -> Result<Revision, StoreError> {
        self.inner.oldest_revision().await
    }
    async fn tail(&self, after: Revision) -> Result<Tail, StoreError> {
        let down = || StoreError::Unavailable("cut".to_owned());
        if self.down.load(Ordering::SeqCst) {
            return Err(down());
        }
        let cut = self.cut.clone();
        let until = Box::pin(async move { cut.notified().await });
        let broken = futures::stream::once(async move { Err(down()) });
        Ok(self.inner.tail(after).await?.take_until(until).chain(broken).boxed())
    }
    async fn compact(&self, oldest: Revision) -> Result<(), StoreError> {
        self.inner.compact(oldest).await
    }
    async fn expire(&self, now: SystemTime) -> Result<usize, StoreError> {
        self.inner.expire(now).await
    }
    async fn check(&self) -> Result<(), StoreError> {
        self.inner.check().await
    }
}

fn body(number: u32) -> Body {
    Body { app: Some(1), node: None, number }
}

async fn settle(mut done: impl FnMut() -> bool) {
    for _ in 0..10_000 {
        if done() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it did not settle");
}

#[tokio::test(start_paused = true)]
async fn a_broken_tail_is_opened_again_and_loses_nothing() {
    let store = Flaky::default();
    let cache = Cache::start(Arc::new(store.clone()), specs(), config()).await.unwrap();
    let mut cursor = pods(&cache).watch(cache.watermark(), Scope::All).unwrap();
    let mut written = Vec::new();
    for round in 0..5 {
        written.push(commit(&store, "a/p1", Some(&body(round))).await);
        store.fail();
        settle(|| cache.healthy().is_err()).await;
        written.push(commit(&store, "a/p2", Some(&body(round))).await);
        let behind = cache.wait_for(written[written.len() - 1], Duration::from_secs(1)).await.unwrap_err();
        assert_eq!(behind.current, cache.watermark());
        store.recover();
        catch_up(&store, &cache).await;
        settle(|| cache.healthy().is_ok()).await;
    }
    let seen: Vec<Revision> = cursor.try_next(100).unwrap().events.iter().map(|event| event.revision).collect();
    assert_eq!(seen, written);
    let stats = cache.stats();
    assert!(stats.tail_restarts >= 5 && stats.reloads == 0);
}

#[tokio::test(start_paused = true)]
async fn what_happened_in_a_compacted_gap_ends_watches_but_not_the_cache() {
    let store = Flaky::default();
    commit(&store, "a/old", Some(&body(0))).await;
    let cache = Cache::start(Arc::new(store.clone()), specs(), config()).await.unwrap();
    let before = cache.watermark();
    let mut of_all = pods(&cache).watch(before, Scope::All).unwrap();
    let mut of_one = pods(&cache).watch(before, Scope::Object { key: "a/rest".to_owned() }).unwrap();
    let waiting = tokio::spawn(async move { of_all.next(1).await.err() });
    tokio::task::yield_now().await;
    store.fail();
    settle(|| cache.healthy().is_err()).await;
    commit(&store, "a/old", None).await;
    let newest = commit(&store, "a/new", Some(&body(1))).await;
    store.compact(newest).await.unwrap();
    store.recover();
    catch_up(&store, &cache).await;
    assert_eq!(cache.stats().reloads, 1);
    let gone = waiting.await.unwrap().expect("a waiting watcher is woken to be told");
    assert_eq!((gone.requested, gone.oldest), (before, newest));
    assert!(of_one.try_next(1).is_err());
    let state = state_of(pods(&cache).snapshot().range("", None));
    assert_eq!(state.keys().collect::<Vec<_>>(), ["a/new"]);
    assert!(pods(&cache).snapshot_at(before).is_err());
    let mut again = pods(&cache).watch(newest, Scope::All).unwrap();
    commit(&store, "a/new", None).await;
    assert_eq!(again.next(10).await.unwrap().events.len(), 1);
}

#[tokio::test]
async fn a_restart_knows_the_history_that_the_store_knows() {
    let store = MemoryStore::new();
    let first = commit(&store, "a/p1", Some(&body(1))).await;
    let second = commit(&store, "a/p1", Some(&body(2))).await;
    let third = commit(&store, "a/p2", Some(&body(3))).await;
    store.compact(first).await.unwrap();
    let cache = start(&store).await;
    assert_eq!(pods(&cache).oldest(), first);
    assert_eq!(pods(&cache).snapshot_at(first).unwrap().get("a/p1").unwrap().revision, first);
    let seen = pods(&cache).watch(first, Scope::All).unwrap().try_next(10).unwrap();
    assert_eq!(seen.events.iter().map(|event| event.revision).collect::<Vec<_>>(), [second, third]);
    assert_eq!(seen.events[0].previous.as_ref().unwrap().revision, first);
}

#[tokio::test]
async fn a_value_that_is_no_object_is_counted_and_hides_its_key() {
    let store = MemoryStore::new();
    let broken = |key: &str| Transaction {
        compares: Vec::new(),
        writes: vec![Write::Put { key: StoreKey::new(key), value: "not json".into(), expires: None }],
    };
    store.commit(broken("/registry/pods/a/broken")).await.unwrap();
    store.commit(broken("/registry/elsewhere/x")).await.unwrap();
    commit(&store, "a/p1", Some(&body(1))).await;
    let cache = start(&store).await;
    store.commit(broken("/registry/pods/a/p1")).await.unwrap();
    catch_up(&store, &cache).await;
    assert!(pods(&cache).is_empty());
    assert_eq!(cache.stats().undecodable, 2);
}

#[tokio::test]
async fn prefixes_that_overlap_are_refused() {
    let mut specs = specs();
    specs[1].prefix = "/registry/pods/a/".to_owned();
    let store = Arc::new(MemoryStore::new());
    assert!(Cache::start(store, specs, config()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn history_older_than_configured_is_dropped() {
    let store = MemoryStore::new();
    let clock = Arc::new(ManualClock::new(SystemTime::UNIX_EPOCH));
    let config = CacheConfig { history: Duration::from_secs(60), ..CacheConfig::new(clock.clone()) };
    let cache = start_with(&store, config).await;
    let begin = cache.watermark();
    let old = commit(&store, "a/p1", Some(&body(1))).await;
    catch_up(&store, &cache).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(pods(&cache).oldest(), begin.min(pods(&cache).oldest()));
    clock.advance(Duration::from_secs(30));
    let young = commit(&store, "a/p1", Some(&body(2))).await;
    catch_up(&store, &cache).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    clock.advance(Duration::from_secs(40));
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(pods(&cache).oldest(), old);
    assert_eq!(pods(&cache).snapshot_at(old).unwrap().get("a/p1").unwrap().revision, old);
    assert_eq!(pods(&cache).stats().events, 1);
    assert_eq!(pods(&cache).snapshot().get("a/p1").unwrap().revision, young);
}

#[tokio::test]
async fn a_dropped_cache_stops_following() {
    let store = Flaky::default();
    let cache = Cache::start(Arc::new(store.clone()), specs(), config()).await.unwrap();
    let pods = pods(&cache).clone();
    drop(cache);
    tokio::task::yield_now().await;
    commit(&store, "a/p1", Some(&body(1))).await;
    tokio::task::yield_now().await;
    assert!(pods.is_empty());
}
