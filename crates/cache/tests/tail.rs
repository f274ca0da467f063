//! Tests of a cache that follows a failing store: the tail is reopened, no event is lost, and a gap ends the watches.
//!
//! The in-memory store fails on request. The crates of the other engines test those.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use common::*;
use keelson_cache::{AddError, Cache, CacheConfig, Scope};
use keelson_codec::DecodeError;
use keelson_meta::Revision;
use keelson_meta::clock::ManualClock;
use keelson_storage::faulty::{Fault, FaultyStore};
use keelson_storage::memory::MemoryStore;
use keelson_storage::{
    CommitError, Committed, KeyValue, RangePage, RangeRequest, Seal, Store, StoreError, StoreKey, Tail, Transaction,
    Write,
};

fn faulty() -> FaultyStore {
    FaultyStore::new(Arc::new(MemoryStore::new()))
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
    let store = faulty();
    let cache = Cache::start(Arc::new(store.clone()), specs(), config()).await.unwrap();
    let mut cursor = pods(&cache).watch(cache.watermark(), Scope::All).unwrap();
    let mut written = Vec::new();
    for round in 0..5 {
        written.push(commit(&store, "a/p1", Some(&body(round))).await);
        store.set_tails(Fault::Error);
        settle(|| cache.healthy().is_err()).await;
        written.push(commit(&store, "a/p2", Some(&body(round))).await);
        let behind = cache.wait_for(written[written.len() - 1], Duration::from_secs(1)).await.unwrap_err();
        assert_eq!(behind.current, cache.watermark());
        store.set_tails(Fault::None);
        catch_up(&store, &cache).await;
        settle(|| cache.healthy().is_ok()).await;
    }
    let seen: Vec<Revision> = cursor.try_next(100).unwrap().events.iter().map(|event| event.revision).collect();
    assert_eq!(seen, written);
    let stats = cache.stats();
    assert!(stats.tail_restarts >= 5 && stats.reloads == 0);
}

#[tokio::test(start_paused = true)]
async fn a_compacted_gap_ends_watches_but_not_the_cache() {
    let store = faulty();
    commit(&store, "a/old", Some(&body(0))).await;
    let cache = Cache::start(Arc::new(store.clone()), specs(), config()).await.unwrap();
    let before = cache.watermark();
    let mut of_all = pods(&cache).watch(before, Scope::All).unwrap();
    let mut of_one = pods(&cache).watch(before, Scope::Object { key: "a/rest".to_owned() }).unwrap();
    let waiting = tokio::spawn(async move { of_all.next(1).await.err() });
    tokio::task::yield_now().await;
    store.set_tails(Fault::Error);
    settle(|| cache.healthy().is_err()).await;
    commit(&store, "a/old", None).await;
    let newest = commit(&store, "a/new", Some(&body(1))).await;
    store.compact(newest).await.unwrap();
    store.set_tails(Fault::None);
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
    let cache = start_filled(&store, config()).await;
    assert_eq!(pods(&cache).oldest(), first);
    assert_eq!(pods(&cache).snapshot_at(first).unwrap().get("a/p1").unwrap().revision, first);
    let seen = pods(&cache).watch(first, Scope::All).unwrap().try_next(10).unwrap();
    assert_eq!(seen.events.iter().map(|event| event.revision).collect::<Vec<_>>(), [second, third]);
    assert_eq!(seen.events[0].previous.as_ref().unwrap().revision, first);
}

/// In this test, tails that read history deliver nothing until the cache serves.
#[tokio::test]
async fn a_start_waits_for_the_objects_and_not_for_what_led_to_them() {
    let store = faulty();
    let first = commit(&store, "a/p1", Some(&body(1))).await;
    let second = commit(&store, "a/p1", Some(&body(2))).await;
    store.set_tails(Fault::Hang);
    let starting = Cache::start(Arc::new(store.clone()), specs(), config());
    let cache = tokio::time::timeout(PATIENCE, starting).await.expect("it starts").unwrap();
    assert_eq!(pods(&cache).get("a/p1").unwrap().revision, second);
    assert!(pods(&cache).snapshot_at(first).is_err(), "nobody has told it yet");
    store.set_tails(Fault::None);
    filled(&cache).await;
    assert_eq!(pods(&cache).snapshot_at(first).unwrap().get("a/p1").unwrap().revision, first);
}

#[tokio::test]
async fn a_value_that_is_no_object_is_counted_and_hides_its_key() {
    let store = MemoryStore::new();
    let broken = |key: &str| Transaction {
        writes: vec![Write::Put { key: StoreKey::new(key), value: "not json".into(), expires: None }],
        ..Transaction::default()
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

/// The cache hides values that kube-apiserver encrypted, and protobuf values of an unknown kind, but does not treat
/// their objects as absent.
#[tokio::test]
async fn a_value_that_can_not_be_read_is_known_until_it_goes_or_can_be_read() {
    let store = MemoryStore::new();
    let values = [("a/protobuf", &b"k8s\0\x0a\x02v1"[..]), ("b/encrypted", b"k8s:enc:aescbc:v1:key1:\x07")];
    for (key, value) in values {
        let key = StoreKey::new(format!("/registry/pods/{key}"));
        store.commit(Transaction::default().put(key, value)).await.unwrap();
    }
    let cache = start(&store).await;
    assert!(pods(&cache).is_empty());
    assert!(matches!(pods(&cache).unreadable("a/protobuf"), Some(DecodeError::Protobuf(_))));
    assert_eq!(pods(&cache).unreadable("b/encrypted"), Some(DecodeError::Encrypted));
    assert_eq!(pods(&cache).unreadable("a/nothing"), None);
    assert_eq!(["a/", "b/", "c/", ""].map(|prefix| pods(&cache).count_unreadable(prefix)), [1, 1, 0, 2]);

    commit(&store, "a/protobuf", Some(&body(1))).await;
    commit(&store, "b/encrypted", None).await;
    let late = Transaction::default().put(StoreKey::new("/registry/pods/c/late"), "k8s\0");
    store.commit(late).await.unwrap();
    catch_up(&store, &cache).await;
    assert_eq!(pods(&cache).len(), 1);
    assert_eq!(pods(&cache).count_unreadable(""), 1);
    assert!(matches!(pods(&cache).unreadable("c/late"), Some(DecodeError::Protobuf(_))));
}

#[tokio::test]
async fn prefixes_that_overlap_are_refused() {
    let mut specs = specs();
    specs[1].prefix = "/registry/pods/a/".to_owned();
    let store = Arc::new(MemoryStore::new());
    assert!(matches!(Cache::start(store, specs, config()).await, Err(AddError::Overlap(_))));
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
    let store = faulty();
    let cache = Cache::start(Arc::new(store.clone()), specs(), config()).await.unwrap();
    let pods = pods(&cache).clone();
    drop(cache);
    tokio::task::yield_now().await;
    commit(&store, "a/p1", Some(&body(1))).await;
    tokio::task::yield_now().await;
    assert!(pods.is_empty());
}

/// A dead connection looks like an idle store until the cache reads the store's newest revision.
#[tokio::test(start_paused = true)]
async fn a_tail_that_falls_silent_is_opened_again() {
    let store = faulty();
    let cache = Cache::start(Arc::new(store.clone()), specs(), config()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(cache.stats().tail_restarts, 0, "a store at rest is well");
    store.set_tails(Fault::Hang);
    let newest = commit(&store, "a/p1", Some(&body(1))).await;
    settle(|| cache.healthy().is_err()).await;
    let error = cache.healthy().unwrap_err().to_string();
    assert!(error.contains(&format!("the newest is {newest}")), "{error}");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(cache.healthy().is_err(), "a tail that can be opened and tells nothing is not well");
    assert_eq!(cache.stats().lag, newest.get() - cache.watermark().get());
    store.set_tails(Fault::None);
    catch_up(&store, &cache).await;
    settle(|| cache.healthy().is_ok()).await;
    assert_eq!(cache.stats().lag, 0);
}

/// The cache also cancels calls that a store never answers.
#[tokio::test(start_paused = true)]
async fn everything_recovers_from_a_store_that_hung() {
    let store = faulty();
    let cache = Cache::start(Arc::new(store.clone()), specs(), config()).await.unwrap();
    store.set(Fault::Error);
    settle(|| cache.healthy().is_err()).await;
    store.set(Fault::Hang);
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert!(cache.healthy().is_err());
    store.set(Fault::None);
    commit(&store, "a/p1", Some(&body(1))).await;
    catch_up(&store, &cache).await;
    settle(|| cache.healthy().is_ok()).await;
    assert_eq!(pods(&cache).len(), 1);
}

/// A store that compacts to the newest revision before each of the next range reads, as a slow load may experience.
/// Before the first read of old history, it compacts to a given revision.
#[derive(Default)]
struct Compacts {
    inner: MemoryStore,
    left: AtomicUsize,
    before_tail: Mutex<Option<Revision>>,
}

#[async_trait]
impl Store for Compacts {
    async fn commit(&self, transaction: Transaction) -> Result<Committed, CommitError> {
        self.inner.commit(transaction).await
    }
    async fn get(&self, key: &StoreKey) -> Result<Option<KeyValue>, StoreError> {
        self.inner.get(key).await
    }
    async fn range(&self, request: RangeRequest) -> Result<RangePage, StoreError> {
        if self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
            let newest = commit(&self.inner, "a/busy", Some(&body(0))).await;
            self.inner.compact(newest).await?;
        }
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
        if after < self.inner.current_revision().await? {
            let compacted = self.before_tail.lock().unwrap().take();
            if let Some(oldest) = compacted {
                self.inner.compact(oldest).await?;
            }
        }
        self.inner.tail(after).await
    }
    async fn compact(&self, oldest: Revision) -> Result<(), StoreError> {
        self.inner.compact(oldest).await
    }
    async fn expire(&self, now: SystemTime) -> Result<usize, StoreError> {
        self.inner.expire(now).await
    }
    fn seal(&self, key: &str) -> Seal {
        self.inner.seal(key)
    }
    async fn verify(&self) -> Result<(), StoreError> {
        self.inner.verify().await
    }
    async fn check(&self) -> Result<(), StoreError> {
        self.inner.check().await
    }
}

/// A compaction during the backfill does not affect the rest of the history.
#[tokio::test]
async fn the_backfill_continues_during_compaction() {
    let inner = MemoryStore::new();
    let mut written = Vec::new();
    for number in 0..10 {
        written.push(commit(&inner, "a/p", Some(&body(number))).await);
    }
    let before_tail = Mutex::new(Some(written[4]));
    let store = Arc::new(Compacts { inner: inner.clone(), before_tail, ..Compacts::default() });
    let cache = Cache::start(store, specs(), config()).await.unwrap();
    filled(&cache).await;
    assert_eq!(inner.oldest_revision().await.unwrap(), written[4]);
    let mut cursor = pods(&cache).watch(written[4], Scope::All).expect("the store knows what happened then");
    let seen: Vec<Revision> = cursor.try_next(100).unwrap().events.iter().map(|event| event.revision).collect();
    assert_eq!(seen, written[5..]);
}

#[tokio::test]
async fn a_start_that_compactions_overtake_begins_again() {
    for compactions in [1, 3, 5] {
        let inner = MemoryStore::new();
        for number in 0..20 {
            commit(&inner, &format!("a/p{number}"), Some(&body(number))).await;
        }
        let store =
            Arc::new(Compacts { inner: inner.clone(), left: AtomicUsize::new(compactions), ..Compacts::default() });
        let cache = Cache::start(store, specs(), config()).await.unwrap();
        catch_up(&inner, &cache).await;
        filled(&cache).await;
        assert_eq!(pods(&cache).len(), 21, "after {compactions} compactions");
        assert!(pods(&cache).oldest() >= inner.oldest_revision().await.unwrap());
    }
    let endless = Arc::new(Compacts { left: AtomicUsize::new(usize::MAX), ..Compacts::default() });
    assert!(matches!(
        Cache::start(endless, specs(), config()).await,
        Err(AddError::Store(StoreError::Compacted { .. }))
    ));
}

/// During writes, the load reads many pages and the backfill many windows. The state at every revision since the oldest
/// must equal the model.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_beside_writers_knows_every_revision() {
    let store = MemoryStore::new();
    let mut model = Model::default();
    let write = async |model: &mut Model, number: u32| {
        let key = format!("a/p{:04}", number % 700);
        let revision = commit(&store, &key, Some(&body(number))).await;
        model.apply(revision, &key, Some(body(number)));
        revision
    };
    for number in 0..700 {
        write(&mut model, number).await;
    }
    store.compact(store.current_revision().await.unwrap()).await.unwrap();
    for number in 700..20_000 {
        write(&mut model, number).await;
    }
    let starting = tokio::spawn({
        let store = store.clone();
        async move { start(&store).await }
    });
    let mut number = 20_000;
    while !starting.is_finished() {
        write(&mut model, number).await;
        number += 1;
        tokio::task::yield_now().await;
    }
    let cache = starting.await.unwrap();
    for _ in 0..500 {
        write(&mut model, number).await;
        number += 1;
        tokio::task::yield_now().await;
    }
    catch_up(&store, &cache).await;
    filled(&cache).await;
    let oldest = store.oldest_revision().await.unwrap();
    assert_eq!(pods(&cache).oldest(), oldest);
    for revision in (oldest.get()..=cache.watermark().get()).step_by(977).map(Revision::new) {
        let snapshot = pods(&cache).snapshot_at(revision).unwrap();
        assert_eq!(state_of(snapshot.range("", None)), model.at(revision), "at {revision}");
    }
    let (mut cursor, mut seen) = (pods(&cache).watch(oldest, Scope::All).unwrap(), Vec::new());
    while cursor.delivered_up_to().is_none() {
        seen.extend(cursor.try_next(usize::MAX).unwrap().events.iter().map(|event| happened(event)));
    }
    assert!(seen == model.events_after(oldest, &Scope::All));
}
