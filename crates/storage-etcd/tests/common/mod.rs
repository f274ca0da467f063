//! Stores and keys for the tests on a real etcd.
//!
//! Without an etcd the tests report that they did not run.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, reason = "each test uses its part; a test fails by a panic")]

use std::time::Duration;

use futures::StreamExt as _;
use keelson_meta::Revision;
use keelson_storage::{RangePage, RangeRequest, Store, StoreError, StoreEvent, StoreKey, Transaction};
use keelson_storage_etcd::{EtcdConfig, EtcdStore};
use keelson_teststores::EtcdServer;

/// A timeout that only a bug exceeds, even on two slow cores with six members, several stores and a build.
pub const PATIENCE: Duration = Duration::from_secs(150);

/// Opens a store under a prefix.
pub async fn open(server: &EtcdServer, prefix: &str) -> EtcdStore {
    let url = format!("etcd://{}{prefix}", server.endpoint());
    EtcdStore::open(EtcdConfig::from_url(&url).unwrap()).await.unwrap()
}

pub fn key(name: &str) -> StoreKey {
    StoreKey::new(format!("/registry/{name}"))
}

pub fn put(name: &str, value: impl Into<bytes::Bytes>) -> Transaction {
    Transaction::default().put(key(name), value)
}

pub async fn commit(store: &EtcdStore, transaction: Transaction) -> Revision {
    *store.commit(transaction).await.unwrap().revisions.last().unwrap()
}

pub fn everything(revision: Option<Revision>) -> RangeRequest {
    RangeRequest { from: key(""), to: StoreKey::prefix_end("/registry/"), revision, limit: None }
}

pub async fn read(store: &EtcdStore) -> RangePage {
    store.range(everything(None)).await.unwrap()
}

/// Reads a tail up to a revision. If it breaks, opens it again after its watermark, like the cache of a server.
pub async fn follow(store: &EtcdStore, after: Revision, until: Revision) -> Vec<StoreEvent> {
    tokio::time::timeout(PATIENCE, try_follow(store, after, until)).await.expect("the tail gets there")
}

async fn try_follow(store: &EtcdStore, after: Revision, until: Revision) -> Vec<StoreEvent> {
    let (mut events, mut watermark): (Vec<StoreEvent>, _) = (Vec::new(), after);
    while watermark < until {
        let mut tail = match store.tail(watermark).await {
            Ok(tail) => tail,
            Err(StoreError::Unavailable(_)) => continue,
            Err(error) => panic!("{error}"),
        };
        while watermark < until {
            match tail.next().await.unwrap() {
                Ok(batch) => {
                    let ascends = batch.events.first().is_none_or(|first| first.revision > watermark);
                    assert!(ascends && batch.watermark >= watermark, "{batch:?} after {watermark}");
                    watermark = batch.watermark;
                    events.extend(batch.events);
                }
                Err(StoreError::Unavailable(_)) => break,
                Err(error) => panic!("{error}"),
            }
        }
    }
    events
}
