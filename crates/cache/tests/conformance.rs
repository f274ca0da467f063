//! Runs the conformance suite of stores on the cache, which answers all reads.
//!
//! Writes go to an engine. Gets, ranges at a revision, counts and tails come from snapshots and watch cursors. As in
//! the registry, the engine answers only for revisions before the cache's history. The values of the suite are bytes,
//! so the test wraps them in objects on writes and unwraps them on reads.

#![allow(clippy::unwrap_used, reason = "clippy takes only test functions for tests, not their helpers")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream;
use keelson_cache::{Cache, CacheConfig, Collection, CollectionSpec, Entry, Scope, Snapshot};
use keelson_meta::json::{Value, json};
use keelson_meta::{Revision, SystemClock};
use keelson_storage::conformance::Factory;
use keelson_storage::memory::MemoryStore;
use keelson_storage::{
    CommitError, Committed, KeyValue, RangePage, RangeRequest, Seal, Store, StoreError, StoreEvent, StoreKey, Tail,
    TailBatch, Transaction, Write,
};
use keelson_storage_etcd::{EtcdConfig, EtcdStore};
use keelson_storage_sql::{PostgresConfig, PostgresStore, SqliteConfig, SqliteStore};
use keelson_teststores::{EtcdServer, PostgresServer};

/// All keys are in one collection.
const PREFIX: &str = "/";
const PATIENCE: Duration = Duration::from_secs(30);
/// The number of events that a tail takes at once.
const BATCH: usize = 1000;

/// An engine behind its cache.
struct CachedStore {
    engine: Arc<dyn Store>,
    cache: Arc<Cache>,
}

impl CachedStore {
    async fn over(engine: Arc<dyn Store>) -> Self {
        let spec = CollectionSpec {
            prefix: PREFIX.to_owned(),
            fields: Vec::new(),
            dispatch: None,
            complete: None,
            typed_items: false,
        };
        let config = CacheConfig::new(Arc::new(SystemClock));
        let cache = Cache::start(engine.clone(), vec![spec], config).await.unwrap();
        Self { engine, cache }
    }

    fn collection(&self) -> Arc<Collection> {
        self.cache.collections().remove(0)
    }

    async fn catch_up(&self) -> Result<Revision, StoreError> {
        let newest = self.engine.current_revision().await?;
        self.cache.wait_for(newest, PATIENCE).await.unwrap();
        Ok(newest)
    }

    /// The snapshot at a revision. `None` if only the engine has it.
    async fn snapshot(&self, revision: Option<Revision>) -> Result<Option<Snapshot>, StoreError> {
        let current = self.catch_up().await?;
        let Some(requested) = revision else {
            return Ok(Some(self.collection().snapshot()));
        };
        if requested > current {
            return Err(StoreError::Future { requested, current });
        }
        let oldest = self.engine.oldest_revision().await?;
        if requested < oldest {
            return Err(StoreError::Compacted { requested, oldest });
        }
        Ok(self.collection().snapshot_at(requested).ok())
    }
}

#[async_trait]
impl Store for CachedStore {
    async fn commit(&self, mut transaction: Transaction) -> Result<Committed, CommitError> {
        for write in &mut transaction.writes {
            if let Write::Put { value, .. } = write {
                *value = wrapped(value);
            }
        }
        self.engine.commit(transaction).await.map_err(|error| match error {
            CommitError::Compare { index, current } => CommitError::Compare { index, current: current.map(unwrapped) },
            CommitError::Store(error) => CommitError::Store(error),
        })
    }

    async fn get(&self, key: &StoreKey) -> Result<Option<KeyValue>, StoreError> {
        self.catch_up().await?;
        Ok(self.collection().get(relative(key)).map(|entry| stored(&entry)))
    }

    async fn range(&self, request: RangeRequest) -> Result<RangePage, StoreError> {
        let Some(snapshot) = self.snapshot(request.revision).await? else {
            let page = self.engine.range(request).await?;
            return Ok(RangePage { entries: page.entries.into_iter().map(unwrapped).collect(), ..page });
        };
        let (from, to) = (relative(&request.from), relative(&request.to));
        let limit = request.limit.unwrap_or(usize::MAX);
        let entries: Vec<_> = snapshot.range(from, Some(to)).take(limit).map(|entry| stored(entry)).collect();
        let more = snapshot.count(from, Some(to)) > entries.len();
        Ok(RangePage { entries, revision: request.revision.unwrap_or(snapshot.revision), more })
    }

    async fn count(&self, request: RangeRequest) -> Result<u64, StoreError> {
        match self.snapshot(request.revision).await? {
            Some(snapshot) => {
                let count = snapshot.count(relative(&request.from), Some(relative(&request.to)));
                Ok(count.min(request.limit.unwrap_or(usize::MAX)) as u64)
            }
            None => self.engine.count(request).await,
        }
    }

    async fn current_revision(&self) -> Result<Revision, StoreError> {
        self.engine.current_revision().await
    }

    async fn oldest_revision(&self) -> Result<Revision, StoreError> {
        self.engine.oldest_revision().await
    }

    async fn tail(&self, after: Revision) -> Result<Tail, StoreError> {
        let current = self.catch_up().await?;
        if after > current {
            return Err(StoreError::Future { requested: after, current });
        }
        let oldest = self.engine.oldest_revision().await?;
        if after < oldest {
            return Err(StoreError::Compacted { requested: after, oldest });
        }
        // After a restart, the backfill adds the earlier history.
        self.cache.wait_for_history(after, PATIENCE).await;
        let cursor = self.collection().watch(after, Scope::All);
        let cursor = match cursor {
            Ok(cursor) => cursor,
            // The suite has compacted the revision meanwhile.
            Err(gone) if after < self.engine.oldest_revision().await? => {
                return Err(StoreError::Compacted { requested: after, oldest: gone.oldest });
            }
            Err(gone) => {
                panic!("the engine knows what happened after {after}, and the cache only from {} on", gone.oldest)
            }
        };
        let batches = stream::unfold(cursor, |mut cursor| async move {
            let batch = cursor
                .next(BATCH)
                .await
                .map_err(|gone| StoreError::Compacted { requested: gone.requested, oldest: gone.oldest });
            let batch = batch.map(|batch| TailBatch {
                events: batch.events.iter().map(|event| store_event(event)).collect(),
                watermark: batch.watermark,
            });
            Some((batch, cursor))
        });
        Ok(batches.boxed())
    }

    async fn compact(&self, oldest: Revision) -> Result<(), StoreError> {
        self.engine.compact(oldest).await?;
        self.cache.compacted(oldest);
        Ok(())
    }

    async fn expire(&self, now: SystemTime) -> Result<usize, StoreError> {
        self.engine.expire(now).await
    }

    fn seal(&self, key: &str) -> Seal {
        self.engine.seal(key)
    }

    async fn verify(&self) -> Result<(), StoreError> {
        self.engine.verify().await
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.engine.check().await
    }
}

fn relative(key: &StoreKey) -> &str {
    key.as_str().strip_prefix(PREFIX).unwrap()
}

fn stored(entry: &Entry) -> KeyValue {
    KeyValue::new(StoreKey::new(format!("{PREFIX}{}", entry.key)), plain(&entry.object().bytes()), entry.revision)
}

fn store_event(event: &keelson_cache::Event) -> StoreEvent {
    StoreEvent::new(
        StoreKey::new(format!("{PREFIX}{}", event.key())),
        event.revision,
        event.current.as_ref().map(|entry| plain(&entry.object().bytes())),
    )
}

/// An object with the bytes as a list of numbers.
fn wrapped(value: &Bytes) -> Bytes {
    let object = json!({"kind": "Held", "apiVersion": "v1", "metadata": {}, "bytes": value.to_vec()});
    Bytes::from(object.to_string())
}

fn plain(object: &Bytes) -> Bytes {
    let object: Value = serde_json::from_slice(object).unwrap();
    let bytes = object["bytes"].as_array().unwrap().iter();
    bytes.map(|byte| u8::try_from(byte.as_u64().unwrap()).unwrap()).collect()
}

fn unwrapped(stored: KeyValue) -> KeyValue {
    KeyValue { value: plain(&stored.value), ..stored }
}

/// A cache over an engine. Reopening it acts as the start of another server on the same store.
struct Cached<F>(F);

impl<F: Factory> Factory for Cached<F> {
    async fn open(&mut self) -> Arc<dyn Store> {
        Arc::new(CachedStore::over(self.0.open().await).await)
    }

    fn survives_reopening(&self) -> bool {
        self.0.survives_reopening()
    }
}

#[derive(Default)]
struct InMemory(MemoryStore);

impl Factory for InMemory {
    async fn open(&mut self) -> Arc<dyn Store> {
        Arc::new(self.0.clone())
    }
}

/// An in-memory SQLite store loses its contents with its handle. A file is locked until the cache's tasks end. So this
/// test does not reopen the store. Tests on other engines do.
struct OnSqlite;

impl Factory for OnSqlite {
    async fn open(&mut self) -> Arc<dyn Store> {
        Arc::new(SqliteStore::open(SqliteConfig::in_memory()).unwrap())
    }

    fn survives_reopening(&self) -> bool {
        false
    }
}

/// A separate database on the PostgreSQL of this process.
struct OnPostgres(String);

impl OnPostgres {
    /// Returns `None` without PostgreSQL.
    fn new() -> Option<Self> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        PostgresServer::shared().map(|server| Self(server.create_database(&format!("case{number}"))))
    }
}

impl Factory for OnPostgres {
    async fn open(&mut self) -> Arc<dyn Store> {
        let config = PostgresConfig::from_url(&self.0).unwrap();
        Arc::new(PostgresStore::open(config).await.unwrap())
    }
}

mod over_memory {
    keelson_storage::conformance_tests!(super::Cached(super::InMemory::default()));
}

mod over_sqlite {
    keelson_storage::conformance_tests!(super::Cached(super::OnSqlite));
}

mod over_postgres {
    keelson_storage::conformance_tests!(super::Cached(match super::OnPostgres::new() {
        Some(engine) => engine,
        // PostgreSQL is missing, which the test kit reports.
        None => return,
    }));
}

/// A private etcd that accepts the suite's largest value as an object.
struct OnEtcd(EtcdServer);

impl OnEtcd {
    /// Returns `None` without etcd.
    fn new() -> Option<Self> {
        EtcdServer::builder().arg("--max-request-bytes=10485760").start().map(Self)
    }
}

impl Factory for OnEtcd {
    async fn open(&mut self) -> Arc<dyn Store> {
        Arc::new(EtcdStore::open(EtcdConfig::new([self.0.endpoint()])).await.unwrap())
    }
}

mod over_etcd {
    keelson_storage::conformance_tests!(super::Cached(match super::OnEtcd::new() {
        Some(engine) => engine,
        // etcd is missing, which the test kit reports.
        None => return,
    }));
}
