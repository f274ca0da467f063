//! Databases, stores and keys for the tests on PostgreSQL.
//!
//! Each test has a separate database on one private server.
#![allow(dead_code, unreachable_pub, reason = "each test uses its part")]

use std::sync::atomic::{AtomicUsize, Ordering};

use futures::StreamExt;
use keelson_meta::Revision;
use keelson_storage::{RangeRequest, Store, StoreEvent, StoreKey, Tail, Transaction};
use keelson_storage_sql::{PostgresConfig, PostgresStore};
use keelson_teststores::PostgresServer;

/// The URL of an empty database on the PostgreSQL of this process. None without PostgreSQL.
pub fn database() -> Option<String> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    Some(PostgresServer::shared()?.create_database(&format!("case{number}")))
}

pub async fn open(url: &str) -> PostgresStore {
    PostgresStore::open(PostgresConfig::from_url(url).unwrap()).await.unwrap()
}

pub fn key(name: &str) -> StoreKey {
    StoreKey::new(format!("/registry/things/{name}"))
}

pub fn put(name: &str, value: &str) -> Transaction {
    Transaction::default().put(key(name), value.to_owned())
}

pub async fn commit(store: &dyn Store, transaction: Transaction) -> Revision {
    *store.commit(transaction).await.unwrap().revisions.last().unwrap()
}

pub fn everything(revision: Option<Revision>, limit: Option<usize>) -> RangeRequest {
    RangeRequest { from: key(""), to: StoreKey::prefix_end("/registry/things/"), revision, limit }
}

/// Reads a tail up to a revision.
pub async fn drain(tail: &mut Tail, until: Revision) -> Vec<StoreEvent> {
    let mut events = Vec::new();
    loop {
        let batch = tail.next().await.unwrap().unwrap();
        events.extend(batch.events);
        if batch.watermark >= until {
            return events;
        }
    }
}
