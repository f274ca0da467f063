//! Tests of tails over a long history.
//!
//! etcd delivers the history in portions, and may compact it meanwhile.

#![allow(clippy::unwrap_used)] // A test fails by a panic.

mod common;

use common::{commit, everything, follow, key, put};
use futures::future::join_all;
use keelson_meta::Revision;
use keelson_storage::{Store, Transaction};
use keelson_storage_etcd::{EtcdConfig, EtcdStore};
use keelson_teststores::{EtcdServer, EtcdServerBuilder};

/// The number of concurrent writers, and of revisions of each.
const WRITERS: usize = 64;
const EACH: usize = 90;

async fn open(server: &EtcdServer, prefix: &str) -> EtcdStore {
    let url = format!("etcd://{}{prefix}", server.endpoint());
    EtcdStore::open(EtcdConfig::from_url(&url).unwrap()).await.unwrap()
}

/// Writes and deletes keys, one in each revision. Some revisions write two keys.
async fn write(store: &EtcdStore, writer: usize) -> usize {
    let mut events = 0;
    for round in 0..EACH {
        let name = format!("w{writer}/{}", round / 2 % 9);
        let transaction = match round % 6 {
            1 => Transaction::default().delete(key(&name)),
            3 => put(&name, "x").put(key(&format!("w{writer}/more")), "y"),
            _ => put(&name, vec![b'x'; round]),
        };
        events += transaction.writes.len();
        commit(store, transaction).await;
    }
    events
}

async fn a_long_history_is_told_whole_and_in_order(builder: EtcdServerBuilder) {
    let Some(server) = builder.start() else { return };
    let (store, foreign) = (open(&server, "/registry").await, open(&server, "/somebody/else").await);
    let start = store.current_revision().await.unwrap();
    let events: usize = join_all((0..WRITERS).map(|writer| write(&store, writer))).await.into_iter().sum();
    // Another prefix has as much history, and none of it is delivered.
    join_all((0..WRITERS).map(|writer| write(&foreign, writer))).await;
    let end = store.current_revision().await.unwrap();
    let told = follow(&store, start, end).await;
    assert_eq!(told.len(), events);
    assert!(told.windows(2).all(|pair| pair[0].revision <= pair[1].revision));
    let mut keys: Vec<_> = told.iter().map(|event| (event.revision, &event.key)).collect();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), events, "each event came once");
    // A tail from the middle of the history, which also delivers new writes.
    let middle = Revision::new(start.get() + (WRITERS * EACH / 3) as u64);
    let expected: Vec<_> = told.iter().filter(|event| event.revision > middle).cloned().collect();
    assert_eq!(follow(&store, middle, end).await, expected);
    let last = commit(&store, put("last", "1")).await;
    let told = follow(&store, middle, last).await;
    assert_eq!((told.len(), told.last().unwrap().revision), (expected.len() + 1, last));
    assert!(store.count(everything(None)).await.unwrap() > 0 && store.stats().watches_broken == 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_history_of_the_usual_etcd() {
    a_long_history_is_told_whole_and_in_order(EtcdServer::builder()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_history_of_the_newest_etcd() {
    a_long_history_is_told_whole_and_in_order(EtcdServer::builder().newest()).await;
}
