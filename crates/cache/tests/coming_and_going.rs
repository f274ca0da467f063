//! Collections added to, replaced in and removed from a running cache, with concurrent writes, watches and reads.
//!
//! No watch may lose an event, and no collection may be behind the watermark. `empty.rs` measures the cost of empty
//! collections.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::*;
use keelson_cache::{AddError, Cache, CollectionSpec, Scope};
use keelson_codec::FieldPath;
use keelson_storage::faulty::{Fault, FaultyStore};
use keelson_storage::memory::MemoryStore;
use keelson_storage::{Store, StoreKey, Transaction};

fn body(number: u32) -> Body {
    Body { app: Some(1), node: None, number }
}

/// The specification of a collection, by the number of its kind.
fn things(number: usize) -> CollectionSpec {
    let prefix = format!("/registry/things{number:04}.example.com/");
    let fields = vec![FieldPath::parse("data.number")];
    CollectionSpec { prefix, fields, dispatch: None, complete: None, typed_items: false }
}

async fn put(store: &dyn Store, key: String, number: u32) {
    let transaction = Transaction::default().put(StoreKey::new(key), value("a/b", &body(number)));
    store.commit(transaction).await.unwrap();
}

/// Adds many collections, each with an object that is written repeatedly during the addition. When a collection becomes
/// visible, it must have all writes up to the watermark.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_collections_are_added_while_writers_run() {
    const COUNT: usize = 3000;
    const WRITTEN: usize = 100;
    let store = MemoryStore::new();
    let cache = start(&store).await;
    // ORDER: the watch starts before the first write, so that it gets every write.
    let mut watch = pods(&cache).watch(cache.watermark(), Scope::All).unwrap();
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let writer = tokio::spawn({
        let (store, stop) = (store.clone(), stop.clone());
        async move {
            let mut round = 0;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                for number in (0..COUNT).step_by(COUNT / WRITTEN) {
                    put(&store, format!("{}a/b", things(number).prefix), round).await;
                }
                commit(&store, "a/p", Some(&body(round))).await;
                round += 1;
                // A durable store writes at about this rate.
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            round
        }
    });
    // All at once, in batches, and one by one.
    let added = cache.add((0..2000).map(things).collect()).await.unwrap();
    assert!(added.iter().enumerate().all(|(number, one)| one.prefix() == things(number).prefix));
    cache.add((2000..2900).map(things).collect()).await.unwrap();
    for number in 2900..COUNT {
        let one = cache.add(vec![things(number)]).await.unwrap().remove(0);
        let written = store.get(&StoreKey::new(format!("{}a/b", things(number).prefix))).await.unwrap();
        catch_up(&store, &cache).await;
        let shown = one.get("a/b").map(|entry| entry.revision);
        assert!(shown >= written.map(|written| written.revision), "{shown:?} of {number}");
    }
    assert_eq!(cache.stats().collections, COUNT + specs().len());
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    let rounds = writer.await.unwrap();
    catch_up(&store, &cache).await;
    for number in (0..COUNT).step_by(COUNT / WRITTEN) {
        let one = cache.collection(&things(number).prefix).unwrap();
        assert_eq!(body_of(&one.get("a/b").unwrap()).number, rounds - 1);
    }
    let seen = watch.try_next(usize::MAX).unwrap().events.len();
    assert_eq!(seen as u32, rounds, "others lose nothing and see nothing twice");

    let prefixes: Vec<String> = (0..COUNT).map(|number| things(number).prefix).collect();
    cache.remove(&prefixes).await;
    assert_eq!(cache.stats().collections, specs().len());
    assert!(added.iter().all(|one| one.is_removed()));
    commit(&store, "a/p", Some(&body(0))).await;
    catch_up(&store, &cache).await;
    assert_eq!(watch.try_next(10).unwrap().events.len(), 1);
}

#[tokio::test]
async fn a_watch_of_a_collection_that_is_removed_ends() {
    let store = MemoryStore::new();
    let cache = start(&store).await;
    commit(&store, "a/p", Some(&body(1))).await;
    catch_up(&store, &cache).await;
    let pods = pods(&cache);
    let mut waiting = pods.watch(cache.watermark(), Scope::All).unwrap();
    let waiting = tokio::spawn(async move { waiting.next(1).await.err() });
    tokio::task::yield_now().await;
    let last = cache.watermark();
    cache.remove(&[PODS.to_owned()]).await;
    assert!(waiting.await.unwrap().is_some(), "who waits is woken to be told");
    commit(&store, "a/p", None).await;
    catch_up(&store, &cache).await;
    assert!(pods.get("a/p").is_some(), "what is not followed any more is not taken for gone");
    assert_eq!(pods.snapshot().revision, last);
    assert_eq!(cache.stats().history_bytes, 0, "its history is given back");
    assert!(pods.watch(cache.watermark(), Scope::All).is_err());
}

#[tokio::test]
async fn a_failed_addition_changes_nothing() {
    let store = FaultyStore::new(Arc::new(MemoryStore::new()));
    let cache = Cache::start(Arc::new(store.clone()), specs(), config()).await.unwrap();
    let below = CollectionSpec { prefix: format!("{PODS}a/"), ..things(1) };
    let above = CollectionSpec { prefix: "/registry/".to_owned(), ..things(1) };
    for taken in [specs().remove(0), below, above, things(1)] {
        let refused = cache.add(vec![things(1), taken]).await;
        assert!(matches!(refused, Err(AddError::Overlap(_))));
    }
    assert!(matches!(cache.replace(vec![things(1)]).await, Err(AddError::Missing(_))));
    store.set_calls(Fault::Error);
    assert!(matches!(cache.add(vec![things(1)]).await, Err(AddError::Store(_))));
    assert!(matches!(cache.replace(specs()).await, Err(AddError::Store(_))));
    store.set_calls(Fault::None);
    assert_eq!(cache.collections().len(), specs().len());
    assert!(!pods(&cache).is_removed());
    cache.add(vec![things(1)]).await.unwrap();
    assert_eq!(cache.collections().len(), specs().len() + 1);
}

/// An addition whose future is dropped is cancelled.
#[tokio::test(start_paused = true)]
async fn an_addition_that_no_client_waits_for_is_given_up() {
    let store = FaultyStore::new(Arc::new(MemoryStore::new()));
    let cache = Cache::start(Arc::new(store.clone()), specs(), config()).await.unwrap();
    store.set_calls(Fault::Hang);
    let gave_up = tokio::time::timeout(Duration::from_secs(1), cache.add(vec![things(1)])).await;
    assert!(gave_up.is_err());
    store.set_calls(Fault::None);
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert!(cache.collection(&things(1).prefix).is_none());
    }
}

/// Some collections being added are removed again.
#[tokio::test]
async fn a_collection_that_is_removed_while_it_is_added_is_not_there() {
    let store = MemoryStore::new();
    let cache = start(&store).await;
    let adding = cache.add(vec![things(1), things(2)]);
    let removing = async {
        tokio::task::yield_now().await;
        cache.remove(&[things(1).prefix]).await;
    };
    let (added, ()) = tokio::join!(adding, removing);
    let added = added.unwrap();
    assert_eq!(added.iter().map(|one| one.is_removed()).collect::<Vec<_>>(), [true, false]);
    assert!(cache.collection(&things(1).prefix).is_none());
    assert!(cache.collection(&things(2).prefix).is_some());
    cache.add(vec![things(1)]).await.unwrap();
}

/// A slow load starts again after a compaction, or after the tail has lost its position.
#[tokio::test(start_paused = true)]
async fn an_addition_survives_a_tail_that_loses_its_place() {
    let store = FaultyStore::new(Arc::new(MemoryStore::new()));
    let cache = Cache::start(Arc::new(store.clone()), specs(), config()).await.unwrap();
    store.set_tails(Fault::Error);
    while cache.healthy().is_ok() {
        commit(&store, "a/p", Some(&body(1))).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    put(&store, format!("{}a/b", things(1).prefix), 7).await;
    let newest = store.current_revision().await.unwrap();
    let adding = tokio::spawn({
        let cache = cache.clone();
        async move { cache.add(vec![things(1)]).await }
    });
    store.compact(newest).await.unwrap();
    store.set_tails(Fault::None);
    let one = adding.await.unwrap().unwrap().remove(0);
    catch_up(&store, &cache).await;
    assert_eq!(body_of(&one.get("a/b").unwrap()).number, 7);
    put(&store, format!("{}a/b", things(1).prefix), 8).await;
    catch_up(&store, &cache).await;
    assert_eq!(body_of(&one.get("a/b").unwrap()).number, 8);
}

/// A replaced collection with other fields is a new one. Data of the old one keeps its layout.
#[tokio::test]
async fn a_snapshot_is_read_with_its_own_layout() {
    let store = MemoryStore::new();
    let cache = start(&store).await;
    let on_n3 = Body { app: None, node: Some(3), number: 5 };
    commit(&store, "a/p", Some(&on_n3)).await;
    catch_up(&store, &cache).await;
    let before = pods(&cache);
    let old = before.snapshot();
    let mut spec = specs().remove(0);
    spec.fields = vec![spec.fields.remove(1)];
    spec.dispatch = None;
    let after = cache.replace(vec![spec]).await.unwrap().remove(0);
    let fields = |entry: &keelson_cache::Entry| [NODE, "data.number"].map(|path| entry.field_named(path).to_owned());
    assert_eq!(fields(old.get("a/p").unwrap()), ["n3", "5"]);
    assert_eq!(fields(&after.get("a/p").unwrap()), ["n3", ""]);
    assert_eq!((old.layout().place(NODE), after.layout().place(NODE)), (Some(1), Some(0)));
    // A scope by a field that the collection no longer dispatches by contains all events.
    let mut watch = after.watch(cache.watermark(), on_node("n9")).unwrap();
    commit(&store, "a/p", Some(&on_n3)).await;
    catch_up(&store, &cache).await;
    assert_eq!(watch.try_next(10).unwrap().events.len(), 1);
}
