//! Transactions: atomic, in one order, and visible at once.
//!
//! A reader must never see a partial transaction.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use keelson_meta::Revision;

use super::{Factory, commit, delete, everything, key, pairs, put, read, texts};
use crate::store::{CommitError, Condition, Store, Transaction, Write};

/// The first failed compare is reported with the key's current value, and nothing is written.
pub async fn a_failing_compare_returns_the_current_value_and_writes_nothing(factory: &mut impl Factory) {
    let store = factory.open().await;
    let revision = commit(&*store, put("a", "one")).await;
    let transaction = put("b", "never")
        .delete(key("a"))
        .when(key("a"), Condition::At(revision))
        .when(key("a"), Condition::Absent)
        .when(key("c"), Condition::Exists);
    let Err(CommitError::Compare { index, current }) = store.commit(transaction).await else {
        panic!("the second compare does not hold");
    };
    let current = current.expect("the key has a value");
    assert_eq!(index, 1);
    assert_eq!((current.key, current.value, current.revision), (key("a"), Bytes::from("one"), revision));
    let Err(CommitError::Compare { index: 0, current: None }) =
        store.commit(put("c", "never").when(key("c"), Condition::Exists)).await
    else {
        panic!("the key is absent");
    };
    assert_eq!(texts(&read(&*store, None).await), pairs(&[("a", "one")]));
    assert_eq!(store.current_revision().await.unwrap(), revision);
    assert!(store.known_revision().is_none_or(|known| known == revision));
}

/// Each condition works on keys that the transaction writes and on other keys.
pub async fn compares_hold_for_written_and_unwritten_keys(factory: &mut impl Factory) {
    let store = factory.open().await;
    let first = commit(&*store, put("a", "1").when(key("a"), Condition::Absent)).await;
    let second = commit(&*store, put("a", "2").when(key("a"), Condition::At(first))).await;
    commit(&*store, put("b", "1").when(key("a"), Condition::Exists).when(key("b"), Condition::Absent)).await;
    let stale = store.commit(put("a", "3").when(key("a"), Condition::At(first))).await;
    assert!(matches!(stale, Err(CommitError::Compare { index: 0, current: Some(now) }) if now.revision == second));
    let absent = store.commit(put("a", "3").when(key("nowhere"), Condition::At(first))).await;
    assert!(matches!(absent, Err(CommitError::Compare { index: 0, current: None })));
    assert_eq!(texts(&read(&*store, None).await), pairs(&[("a", "2"), ("b", "1")]));
}

/// A transaction of compares alone only checks, and makes no revision.
pub async fn a_transaction_without_writes_checks_its_compares(factory: &mut impl Factory) {
    let store = factory.open().await;
    let revision = commit(&*store, put("a", "1")).await;
    let held = store.commit(Transaction::default().when(key("a"), Condition::At(revision))).await.unwrap();
    assert!(held.revisions.is_empty());
    let refused = store.commit(Transaction::default().when(key("a"), Condition::Absent)).await;
    assert!(matches!(refused, Err(CommitError::Compare { index: 0, .. })));
    assert_eq!(store.current_revision().await.unwrap(), revision);
}

/// Reported revisions ascend, equal those of later reads, and are above all earlier ones.
pub async fn every_write_reports_its_revision(factory: &mut impl Factory) {
    let store = factory.open().await;
    let before = commit(&*store, put("z", "old")).await;
    let names: Vec<String> = (0..200).map(|number| format!("many/{number:03}")).collect();
    let transaction = names.iter().fold(Transaction::default(), |so_far, name| so_far.put(key(name), name.clone()));
    let revisions = store.commit(transaction.delete(key("z"))).await.unwrap().revisions;
    assert_eq!(revisions.len(), names.len() + 1);
    assert!(revisions[0] > before);
    assert!(revisions.windows(2).all(|pair| pair[0] <= pair[1]));
    for (name, revision) in names.iter().zip(&revisions) {
        assert_eq!(store.get(&key(name)).await.unwrap().unwrap().revision, *revision);
    }
    assert_eq!(store.get(&key("z")).await.unwrap(), None);
    assert_eq!(store.current_revision().await.unwrap(), *revisions.last().unwrap());
}

/// A delete of an absent key makes no revision, no event and no error.
pub async fn deleting_an_absent_key_does_nothing(factory: &mut impl Factory) {
    let store = factory.open().await;
    let revision = commit(&*store, put("a", "1")).await;
    let committed = store.commit(delete("nowhere")).await.unwrap();
    assert_eq!(committed.revisions, vec![revision]);
    assert_eq!(store.current_revision().await.unwrap(), revision);
    let deleted = commit(&*store, delete("a")).await;
    store.commit(delete("a")).await.unwrap();
    assert_eq!(store.current_revision().await.unwrap(), deleted);
}

/// A deleted key is absent for compares and reads, and its next value is a new write.
pub async fn a_deleted_key_can_be_created_again(factory: &mut impl Factory) {
    let store = factory.open().await;
    let first = commit(&*store, put("a", "1")).await;
    let deleted = commit(&*store, delete("a").when(key("a"), Condition::At(first))).await;
    assert!(deleted > first);
    assert_eq!(store.get(&key("a")).await.unwrap(), None);
    let refused = store.commit(put("a", "2").when(key("a"), Condition::At(deleted))).await;
    assert!(matches!(refused, Err(CommitError::Compare { index: 0, current: None })));
    let second = commit(&*store, put("a", "2").when(key("a"), Condition::Absent)).await;
    assert!(second > deleted);
    assert_eq!(store.get(&key("a")).await.unwrap().unwrap().revision, second);
}

/// Empty values are valid; large ones and arbitrary bytes are kept.
pub async fn values_come_back_byte_for_byte(factory: &mut impl Factory) {
    let store = factory.open().await;
    let large: Vec<u8> = (0..1_500_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for value in [Vec::new(), vec![0], vec![0xff, 0, 0xfe], large] {
        let value = Bytes::from(value);
        commit(&*store, Transaction::default().put(key("a"), value.clone())).await;
        assert_eq!(store.get(&key("a")).await.unwrap().unwrap().value, value);
        assert_eq!(read(&*store, None).await.entries[0].value, value);
    }
    let refused = store.commit(put("a", "x").when(key("a"), Condition::Absent)).await;
    assert!(matches!(refused, Err(CommitError::Compare { .. })));
}

/// Two keys that are always written together are always read together.
pub async fn readers_never_see_half_a_transaction(factory: &mut impl Factory) {
    let store = factory.open().await;
    commit(&*store, put("a", "0").put(key("b"), "0")).await;
    let done = Arc::new(AtomicBool::new(false));
    let reader = tokio::spawn({
        let (store, done) = (store.clone(), done.clone());
        async move {
            while !done.load(Ordering::Acquire) {
                let page = read(&*store, None).await;
                assert_eq!(page.entries[0].value, page.entries[1].value, "at revision {}", page.revision);
                tokio::task::yield_now().await;
            }
        }
    });
    for round in 1..200 {
        commit(&*store, put("a", &round.to_string()).put(key("b"), round.to_string())).await;
    }
    done.store(true, Ordering::Release);
    reader.await.unwrap();
}

/// Every kind of read that starts after an acknowledgement sees the write, under concurrent writers.
pub async fn inv15_a_read_sees_every_acknowledged_write(factory: &mut impl Factory) {
    let store = factory.open().await;
    let writers = (0..8).map(|writer| {
        let store = store.clone();
        tokio::spawn(async move {
            for round in 0..25 {
                let name = format!("w{writer}/{round}");
                let revision = commit(&*store, put(&name, "v")).await;
                assert!(store.known_revision().is_none_or(|known| known >= revision), "known of {revision}");
                assert!(store.current_revision().await.unwrap() >= revision);
                assert_eq!(store.get(&key(&name)).await.unwrap().unwrap().revision, revision);
                let page = read(&*store, None).await;
                assert!(page.revision >= revision);
                assert!(page.entries.iter().any(|entry| entry.revision == revision));
                assert!(store.range(everything(Some(revision))).await.is_ok());
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
}

/// A revision shows the same content forever: no lower revision can appear later.
pub async fn inv16_revisions_become_visible_in_order(factory: &mut impl Factory) {
    let store = factory.open().await;
    let done = Arc::new(AtomicBool::new(false));
    let observer = tokio::spawn({
        let (store, done) = (store.clone(), done.clone());
        async move {
            let mut seen = Vec::new();
            while !done.load(Ordering::Acquire) {
                let page = read(&*store, None).await;
                assert!(page.entries.iter().all(|entry| entry.revision <= page.revision));
                seen.push(page);
                tokio::task::yield_now().await;
            }
            seen
        }
    });
    let writers: Vec<_> = (0..8).map(|writer| tokio::spawn(write_rounds(store.clone(), writer))).collect();
    let mut acknowledged = Vec::new();
    for writer in writers {
        acknowledged.extend(writer.await.unwrap());
    }
    done.store(true, Ordering::Release);
    let seen = observer.await.unwrap();
    assert!(seen.windows(2).all(|pair| pair[0].revision <= pair[1].revision));
    for page in seen.iter().rev().take(100) {
        assert_eq!(&read(&*store, Some(page.revision)).await, page);
    }
    let count = acknowledged.len();
    acknowledged.sort_unstable();
    acknowledged.dedup();
    assert_eq!(acknowledged.len(), count, "two transactions share a revision");
}

async fn write_rounds(store: Arc<dyn Store>, writer: usize) -> Vec<Revision> {
    let mut revisions = Vec::new();
    for round in 0..40 {
        let name = format!("w{writer}/{}", round % 7);
        let transaction = if round % 5 == 4 { delete(&name) } else { put(&name, &round.to_string()) };
        revisions.push(commit(&*store, transaction.put(key(&format!("w{writer}")), "x")).await);
    }
    revisions
}

/// Of many updates from one revision, one succeeds. The others get its result.
pub async fn inv19_of_concurrent_updates_exactly_one_succeeds(factory: &mut impl Factory) {
    let store = factory.open().await;
    let mut revision = commit(&*store, put("a", "start")).await;
    for _ in 0..10 {
        let contenders: Vec<_> = (0..16)
            .map(|contender| {
                let store = store.clone();
                let mut transaction = Transaction::default().when(key("a"), Condition::At(revision));
                transaction.writes.push(Write::Put {
                    key: key("a"),
                    value: Bytes::from(format!("contender {contender}")),
                    expires: None,
                });
                tokio::spawn(async move { store.commit(transaction).await })
            })
            .collect();
        let mut winners = Vec::new();
        let mut told = Vec::new();
        for contender in contenders {
            match contender.await.unwrap() {
                Ok(committed) => winners.extend(committed.revisions),
                Err(CommitError::Compare { current, .. }) => told.push(current.expect("the key exists").revision),
                Err(CommitError::Store(error)) => panic!("{error}"),
            }
        }
        assert_eq!(winners.len(), 1);
        assert!(told.iter().all(|current| *current == winners[0]));
        revision = winners[0];
    }
}
