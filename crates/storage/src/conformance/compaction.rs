//! Compaction removes unreadable history, and nothing else.
//!
//! Every case compares the readable state before and after a compaction, at each revision, under concurrent writers.

use std::collections::BTreeMap;

use keelson_meta::Revision;

use super::{Factory, assert_compacted, assert_future, commit, delete, drain, everything, key, put, read, texts};
use crate::store::{RangePage, Store};

/// Reads at or above the compacted revision return the same as before. Reads below it fail with the oldest readable
/// revision.
pub async fn inv20_compaction_never_changes_a_readable_result(factory: &mut impl Factory) {
    let store = factory.open().await;
    let pages = write_history(&*store, 60).await;
    for at in [10, 11, 35, 59] {
        let oldest = pages[at].revision;
        store.compact(oldest).await.unwrap();
        assert_eq!(store.oldest_revision().await.unwrap(), oldest);
        for page in &pages[..at] {
            assert_compacted(store.range(everything(Some(page.revision))).await, page.revision, oldest);
            assert_compacted(store.tail(page.revision).await, page.revision, oldest);
        }
        for page in &pages[at..] {
            assert_eq!(&read(&*store, Some(page.revision)).await, page, "after compacting to {oldest}");
        }
    }
    let newest = pages.last().unwrap();
    assert_eq!(&read(&*store, None).await, newest);
    let mut tail = store.tail(newest.revision).await.unwrap();
    let next = commit(&*store, put("next", "1")).await;
    assert_eq!(drain(&mut tail, newest.revision, next).await.len(), 1);
}

/// Writes a history with overwrites, deletes and recreations. Returns the content at every revision.
async fn write_history(store: &dyn Store, rounds: usize) -> Vec<RangePage> {
    let mut pages = Vec::new();
    for round in 0..rounds {
        let name = format!("k{}", round * 7 % 9);
        let exists = store.get(&key(&name)).await.unwrap().is_some();
        let transaction = if exists && round % 3 == 0 { delete(&name) } else { put(&name, &round.to_string()) };
        let revision = commit(store, transaction).await;
        pages.push(read(store, Some(revision)).await);
    }
    pages
}

/// The oldest readable revision never decreases.
pub async fn compacting_again_or_lower_does_nothing(factory: &mut impl Factory) {
    let store = factory.open().await;
    let pages = write_history(&*store, 10).await;
    for at in [5, 5, 3] {
        store.compact(pages[at].revision).await.unwrap();
        assert_eq!(store.oldest_revision().await.unwrap(), pages[5].revision);
    }
    store.compact(Revision::ZERO).await.unwrap();
    assert_eq!(read(&*store, Some(pages[5].revision)).await, pages[5]);
}

/// Compaction to a future revision fails, since it would hide later writes.
pub async fn compacting_the_future_is_refused(factory: &mut impl Factory) {
    let store = factory.open().await;
    let next = commit(&*store, put("a", "1")).await.next();
    assert_future(store.compact(next).await, next);
    assert!(store.oldest_revision().await.unwrap() < next);
}

/// If compaction removes a delete that was the newest change, the next write still gets a new revision.
pub async fn inv17_compacting_everything_keeps_the_revision(factory: &mut impl Factory) {
    let store = factory.open().await;
    commit(&*store, put("a", "1")).await;
    let deleted = commit(&*store, delete("a")).await;
    store.compact(deleted).await.unwrap();
    assert_eq!(store.current_revision().await.unwrap(), deleted);
    assert!(read(&*store, Some(deleted)).await.entries.is_empty());
    assert!(commit(&*store, put("a", "2")).await > deleted);
}

/// Writers and readers continue while history is compacted behind them.
pub async fn compaction_under_writers_changes_nothing_readable(factory: &mut impl Factory) {
    let store = factory.open().await;
    commit(&*store, put("start", "1")).await;
    let writer = tokio::spawn({
        let store = store.clone();
        async move { write_and_remember(&*store, 300).await }
    });
    while !writer.is_finished() {
        let page = read(&*store, None).await;
        store.compact(page.revision).await.unwrap();
        assert_eq!(read(&*store, Some(page.revision)).await, page);
        tokio::task::yield_now().await;
    }
    let expected = writer.await.unwrap();
    let last = read(&*store, None).await;
    assert_eq!(texts(&last), expected.into_iter().collect::<Vec<_>>());
    store.compact(last.revision).await.unwrap();
    assert_eq!(read(&*store, Some(last.revision)).await, last);
}

/// Returns the expected final content.
async fn write_and_remember(store: &dyn Store, rounds: usize) -> BTreeMap<String, String> {
    let mut expected = BTreeMap::from([("start".to_owned(), "1".to_owned())]);
    for round in 0..rounds {
        let name = format!("k{}", round * 7 % 9);
        if expected.contains_key(&name) && round % 3 == 0 {
            commit(store, delete(&name)).await;
            expected.remove(&name);
        } else {
            commit(store, put(&name, &round.to_string())).await;
            expected.insert(name, round.to_string());
        }
    }
    expected
}
