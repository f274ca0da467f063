//! A store with something before its commits: [`BoundedStore`](crate::BoundedStore) and [`FencedStore`](crate::FencedStore).
//!
//! Reads pass as they are. What is done with a commit is a [`CommitGuard`], so that each such store says only that.

use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use keelson_meta::Revision;

use crate::key::StoreKey;
use crate::store::{
    CommitError, Committed, KeyValue, RangePage, RangeRequest, Scan, ScanRequest, Store, StoreError, Tail, Transaction,
};

/// What stands before the commits of a store.
pub trait CommitGuard: Send + Sync + 'static {
    /// Commits a transaction to the store behind it, or refuses it.
    ///
    /// # Errors
    /// As [`Store::commit`].
    fn commit(
        &self,
        store: &dyn Store,
        transaction: Transaction,
    ) -> impl Future<Output = Result<Committed, CommitError>> + Send;

    /// The reason for which it refuses new data, beside those of the store.
    fn refusal(&self) -> Option<String> {
        None
    }

    /// Whether it lets anything through.
    ///
    /// # Errors
    /// As [`Store::check`].
    fn check(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// A store behind a guard.
pub struct GuardedStore<G> {
    store: Arc<dyn Store>,
    guard: G,
}

impl<G> GuardedStore<G> {
    pub(crate) fn behind(store: Arc<dyn Store>, guard: G) -> Self {
        Self { store, guard }
    }
}

#[async_trait]
impl<G: CommitGuard> Store for GuardedStore<G> {
    async fn commit(&self, transaction: Transaction) -> Result<Committed, CommitError> {
        self.guard.commit(&*self.store, transaction).await
    }

    async fn get(&self, key: &StoreKey) -> Result<Option<KeyValue>, StoreError> {
        self.store.get(key).await
    }

    async fn range(&self, request: RangeRequest) -> Result<RangePage, StoreError> {
        self.store.range(request).await
    }

    fn scan(&self, request: ScanRequest) -> Option<Scan> {
        self.store.scan(request)
    }

    async fn count(&self, request: RangeRequest) -> Result<u64, StoreError> {
        self.store.count(request).await
    }

    async fn current_revision(&self) -> Result<Revision, StoreError> {
        self.store.current_revision().await
    }

    fn known_revision(&self) -> Option<Revision> {
        self.store.known_revision()
    }

    async fn oldest_revision(&self) -> Result<Revision, StoreError> {
        self.store.oldest_revision().await
    }

    async fn tail(&self, after: Revision) -> Result<Tail, StoreError> {
        self.store.tail(after).await
    }

    async fn compact(&self, oldest: Revision) -> Result<(), StoreError> {
        self.store.compact(oldest).await
    }

    async fn crowded(&self) -> Revision {
        self.store.crowded().await
    }

    async fn expire(&self, now: SystemTime) -> Result<usize, StoreError> {
        self.store.expire(now).await
    }

    fn refusal(&self) -> Option<String> {
        self.store.refusal().or_else(|| self.guard.refusal())
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.guard.check()?;
        self.store.check().await
    }
}
