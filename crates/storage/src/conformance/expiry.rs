//! Times to live: the engine removes expired keys as ordinary deletes, on request and not by itself.
//!
//! The engine stores the expiry times, and the server requests the removal. So no key expires while no server runs.

use std::time::{Duration, SystemTime};

use bytes::Bytes;

use super::{Factory, changes, commit, delete, drain, key, pairs, put, read, texts};
use crate::store::{Transaction, Write};

/// A time in whole seconds after a common origin.
pub(super) fn at(second: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000 + second)
}

/// A put with an expiry.
pub(super) fn put_until(relative: &str, value: &str, second: u64) -> Transaction {
    let value = Bytes::from(value.to_owned());
    let write = Write::Put { key: key(relative), value, expires: Some(at(second)) };
    Transaction { writes: vec![write], ..Transaction::default() }
}

/// Keys expire at or before the given time, not after. Each expiry has a revision and an event, and the call returns
/// the number.
pub async fn keys_end_at_their_time_as_ordinary_deletes(factory: &mut impl Factory) {
    let store = factory.open().await;
    commit(&*store, put_until("at-10", "1", 10)).await;
    commit(&*store, put_until("at-5", "1", 5)).await;
    commit(&*store, put_until("at-11", "1", 11)).await;
    let before = commit(&*store, put("for-ever", "1")).await;
    let mut tail = store.tail(before).await.unwrap();
    assert_eq!(store.expire(at(4)).await.unwrap(), 0);
    assert_eq!(store.current_revision().await.unwrap(), before);
    assert_eq!(store.expire(at(10) + Duration::from_millis(900)).await.unwrap(), 2);
    assert_eq!(store.expire(at(10)).await.unwrap(), 0);
    let after = store.current_revision().await.unwrap();
    let events = drain(&mut tail, before, after).await;
    assert_eq!(changes(&events), [("at-5".to_owned(), None), ("at-10".to_owned(), None)]);
    assert_eq!(texts(&read(&*store, None).await), pairs(&[("at-11", "1"), ("for-ever", "1")]));
    assert_eq!(texts(&read(&*store, Some(before)).await).len(), 4);
}

/// Each write sets or clears the expiry of its key.
pub async fn a_rewrite_decides_anew_when_a_key_ends(factory: &mut impl Factory) {
    let store = factory.open().await;
    for name in ["kept", "later", "sooner", "deleted", "recreated"] {
        commit(&*store, put_until(name, "1", 10)).await;
    }
    commit(&*store, put("kept", "2")).await;
    commit(&*store, put_until("later", "2", 30)).await;
    commit(&*store, put_until("sooner", "2", 5)).await;
    commit(&*store, delete("deleted")).await;
    commit(&*store, delete("recreated")).await;
    commit(&*store, put("recreated", "2")).await;
    assert_eq!(store.expire(at(5)).await.unwrap(), 1);
    assert_eq!(store.expire(at(20)).await.unwrap(), 0);
    assert_eq!(texts(&read(&*store, None).await), pairs(&[("kept", "2"), ("later", "2"), ("recreated", "2")]));
    assert_eq!(store.expire(at(30)).await.unwrap(), 1);
    assert_eq!(texts(&read(&*store, None).await), pairs(&[("kept", "2"), ("recreated", "2")]));
}
