//! Tails: history first, then new commits, without gaps or repeats between the two.
//!
//! The cache follows the store by one tail, so a change that the tail skips would never reach the cache. Cases
//! therefore run under load and with slow readers.

use std::collections::BTreeMap;
use std::sync::Arc;

use keelson_meta::Revision;

use super::{Factory, assert_future, changes, commit, delete, drain, key, put, read, relative, text};
use crate::store::{Store, StoreEvent, Transaction};

/// Puts, overwrites and deletes arrive in order, both those from before the tail was opened and later ones.
pub async fn a_tail_gives_history_and_then_what_is_committed(factory: &mut impl Factory) {
    let store = factory.open().await;
    let start = store.current_revision().await.unwrap();
    commit(&*store, put("a", "1")).await;
    let middle = commit(&*store, put("a", "2")).await;
    commit(&*store, delete("a")).await;
    store.commit(delete("nowhere")).await.unwrap();
    let mut whole = store.tail(start).await.unwrap();
    let mut rest = store.tail(middle).await.unwrap();
    let last = commit(&*store, put("b", "1").put(key("c"), "1").delete(key("b2"))).await;
    let expected = [("a", Some("1")), ("a", Some("2")), ("a", None), ("b", Some("1")), ("c", Some("1"))]
        .map(|(key, value)| (key.to_owned(), value.map(str::to_owned)));
    assert_eq!(changes(&drain(&mut whole, start, last).await), expected);
    assert_eq!(changes(&drain(&mut rest, middle, last).await), expected[2..]);
}

/// A tail from the newest revision delivers no earlier change.
pub async fn a_tail_from_the_newest_revision_gives_only_new_changes(factory: &mut impl Factory) {
    let store = factory.open().await;
    let start = commit(&*store, put("a", "1")).await;
    let mut tail = store.tail(start).await.unwrap();
    let last = commit(&*store, put("a", "2")).await;
    let events = drain(&mut tail, start, last).await;
    assert_eq!(changes(&events), [("a".to_owned(), Some("2".to_owned()))]);
    assert_eq!(events[0].revision, last);
}

/// A tail from beyond the newest revision fails at once instead of waiting.
pub async fn a_tail_from_the_future_is_refused(factory: &mut impl Factory) {
    let store = factory.open().await;
    let next = commit(&*store, put("a", "1")).await.next();
    assert_future(store.tail(next).await, next);
}

/// The history is longer than any buffer of recent changes.
pub async fn a_long_history_is_delivered_whole(factory: &mut impl Factory) {
    let store = factory.open().await;
    let start = store.current_revision().await.unwrap();
    let last = write_many(&*store, 3000).await;
    let mut tail = store.tail(start).await.unwrap();
    let events = drain(&mut tail, start, last).await;
    assert_eq!(events.len(), 3000);
    assert!(events.iter().enumerate().all(|(at, event)| event.value.as_ref().map(text) == Some(at.to_string())));
}

/// A reader that pauses still gets every change.
pub async fn a_tail_that_is_not_polled_catches_up(factory: &mut impl Factory) {
    let store = factory.open().await;
    let start = store.current_revision().await.unwrap();
    let mut tail = store.tail(start).await.unwrap();
    let first = commit(&*store, put("first", "1")).await;
    assert_eq!(drain(&mut tail, start, first).await.len(), 1);
    let last = write_many(&*store, 3000).await;
    assert_eq!(drain(&mut tail, first, last).await.len(), 3000);
}

async fn write_many(store: &dyn Store, count: usize) -> Revision {
    let mut last = Revision::ZERO;
    for first in (0..count).step_by(100) {
        let transaction = (first..first + 100).fold(Transaction::default(), |so_far, number| {
            so_far.put(key(&format!("many/{}", number % 500 + first)), number.to_string())
        });
        last = commit(store, transaction).await;
    }
    last
}

/// Tails opened at different times, while eight writers commit, all yield the same sequence: the store's.
pub async fn tails_started_under_load_have_no_gap_and_no_repeat(factory: &mut impl Factory) {
    let store = factory.open().await;
    let start = store.current_revision().await.unwrap();
    let writers: Vec<_> = (0..8).map(|writer| tokio::spawn(write_rounds(store.clone(), writer))).collect();
    let mut tails = Vec::new();
    for _ in 0..12 {
        let after = store.current_revision().await.unwrap();
        tails.push((after, store.tail(after).await.unwrap()));
        // While there are writers, the next tail starts at a later revision.
        tokio::task::yield_now().await;
    }
    for writer in writers {
        writer.await.unwrap();
    }
    let end = commit(&*store, put("end", "1")).await;
    let mut from_history = store.tail(start).await.unwrap();
    let story = drain(&mut from_history, start, end).await;
    assert_eq!(story.len(), 8 * 50 + 1);
    for (after, mut tail) in tails {
        let events = drain(&mut tail, after, end).await;
        let expected: Vec<StoreEvent> = story.iter().filter(|event| event.revision > after).cloned().collect();
        assert_eq!(events, expected, "of the tail after {after}");
    }
    let mut replayed = BTreeMap::new();
    for event in story {
        match event.value {
            Some(value) => replayed.insert(relative(&event.key), (event.revision, value)),
            None => replayed.remove(&relative(&event.key)),
        };
    }
    let stored = read(&*store, None).await.entries.into_iter();
    assert_eq!(
        stored.map(|entry| (relative(&entry.key), (entry.revision, entry.value))).collect::<BTreeMap<_, _>>(),
        replayed
    );
}

async fn write_rounds(store: Arc<dyn Store>, writer: usize) {
    for round in 0..50 {
        // Every delete finds the key that the previous round put.
        let name = format!("w{writer}/{}", round / 2 % 5);
        commit(&*store, if round % 2 == 1 { delete(&name) } else { put(&name, &round.to_string()) }).await;
    }
}
