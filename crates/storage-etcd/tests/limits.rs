//! Tests of large events, ranges and transactions, and of those that etcd refuses.
//!
//! The size limit of an object is equal on all stores, so it applies before etcd's own limit.

#![allow(clippy::unwrap_used)] // A test fails by a panic.

mod common;

use std::time::{Duration, SystemTime};

use common::{commit, everything, follow, key, open, put, read};
use futures::TryStreamExt as _;
use keelson_storage::{CommitError, RangeRequest, ScanRequest, Store, StoreError, StoreKey, Transaction, Write};
use keelson_storage_etcd::{EtcdConfig, EtcdStore};
use keelson_teststores::EtcdServer;

/// Returns different bytes for every number.
fn bytes(number: usize, length: usize) -> Vec<u8> {
    let seed = u64::try_from(number).unwrap() + 1;
    (0..length as u64).map(|at| ((at + 1).wrapping_mul(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

/// etcd splits watch responses that exceed the size limit of a request. The events of a single revision can be as
/// large.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_that_come_in_fragments_are_whole() {
    let Some(server) = EtcdServer::builder().arg("--max-request-bytes=2000000").start() else { return };
    let store = open(&server, "/registry").await;
    let start = store.current_revision().await.unwrap();
    let mut written = Vec::new();
    for round in 0..10 {
        let transaction = (0..3).fold(Transaction::default(), |so_far, part| {
            so_far.put(key(&format!("{round}/{part}")), bytes(round * 3 + part, 600_000))
        });
        written.push(commit(&store, transaction).await);
    }
    let events = follow(&store, start, written[9]).await;
    assert_eq!(events.len(), 30);
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event.revision, written[number / 3]);
        assert_eq!(event.value.as_deref(), Some(&bytes(number, 600_000)[..]));
    }
}

/// A range with more entries and bytes than one response should have.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_range_is_read_in_pages_at_one_revision() {
    let Some(server) = EtcdServer::start() else { return };
    let store = open(&server, "/clusters/one").await;
    for first in (0..3000).step_by(100) {
        let transaction = (first..first + 100).fold(Transaction::default(), |so_far, number| {
            so_far.put(key(&format!("pods/{number:05}")), bytes(number, 3000))
        });
        commit(&store, transaction).await;
    }
    let whole = read(&store).await;
    assert_eq!(whole.entries.len(), 3000);
    for (number, entry) in whole.entries.iter().enumerate() {
        assert_eq!(entry.key, key(&format!("pods/{number:05}")));
        assert_eq!(entry.value, bytes(number, 3000));
    }
    for limit in [499, 500, 501, 2999, 3000] {
        let page = store.range(RangeRequest { limit: Some(limit), ..everything(None) }).await.unwrap();
        assert_eq!((page.entries.len(), page.more), (limit, limit < 3000), "limit {limit}");
        assert_eq!(page.entries[..], whole.entries[..limit]);
    }
    // A scan reads few pages, since etcd counts all later keys for each page.
    let ranges = vec![(key("pods/"), key("pods0"))];
    let scan = store.scan(ScanRequest { ranges, revision: whole.revision }).unwrap();
    let pages: Vec<_> = scan.try_collect().await.unwrap();
    assert_eq!(pages.iter().map(Vec::len).collect::<Vec<_>>(), [500, 2500]);
    assert_eq!(pages.concat(), whole.entries);
    commit(&store, put("pods/00000", "new")).await;
    assert_eq!(store.range(everything(Some(whole.revision))).await.unwrap(), whole);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_refused_by_etcd_fail_with_its_reason() {
    let Some(server) = EtcdServer::start() else { return };
    let store = open(&server, "/registry").await;
    // The first put also writes the name of the store.
    let before = commit(&store, put("small", "x")).await;
    let many = (0..5000).fold(Transaction::default(), |so_far, number| {
        so_far.put(StoreKey::new(format!("/registry/many/{number}")), "x")
    });
    for (transaction, words) in [
        (put("large", vec![0; 1_600_000]), "--max-request-bytes"),
        (put("larger", vec![0; 3_000_000]), "--max-request-bytes"),
        (many, "5000 writes in one transaction; etcd takes 4096"),
    ] {
        let refused = store.commit(transaction).await.unwrap_err();
        assert!(matches!(refused, CommitError::Store(StoreError::TooLarge(_))), "{refused}");
        assert!(refused.to_string().contains(words), "{refused}");
    }
    assert_eq!(store.current_revision().await.unwrap(), before);
}

/// After its space alarm, etcd refuses puts until an operator frees space and disarms the alarm. Deletions and
/// compaction succeed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_etcd_accepts_deletions_and_compaction_but_no_puts() {
    let Some(server) = EtcdServer::builder().arg("--quota-backend-bytes=4194304").start() else { return };
    let store = open(&server, "/registry").await;
    let mut number = 0;
    let refused = loop {
        number += 1;
        if let Err(refused) = store.commit(put("large", bytes(number, 500_000))).await {
            break refused;
        }
        assert!(number < 100, "the quota is some writes");
    };
    assert!(matches!(refused, CommitError::Store(StoreError::EtcdFull(_))), "{refused}");
    assert!(refused.to_string().contains("space exceeded"), "{refused}");
    assert!(store.stats().full);
    // The store must work, so that clients can free space: it answers, deletes, expires and compacts.
    store.check().await.unwrap();
    let deleted = commit(&store, Transaction::default().delete(key("large"))).await;
    assert!(store.stats().full, "a deletion proves no free space");
    store.expire(SystemTime::now()).await.unwrap();
    store.compact(deleted).await.unwrap();
    assert_eq!(store.oldest_revision().await.unwrap(), deleted);
    server.ask("/v3/maintenance/defragment", "{}");
    let alarms = server.ask("/v3/maintenance/alarm", r#"{"action":"GET"}"#);
    let member = alarms.split("\"memberID\":\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
    let disarm = format!(r#"{{"action":"DEACTIVATE","memberID":"{member}","alarm":"NOSPACE"}}"#);
    server.ask("/v3/maintenance/alarm", &disarm);
    commit(&store, put("small", "x")).await;
    store.check().await.unwrap();
    assert!(!store.stats().full);
}

/// Keys expire even if no server runs, since they have leases in etcd.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_that_end_share_a_lease_and_go_in_one_revision() {
    let Some(server) = EtcdServer::start() else { return };
    let stores = [open(&server, "/registry").await, open(&server, "/registry").await];
    let end = SystemTime::now() + Duration::from_secs(3600);
    let start = stores[0].current_revision().await.unwrap();
    for number in 0..10 {
        let value = bytes(number, 10).into();
        let write = Write::Put { key: key(&format!("events/{number}")), value, expires: Some(end) };
        commit(&stores[number % 2], Transaction { writes: vec![write], ..Transaction::default() }).await;
    }
    assert_eq!(stores[0].expire(SystemTime::now()).await.unwrap(), 0);
    let (one, two) = tokio::join!(stores[0].expire(end), stores[1].expire(end));
    assert!((10..=20).contains(&(one.unwrap() + two.unwrap())));
    let newest = stores[0].current_revision().await.unwrap();
    let events = follow(&stores[0], start, newest).await;
    let ended: Vec<_> = events.iter().filter(|event| event.value.is_none()).collect();
    assert_eq!(ended.len(), 10);
    assert!(ended.iter().all(|event| event.revision == newest));
    // A lease that another server has revoked is created again.
    let write = Write::Put { key: key("events/late"), value: "x".into(), expires: Some(end) };
    commit(&stores[1], Transaction { writes: vec![write], ..Transaction::default() }).await;
    assert_eq!(stores[0].expire(end).await.unwrap(), 1);
}

/// Some builds of etcd lack gzip. Opening the store fails on them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compression_works_or_is_refused_when_the_store_is_opened() {
    let Some(server) = EtcdServer::start() else { return };
    let url = format!("etcd://{}?compression=gzip", server.endpoint());
    match EtcdStore::open(EtcdConfig::from_url(&url).unwrap()).await {
        Ok(store) => {
            let start = store.current_revision().await.unwrap();
            let end = commit(&store, put("a", bytes(1, 100_000))).await;
            assert_eq!(store.get(&key("a")).await.unwrap().unwrap().value, bytes(1, 100_000));
            assert_eq!(follow(&store, start, end).await.len(), 1);
        }
        Err(error) => {
            let text = error.to_string();
            assert!(text.contains("refuses us: ") && text.contains("grpc-encoding \"gzip\""), "{text}");
        }
    }
}
