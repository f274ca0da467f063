//! Concurrent writers, watches and readers on several threads. A list at R followed by a watch from R must give the
//! final state. Every watch must get every event of its scope once and in order. Chunks at one revision must equal one
//! list.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::sync::Arc;

use common::*;
use keelson_cache::{Cache, Collection, Scope};
use keelson_codec::DeflateBlock;
use keelson_meta::Revision;
use keelson_storage::memory::MemoryStore;
use keelson_storage::{Store, StoreKey};

const WRITES: u32 = 4000;
const KEYS: u32 = 97;

/// The sequence is the same in every run, so that only the interleaving of tasks varies.
fn random(state: &mut u64) -> u32 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) as u32
}

async fn write_all(store: MemoryStore) -> Model {
    let mut model = Model::default();
    let mut seed = 42;
    for number in 0..WRITES {
        let place = random(&mut seed) % KEYS;
        let key = format!("{}/p{place}", if place.is_multiple_of(3) { "a" } else { "b" });
        let body = (!random(&mut seed).is_multiple_of(4)).then(|| Body {
            app: Some((random(&mut seed) % 3) as u8),
            node: Some((random(&mut seed) % 5) as u8),
            number,
        });
        let revision = commit(&store, &key, body.as_ref()).await;
        model.apply(revision, &key, body);
        if number.is_multiple_of(16) {
            tokio::task::yield_now().await;
        }
    }
    commit(&store, "end/end", Some(&Body { app: None, node: None, number: 0 })).await;
    model
}

/// Lists, then watches until everything is written. Returns the list with its revision, and the events.
async fn list_and_watch(pods: Arc<Collection>, scope: Scope, max: usize) -> (Revision, State, Vec<ModelChange>) {
    let snapshot = pods.snapshot();
    let mut state = state_of(snapshot.range("", None));
    let mut cursor = pods.watch(snapshot.revision, scope).unwrap();
    let mut end = pods.watch(snapshot.revision, Scope::Object { key: "end/end".to_owned() }).unwrap();
    let mut seen = Vec::new();
    let mut follow = |events: Vec<Arc<keelson_cache::Event>>| {
        for event in events {
            match &event.current {
                Some(entry) => state.insert(entry.key.to_string(), (entry.revision.get(), body_of(entry))),
                None => state.remove(event.key()),
            };
            seen.push(happened(&event));
        }
    };
    // If the list is already complete, the watch has no events to wait for.
    while snapshot.get("end/end").is_none() {
        tokio::select! {
            batch = cursor.next(max) => follow(batch.unwrap().events),
            _ = end.next(1) => break,
        }
    }
    loop {
        let batch = cursor.try_next(max).unwrap();
        if batch.events.is_empty() {
            return (snapshot.revision, state, seen);
        }
        follow(batch.events);
    }
}

/// Lists one revision in chunks during writes. The chunks must equal the whole list.
async fn walk_in_chunks(pods: Arc<Collection>, chunk: usize) {
    while pods.get("end/end").is_none() {
        let first = pods.snapshot();
        let whole = state_of(first.range("", None));
        pods.pin(&first);
        let mut chunks = State::new();
        let mut from = String::new();
        loop {
            tokio::task::yield_now().await;
            let Ok(snapshot) = pods.snapshot_at(first.revision) else { break };
            let page: Vec<_> = snapshot.range(&from, None).take(chunk).collect();
            let Some(last) = page.last() else {
                assert_eq!(chunks, whole);
                break;
            };
            from = format!("{}\0", last.key);
            chunks.extend(state_of(page.into_iter()));
        }
    }
}

async fn read_own_writes(store: MemoryStore, cache: Arc<Cache>) {
    while pods(&cache).get("end/end").is_none() {
        let stored = store.get(&StoreKey::new("/registry/pods/b/p1")).await.unwrap();
        catch_up(&store, &cache).await;
        let cached = pods(&cache).get("b/p1");
        if let (Some(stored), Some(cached)) = (stored, cached) {
            assert!(cached.revision >= stored.revision, "a consistent read is not older than the store was");
        }
        // The code above never waits long enough to let other tasks run on this worker.
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn lists_and_watches_agree_while_everything_happens_at_once() {
    let store = MemoryStore::new();
    let cache = start(&store).await;
    let mut watchers = Vec::new();
    let readers = [
        tokio::spawn(walk_in_chunks(pods(&cache).clone(), 10)),
        tokio::spawn(walk_in_chunks(pods(&cache).clone(), 33)),
        tokio::spawn(read_own_writes(store.clone(), cache.clone())),
    ];
    let writer = tokio::spawn(write_all(store.clone()));
    for n in 0..60usize {
        let scope = match n % 4 {
            0 | 1 => Scope::All,
            2 => Scope::Namespace("a".to_owned()),
            _ => on_node(&format!("n{}", n % 5)),
        };
        watchers.push((scope.clone(), tokio::spawn(list_and_watch(pods(&cache).clone(), scope, 1 + n))));
        tokio::task::yield_now().await;
    }
    let model = writer.await.unwrap();
    for (scope, watcher) in watchers {
        let (start, mut state, mut seen) = watcher.await.unwrap();
        seen.retain(|event| event.key != "end/end");
        assert_eq!(seen, model.events_after(start, &scope));
        if scope == Scope::All {
            state.remove("end/end");
            assert_eq!(state, model.newest);
        }
    }
    for reader in readers {
        reader.await.unwrap();
    }
    assert_eq!(pods(&cache).stats().watchers, 0);
}

#[tokio::test]
async fn the_blocks_of_all_leaves_are_the_items_of_the_list() {
    let store = MemoryStore::new();
    for number in 0..500 {
        let body = Body { app: None, node: None, number };
        commit(&store, &format!("a/p{number:03}"), Some(&body)).await;
    }
    let cache = start(&store).await;
    let snapshot = pods(&cache).snapshot();
    let mut leaves = 0;
    for leaf in snapshot.cursor("", None) {
        let mut text = Vec::new();
        for entry in leaf.entries() {
            if !text.is_empty() {
                text.push(b',');
            }
            entry.object().write_item(entry.revision, &mut text);
        }
        let block = leaf.block().expect("the leaf is whole");
        assert_eq!(*block, DeflateBlock::compress(&text, 1));
        assert_eq!(block.len, text.len() as u64);
        leaves += 1;
    }
    assert!(leaves > 5);
    let part = snapshot.cursor("a/p003", None).next().expect("there are more than three");
    assert!(!part.is_whole() && part.block().is_none());
}
