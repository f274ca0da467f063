//! Tests of several servers on one etcd, and of an etcd that dies, hangs, or is shared with others.
//!
//! The store never changes keys outside of its prefix.

#![allow(clippy::unwrap_used)] // A test fails by a panic.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{PATIENCE, commit, everything, follow, key, open, put, read};
use futures::StreamExt as _;
use keelson_meta::Revision;
use keelson_storage::{CommitError, Condition, Store, StoreError, StoreEvent, Transaction};
use keelson_storage_etcd::{EtcdConfig, EtcdStore};
use keelson_teststores::{EtcdServer, LossyWay};
use tokio::time::timeout;

/// The final state of a history.
fn replayed(events: &[StoreEvent]) -> BTreeMap<String, Revision> {
    let mut left = BTreeMap::new();
    for event in events {
        match event.value {
            Some(_) => left.insert(event.key.to_string(), event.revision),
            None => left.remove(event.key.as_str()),
        };
    }
    left
}

async fn stored(store: &EtcdStore) -> BTreeMap<String, Revision> {
    read(store).await.entries.into_iter().map(|entry| (entry.key.to_string(), entry.revision)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_servers_with_many_writers_report_one_history() {
    let Some(server) = EtcdServer::start() else { return };
    let stores = [open(&server, "/registry").await, open(&server, "/registry").await];
    let start = stores[0].current_revision().await.unwrap();
    let writers: Vec<_> = (0..8).map(|writer| tokio::spawn(write_rounds(stores[writer % 2].clone(), writer))).collect();
    let mut acknowledged = BTreeSet::new();
    for writer in writers {
        acknowledged.extend(writer.await.unwrap());
    }
    let end = stores[0].current_revision().await.unwrap();
    assert_eq!(stores[1].current_revision().await.unwrap(), end);
    let (first, second) = tokio::join!(follow(&stores[0], start, end), follow(&stores[1], start, end));
    assert_eq!(first, second);
    assert_eq!(first.iter().map(|event| event.revision).collect::<BTreeSet<_>>(), acknowledged);
    assert_eq!(replayed(&first), stored(&stores[1]).await);
}

/// Puts, overwrites and deletes keys. Returns the revisions.
async fn write_rounds(store: EtcdStore, writer: usize) -> Vec<Revision> {
    let mut revisions = Vec::new();
    for round in 0..40 {
        let name = format!("w{writer}/{}", round / 2 % 5);
        let transaction =
            if round % 2 == 1 { Transaction::default().delete(key(&name)) } else { put(&name, round.to_string()) };
        revisions.push(commit(&store, transaction).await);
    }
    revisions
}

/// etcd gets kill -9 twice while four writers continue. The tail continues.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inv18_killing_etcd_loses_and_repeats_no_write() {
    let Some(mut server) = EtcdServer::start() else { return };
    let store = open(&server, "/registry").await;
    let start = store.current_revision().await.unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..4).map(|writer| tokio::spawn(write_until(store.clone(), writer, done.clone()))).collect();
    for _ in 0..2 {
        let before = store.current_revision().await.unwrap();
        follow(&store, before, Revision::new(before.get() + 30)).await;
        server.kill();
        server.start_again();
        let newest = timeout(PATIENCE, async {
            loop {
                if let Ok(newest) = store.current_revision().await {
                    return newest;
                }
            }
        });
        assert!(newest.await.unwrap() >= before);
    }
    done.store(true, Ordering::Release);
    let mut acknowledged = Vec::new();
    for writer in writers {
        acknowledged.extend(writer.await.unwrap());
    }
    let end = store.current_revision().await.unwrap();
    let events = follow(&store, start, end).await;
    let told: BTreeMap<String, Revision> = events.iter().map(|event| (event.key.to_string(), event.revision)).collect();
    assert_eq!(told.len(), events.len(), "every key was written once");
    assert_eq!(told, stored(&store).await);
    for (name, revision) in &acknowledged {
        assert_eq!(told.get(name), Some(revision), "{name} was acknowledged");
    }
    assert!(acknowledged.len() >= 60);
}

/// Creates one key after the other. Returns the acknowledged ones.
async fn write_until(store: EtcdStore, writer: usize, done: Arc<AtomicBool>) -> Vec<(String, Revision)> {
    let mut acknowledged = Vec::new();
    for round in 0.. {
        if done.load(Ordering::Acquire) {
            break;
        }
        let name = format!("w{writer}/{round}");
        match store.commit(put(&name, "x").when(key(&name), Condition::Absent)).await {
            Ok(committed) => acknowledged.push((key(&name).to_string(), committed.revisions[0])),
            Err(CommitError::Store(StoreError::Unavailable(_) | StoreError::Unknown(_))) => {}
            Err(error) => panic!("{error}"),
        }
    }
    acknowledged
}

/// An open tail loses and repeats nothing, whether it continues or ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tail_continues_over_a_short_absence_of_etcd() {
    let Some(mut server) = EtcdServer::start() else { return };
    let store = open(&server, "/registry").await;
    let start = commit(&store, put("a", "1")).await;
    let mut tail = store.tail(start).await.unwrap();
    let second = commit(&store, put("a", "2")).await;
    assert_eq!(tail.next().await.unwrap().unwrap().events[0].revision, second);
    server.kill();
    server.start_again();
    let other = open(&server, "/registry").await;
    let third = commit(&other, put("b", "3")).await;
    let batch = timeout(PATIENCE, tail.next()).await.unwrap().unwrap().unwrap();
    assert_eq!((batch.events.len(), batch.events[0].revision, batch.watermark), (1, third, third));
    assert!(store.stats().watches_broken >= 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hanging_etcd_times_out_and_recovers() {
    let Some(server) = EtcdServer::start() else { return };
    let url = format!("etcd://{}?timeout=1", server.endpoint());
    let store = EtcdStore::open(EtcdConfig::from_url(&url).unwrap()).await.unwrap();
    let start = commit(&store, put("a", "1")).await;
    server.pause();
    let write = timeout(Duration::from_secs(5), store.commit(put("a", "2"))).await.unwrap();
    assert!(matches!(write, Err(CommitError::Store(StoreError::Unknown(_)))), "{write:?}");
    let read = timeout(Duration::from_secs(5), store.get(&key("a"))).await.unwrap();
    assert!(matches!(read, Err(StoreError::Unavailable(_))), "{read:?}");
    assert!(store.check().await.is_err());
    server.resume();
    timeout(PATIENCE, async { while store.check().await.is_err() {} }).await.unwrap();
    let end = commit(&store, put("a", "3")).await;
    let events = follow(&store, start, end).await;
    assert_eq!(events.last().unwrap().revision, end);
}

/// Returns an address without a listener.
fn dead() -> std::net::SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_member_is_passed_over() {
    let Some(server) = EtcdServer::start() else { return };
    let url = format!("etcd://{},{},{}?order=given", dead(), dead(), server.endpoint());
    let store = EtcdStore::open(EtcdConfig::from_url(&url).unwrap()).await.unwrap();
    let revision = commit(&store, put("a", "1")).await;
    assert_eq!(store.get(&key("a")).await.unwrap().unwrap().revision, revision);
    assert_eq!(store.stats().failovers, 2);
}

/// A name has several addresses, some of which may be unusable. `localhost` also has an IPv6 address.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_is_good_while_one_of_its_addresses_is() {
    let Some(server) = EtcdServer::start() else { return };
    for _ in 0..4 {
        let url = format!("etcd://localhost:{}", server.port());
        let store = EtcdStore::open(EtcdConfig::from_url(&url).unwrap()).await.unwrap();
        let start = store.current_revision().await.unwrap();
        let end = commit(&store, put("a", "1")).await;
        assert_eq!((follow(&store, start, end).await.len(), store.stats().failovers), (1, 0));
    }
}

#[tokio::test]
async fn where_no_member_answers_each_is_named_with_its_fault() {
    let dead = dead();
    let url = format!("etcd://{dead},nowhere.invalid:2379?timeout=2");
    let text = EtcdStore::open(EtcdConfig::from_url(&url).unwrap()).await.err().unwrap().to_string();
    let expected =
        format!("no etcd answers at http://{dead}, http://nowhere.invalid:2379: http://{dead} says Connection refused");
    assert!(text.starts_with(&expected), "{text}");
    assert!(text.contains("; http://nowhere.invalid:2379 says the name nowhere.invalid has no address: "), "{text}");
}

/// Other programs' writes in the same etcd raise its revision. A reader that waits for the newest revision still
/// reaches it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tail_reaches_the_newest_revision_despite_foreign_writes() {
    let Some(server) = EtcdServer::start() else { return };
    let (store, foreign) = (open(&server, "/registry").await, open(&server, "/somebody/else").await);
    let start = commit(&store, put("a", "1")).await;
    let mut tail = store.tail(start).await.unwrap();
    for round in 0..3 {
        let other = commit(&foreign, put("b", round.to_string())).await;
        let newest = store.current_revision().await.unwrap();
        assert_eq!(newest, other);
        let batch = timeout(PATIENCE, tail.next()).await.unwrap().unwrap().unwrap();
        assert_eq!((batch.events.len(), batch.watermark), (0, newest));
        // The housekeeping writes for that have no revision in the store, on any server.
        assert_eq!(store.current_revision().await.unwrap(), newest);
        assert_eq!(open(&server, "/registry").await.current_revision().await.unwrap(), newest);
    }
    let stats = store.stats();
    assert!(stats.ticks + stats.progress_requests > 0);
    let entries = read(&store).await.entries;
    assert_eq!(entries.iter().map(|entry| entry.key.as_str()).collect::<Vec<_>>(), ["/registry/a"]);
    assert_eq!(store.count(everything(None)).await.unwrap(), 1);
}

/// After two concurrent compactions, the higher revision counts, and neither fails.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_servers_compact_together() {
    let Some(server) = EtcdServer::start() else { return };
    let stores = [open(&server, "/registry").await, open(&server, "/registry").await];
    let mut revisions = Vec::new();
    for round in 0..40 {
        revisions.push(commit(&stores[round % 2], put("a", round.to_string())).await);
    }
    let compact = |store: EtcdStore, from: usize| {
        let revisions = revisions.clone();
        tokio::spawn(async move {
            for at in (from..40).step_by(2) {
                store.compact(revisions[at]).await.unwrap();
            }
        })
    };
    let (one, two) = (compact(stores[0].clone(), 0), compact(stores[1].clone(), 1));
    one.await.unwrap();
    two.await.unwrap();
    let newest = revisions[39];
    for store in &stores {
        assert_eq!(store.oldest_revision().await.unwrap(), newest);
        assert_eq!(store.current_revision().await.unwrap(), newest);
        assert!(store.range(everything(Some(newest))).await.is_ok());
        let gone = store.range(everything(Some(revisions[38]))).await;
        assert!(matches!(gone, Err(StoreError::Compacted { oldest, .. }) if oldest == newest), "{gone:?}");
    }
}

/// If compaction removes a deletion at its own revision, an earlier tail must not continue without the deletion.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delete_that_compaction_took_is_not_passed_over() {
    let Some(server) = EtcdServer::start() else { return };
    let store = open(&server, "/registry").await;
    let before = commit(&store, put("a", "1")).await;
    let mut tail = store.tail(before).await.unwrap();
    let deleted = commit(&store, Transaction::default().delete(key("a"))).await;
    store.compact(deleted).await.unwrap();
    commit(&store, put("b", "1")).await;
    let next = timeout(PATIENCE, tail.next()).await.unwrap().unwrap();
    match next {
        Err(StoreError::Compacted { requested, oldest }) => assert_eq!((requested, oldest), (before, deleted)),
        Ok(batch) => panic!("{batch:?}"),
        Err(error) => panic!("{error}"),
    }
}

/// Two servers charge one quota: each creates a different object, and both write the same new state of the quota. One
/// server's write does not prove the other's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn equal_writes_of_other_servers_are_not_claimed() {
    let Some(server) = EtcdServer::start() else { return };
    let other = open(&server, "/registry").await;
    let way = LossyWay::to(server.port());
    let url = format!("etcd://127.0.0.1:{}/registry", way.port());
    let store = EtcdStore::open(EtcdConfig::from_url(&url).unwrap()).await.unwrap();
    let before = commit(&other, put("quota", "used: 1")).await;
    let charged = |object: &str| {
        put(object, object.to_owned()).put(key("quota"), "used: 2").when(key("quota"), Condition::At(before))
    };
    way.eat("mine");
    let lost = tokio::spawn({
        let (store, transaction) = (store.clone(), charged("mine"));
        async move { store.commit(transaction).await }
    });
    let eaten = async {
        while !way.has_eaten() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, eaten).await.unwrap();
    let theirs = commit(&other, charged("theirs")).await;
    let outcome = timeout(PATIENCE, lost).await.unwrap().unwrap();
    // The search may run before or after the other write, so the outcome is unknown or a refusal.
    let is_refused =
        matches!(&outcome, Err(CommitError::Compare { current: Some(current), .. }) if current.revision == theirs);
    assert!(is_refused || matches!(outcome, Err(CommitError::Store(StoreError::Unknown(_)))), "{outcome:?}");
    assert_eq!(other.get(&key("mine")).await.unwrap(), None);
}
