//! A volume snapshot is restored while servers run. They detect it, continue above all revisions that they have
//! returned, and make clients list again. They do not serve data of another store, or a store that lost its data.

#![allow(clippy::unwrap_used)] // A test fails by a panic.

mod common;

use common::{PATIENCE, commit, everything, follow, key, open, put, read};
use futures::StreamExt as _;
use keelson_meta::Revision;
use keelson_storage::{CommitError, Condition, Store, StoreError, Tail};
use keelson_storage_etcd::{EtcdConfig, EtcdStore};
use keelson_teststores::{EtcdServer, LossyWay};
use tokio::time::timeout;

/// The number of lost changes.
const LOST: usize = 40;

/// Copies the data like a volume snapshot.
fn snapshot(server: &mut EtcdServer) {
    server.kill();
    server.copy_data();
    server.start_again();
}

fn set_back(server: &mut EtcdServer) {
    server.kill();
    server.put_data_back();
    server.start_again();
}

/// Retries until the store answers.
async fn revision(store: &EtcdStore) -> Revision {
    let answer = async {
        loop {
            match store.current_revision().await {
                Ok(revision) => return revision,
                Err(StoreError::Unavailable(_)) => tokio::time::sleep(std::time::Duration::from_millis(10)).await,
                Err(other) => panic!("{other}"),
            }
        }
    };
    timeout(PATIENCE, answer).await.unwrap()
}

async fn written(store: &EtcdStore, name: &str, value: &str) -> Revision {
    revision(store).await;
    commit(store, put(name, value.to_owned())).await
}

/// Checks that the tail ends, and delivers only earlier changes before.
async fn check_ends(tail: &mut Tail, seen: Revision) {
    let end = async {
        loop {
            match tail.next().await.unwrap() {
                Ok(batch) => assert!(batch.watermark <= seen, "{batch:?} after {seen}"),
                Err(error) => return error,
            }
        }
    };
    let error = timeout(PATIENCE, end).await.unwrap();
    assert!(matches!(error, StoreError::Compacted { .. }), "{error}");
}

async fn check_gone(store: &EtcdStore, at: Revision) {
    assert!(matches!(store.tail(at).await, Err(StoreError::Compacted { .. })), "a tail after {at}");
    let range = store.range(everything(Some(at))).await;
    assert!(matches!(range, Err(StoreError::Compacted { .. })), "{range:?}");
    assert!(matches!(store.count(everything(Some(at))).await, Err(StoreError::Compacted { .. })));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inv17_a_restored_etcd_continues_above_reported_revisions() {
    let Some(mut server) = EtcdServer::start() else { return };
    let store = open(&server, "/registry").await;
    let kept = commit(&store, put("kept", "1")).await;
    tokio::task::block_in_place(|| snapshot(&mut server));
    let mut lost = kept;
    for number in 0..LOST {
        lost = written(&store, "lost", &number.to_string()).await;
    }
    follow(&store, kept, lost).await;
    let mut tail = store.tail(kept).await.unwrap();
    while tail.next().await.unwrap().unwrap().watermark < lost {}
    tokio::task::block_in_place(|| set_back(&mut server));

    let now = revision(&store).await;
    assert!(now > lost, "{now} after {lost}");
    check_ends(&mut tail, lost).await;
    check_gone(&store, kept).await;
    check_gone(&store, lost).await;
    let page = read(&store).await;
    assert_eq!(page.entries.iter().map(|entry| entry.key.clone()).collect::<Vec<_>>(), [key("kept")]);
    assert!(page.revision >= now);
    // A reader that starts again gets every change.
    let mut tail = store.tail(page.revision).await.unwrap();
    let after = commit(&store, put("lost", "again").when(key("lost"), Condition::Absent)).await;
    assert!(after > now);
    let batch = timeout(PATIENCE, tail.next()).await.unwrap().unwrap().unwrap();
    assert_eq!((batch.events.len(), batch.events[0].revision), (1, after));
    // New servers return the same.
    let other = open(&server, "/registry").await;
    assert_eq!(revision(&other).await, after);
    check_gone(&other, lost).await;
}

/// Before this server could check, other clients have written as much as was lost, so no revision is lower than before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inv17_replaced_revisions_of_a_restored_etcd_are_detected() {
    let Some(mut server) = EtcdServer::start() else { return };
    let way = LossyWay::to(server.port());
    let url = format!("etcd://127.0.0.1:{}/registry", way.port());
    let late = EtcdStore::open(EtcdConfig::from_url(&url).unwrap()).await.unwrap();
    let kept = commit(&late, put("kept", "1")).await;
    tokio::task::block_in_place(|| snapshot(&mut server));
    written(&late, "k", "lost").await;
    let lost = written(&late, "k", "lost too").await;
    let mut tail = late.tail(kept).await.unwrap();
    while tail.next().await.unwrap().unwrap().watermark < lost {}
    way.close();
    tokio::task::block_in_place(|| set_back(&mut server));
    let early = open(&server, "/registry").await;
    let mut other = commit(&early, put("k", "other")).await;
    while other < lost {
        other = commit(&early, put("k", format!("other at {lost}"))).await;
    }
    assert_eq!(other, lost, "one revision, two versions");
    let newest = commit(&early, put("x", "1")).await;
    way.mend();

    // The tail detects the reset when it opens again, without another request.
    check_ends(&mut tail, lost).await;
    let now = revision(&late).await;
    assert!(now > newest, "{now} after {newest}");
    assert!(revision(&early).await >= now);
    let refused = late.commit(put("k", "mine").when(key("k"), Condition::At(lost))).await;
    let Err(CommitError::Compare { current: Some(current), .. }) = refused else { panic!("{refused:?}") };
    assert_eq!(current.value, format!("other at {lost}"));
    assert!(current.revision > newest && current.revision <= now, "{} up to {now}", current.revision);
    check_gone(&late, lost).await;
    let page = read(&late).await;
    let revisions: Vec<_> = page.entries.iter().map(|entry| entry.revision > newest).collect();
    assert_eq!(revisions, [true, false, true], "only later writes are repeated");
}

/// Checks that every call on an etcd with other content fails with these words, and that the health check fails too.
async fn check_refused(store: &EtcdStore, words: &str) {
    let refusal = async {
        loop {
            match store.current_revision().await {
                Err(StoreError::Unavailable(text)) if text.contains(words) => return,
                Err(StoreError::Unavailable(_)) => tokio::time::sleep(std::time::Duration::from_millis(10)).await,
                other => panic!("{other:?}"),
            }
        }
    };
    timeout(PATIENCE, refusal).await.unwrap();
    let found = store.range(everything(None)).await;
    assert!(matches!(&found, Err(StoreError::Unavailable(text)) if text.contains(words)), "{found:?}");
    let found = store.get(&key("kept")).await;
    assert!(matches!(&found, Err(StoreError::Unavailable(text)) if text.contains(words)), "{found:?}");
    let found = store.commit(put("new", "x")).await;
    let Err(CommitError::Store(StoreError::Unavailable(text))) = &found else { panic!("{found:?}") };
    assert!(text.contains(words) && text.contains("put its data back"), "{text}");
    assert!(store.check().await.is_err() && store.compact(Revision::new(1)).await.is_err());
}

/// Checks that a tail fails, since the store is gone.
async fn check_silent(store: &EtcdStore, after: Revision) {
    match store.tail(after).await {
        Err(StoreError::Unavailable(_)) => {}
        other => panic!("{:?}", other.err()),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_emptied_etcd_is_detected() {
    let Some(mut server) = EtcdServer::start() else { return };
    let store = open(&server, "/registry").await;
    commit(&store, put("gone", "1")).await;
    let kept = commit(&store, put("kept", "1")).await;
    let mut tail = store.tail(kept).await.unwrap();
    tokio::task::block_in_place(|| {
        server.kill();
        server.copy_data();
        server.remove_data();
        server.start_again();
    });
    check_refused(&store, "holds no objects").await;
    check_silent(&store, kept).await;
    // Other servers start on this etcd and write more than was lost, so no revision shows the replacement.
    let other = open(&server, "/registry").await;
    while commit(&other, put("other", "x")).await <= kept.next().next() {}
    commit(&other, put("kept", "1")).await;
    check_refused(&store, "holds another store").await;
    check_silent(&store, kept).await;
    assert!(other.get(&key("new")).await.unwrap().is_none(), "nothing is written into it");

    // The data returns, and the store continues at its last revision.
    tokio::task::block_in_place(|| set_back(&mut server));
    revision(&store).await;
    assert_eq!(read(&store).await.entries.len(), 2);
    let next = commit(&store, put("next", "1")).await;
    let events = follow(&store, kept, next).await;
    assert_eq!(events.iter().map(|event| event.key.clone()).collect::<Vec<_>>(), [key("next")]);
    // An earlier tail also continues, or ends as broken.
    match timeout(PATIENCE, tail.next()).await.unwrap().unwrap() {
        Ok(batch) => assert!(batch.events.iter().all(|event| event.value.is_some()), "{batch:?}"),
        Err(error) => assert!(matches!(error, StoreError::Unavailable(_)), "{error}"),
    }
}

/// The etcd was away, and returns with higher revisions than before. Only the name shows that it has another store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_store_with_higher_revisions_is_detected_by_name() {
    let Some(mut server) = EtcdServer::start() else { return };
    let way = LossyWay::to(server.port());
    let url = format!("etcd://127.0.0.1:{}/registry", way.port());
    let store = EtcdStore::open(EtcdConfig::from_url(&url).unwrap()).await.unwrap();
    let kept = commit(&store, put("kept", "1")).await;
    let mut tail = store.tail(kept).await.unwrap();
    way.close();
    tokio::task::block_in_place(|| {
        server.kill();
        server.remove_data();
        server.start_again();
    });
    let other = open(&server, "/registry").await;
    let mut newest = kept;
    for number in 0..LOST {
        newest = commit(&other, put("other", number.to_string())).await;
    }
    assert!(newest > kept);
    // After a compaction, caches load everything again.
    other.compact(newest).await.unwrap();
    way.mend();
    check_refused(&store, "holds another store").await;
    check_silent(&store, kept).await;
    let told = tokio::time::timeout(std::time::Duration::from_millis(300), tail.next()).await;
    assert!(matches!(told, Err(_) | Ok(Some(Err(StoreError::Unavailable(_))))), "{told:?}");
}
