//! Restarts: acknowledged writes and their history survive.
//!
//! Engines without persistence, such as the in-memory one, skip these cases. Each case closes and reopens the engine
//! between its steps.

use super::expiry::{at, put_until};
use super::{Factory, assert_compacted, changes, commit, delete, drain, everything, pairs, put, read, texts};

/// Contents, old revisions, an earlier tail position, and the compacted revision survive.
pub async fn everything_survives_a_restart(factory: &mut impl Factory) {
    if !factory.survives_reopening() {
        return;
    }
    let store = factory.open().await;
    let one = commit(&*store, put("a", "1")).await;
    let two = commit(&*store, put("a", "2").put(super::key("b"), "1")).await;
    let three = commit(&*store, delete("b")).await;
    let pages = [read(&*store, Some(two)).await, read(&*store, Some(three)).await];
    store.compact(two).await.unwrap();
    drop(store);

    let store = factory.open().await;
    assert_eq!(store.current_revision().await.unwrap(), three);
    assert_eq!(store.oldest_revision().await.unwrap(), two);
    assert_compacted(store.range(everything(Some(one))).await, one, two);
    assert_eq!([read(&*store, Some(two)).await, read(&*store, Some(three)).await], pages);
    let mut tail = store.tail(two).await.unwrap();
    let four = commit(&*store, put("c", "1")).await;
    assert!(four > three);
    let expected = [("b".to_owned(), None), ("c".to_owned(), Some("1".to_owned()))];
    assert_eq!(changes(&drain(&mut tail, two, four).await), expected);
    drop((tail, store));

    let store = factory.open().await;
    assert_eq!(texts(&read(&*store, None).await), pairs(&[("a", "2"), ("c", "1")]));
}

/// The newest revision also survives if compaction has removed deletes that were the newest changes.
pub async fn inv17_revisions_do_not_decrease_over_a_restart(factory: &mut impl Factory) {
    if !factory.survives_reopening() {
        return;
    }
    let mut newest = keelson_meta::Revision::ZERO;
    for _ in 0..3 {
        let store = factory.open().await;
        assert!(store.current_revision().await.unwrap() >= newest);
        assert!(commit(&*store, put("a", "1")).await > newest);
        newest = commit(&*store, delete("a")).await;
        store.compact(newest).await.unwrap();
    }
    let store = factory.open().await;
    assert!(store.current_revision().await.unwrap() >= newest);
    assert!(read(&*store, None).await.entries.is_empty());
}

/// A key expires although the server that wrote it no longer runs.
pub async fn expiries_survive_a_restart(factory: &mut impl Factory) {
    if !factory.survives_reopening() {
        return;
    }
    let store = factory.open().await;
    commit(&*store, put_until("a", "1", 10)).await;
    commit(&*store, put_until("b", "1", 20)).await;
    drop(store);
    let store = factory.open().await;
    assert_eq!(store.expire(at(15)).await.unwrap(), 1);
    assert_eq!(texts(&read(&*store, None).await), pairs(&[("b", "1")]));
}
