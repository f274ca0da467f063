//! A store with a guard for its commits: [`BoundedStore`](crate::BoundedStore) and [`FencedStore`](crate::FencedStore).
//!
//! Reads pass unchanged. The [`CommitGuard`] of such a store handles its commits.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use async_trait::async_trait;
use keelson_meta::Revision;
use tracing::field::Empty;
use tracing::{Instrument as _, Span, debug_span};

use crate::key::StoreKey;
use crate::meter::{StoreMeter, StoreOperation, has_failed, is_fault};
use crate::seal::Seal;
use crate::store::{
    CommitError, Committed, KeyValue, RangePage, RangeRequest, Scan, ScanRequest, Store, StoreError, Tail, Transaction,
};

/// A guard for the commits of a store.
pub trait CommitGuard: Send + Sync + 'static {
    /// Commits a transaction to the store, or refuses it.
    ///
    /// # Errors
    /// Errors of [`Store::commit`].
    fn commit(
        &self,
        store: &dyn Store,
        transaction: Transaction,
    ) -> impl Future<Output = Result<Committed, CommitError>> + Send;

    /// The guard's reason for refusing new data, in addition to the store's.
    fn refusal(&self) -> Option<String> {
        None
    }

    /// Checks that the guard lets commits through.
    ///
    /// # Errors
    /// Errors of [`Store::check`].
    fn check(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// A store behind a guard.
pub struct GuardedStore<G> {
    store: Arc<dyn Store>,
    guard: G,
    meter: Option<Arc<dyn StoreMeter>>,
}

impl<G> GuardedStore<G> {
    pub(crate) fn behind(store: Arc<dyn Store>, guard: G) -> Self {
        Self { store, guard, meter: None }
    }

    /// Counts requests with a meter.
    #[must_use]
    pub fn metered(self, meter: Arc<dyn StoreMeter>) -> Self {
        Self { meter: Some(meter), ..self }
    }

    /// Creates the span of a request. Of several guards around a store, only the one with a meter has spans.
    fn span(&self, make: impl FnOnce() -> Span) -> Span {
        if self.meter.is_some() { make() } else { Span::none() }
    }

    /// Counts a request.
    fn note(&self, operation: StoreOperation, key: &StoreKey, begun: Instant, failed: bool) {
        if let Some(meter) = &self.meter {
            meter.note(operation, key, begun.elapsed(), failed);
        }
    }
}

#[async_trait]
impl<G: CommitGuard> Store for GuardedStore<G> {
    async fn commit(&self, transaction: Transaction) -> Result<Committed, CommitError> {
        let counted = self.meter.as_ref().and_then(|_| StoreOperation::from_transaction(&transaction));
        let begun = Instant::now();
        let span = self.span(|| commit_span(&transaction));
        let outcome = self.guard.commit(&*self.store, transaction).instrument(span.clone()).await;
        match &outcome {
            Ok(committed) => drop(committed.revisions.last().map(|newest| span.record("revision", newest.get()))),
            // Another write was first, which is not a failure of the store.
            Err(CommitError::Compare { .. }) => drop(span.record("conflict", true)),
            Err(CommitError::Store(error)) => drop(span.record("error", tracing::field::display(error))),
        }
        if let Some((operation, key)) = counted {
            self.note(operation, &key, begun, outcome.as_ref().is_err_and(has_failed));
        }
        outcome
    }

    async fn get(&self, key: &StoreKey) -> Result<Option<KeyValue>, StoreError> {
        let begun = Instant::now();
        let span = self.span(|| debug_span!("store get", key = key.as_str()));
        let outcome = self.store.get(key).instrument(span).await;
        self.note(StoreOperation::Get, key, begun, outcome.as_ref().is_err_and(is_fault));
        outcome
    }

    async fn range(&self, request: RangeRequest) -> Result<RangePage, StoreError> {
        let (begun, key) = (Instant::now(), request.from.clone());
        let span = self.span(|| debug_span!("store list", key = key.as_str()));
        let outcome = self.store.range(request).instrument(span).await;
        self.note(StoreOperation::List, &key, begun, outcome.as_ref().is_err_and(is_fault));
        outcome
    }

    fn scan(&self, request: ScanRequest) -> Option<Scan> {
        self.store.scan(request)
    }

    async fn count(&self, request: RangeRequest) -> Result<u64, StoreError> {
        let (begun, key) = (Instant::now(), request.from.clone());
        let span = self.span(|| debug_span!("store count", key = key.as_str()));
        let outcome = self.store.count(request).instrument(span).await;
        self.note(StoreOperation::Count, &key, begun, outcome.as_ref().is_err_and(is_fault));
        outcome
    }

    async fn current_revision(&self) -> Result<Revision, StoreError> {
        self.store.current_revision().await
    }

    fn seal(&self, key: &str) -> Seal {
        self.store.seal(key)
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

    fn history_limit(&self) -> Option<u64> {
        self.store.history_limit()
    }

    fn free_bytes(&self) -> Option<u64> {
        self.store.free_bytes()
    }

    async fn expire(&self, now: SystemTime) -> Result<usize, StoreError> {
        self.store.expire(now).await
    }

    async fn verify(&self) -> Result<(), StoreError> {
        self.store.verify().await
    }

    fn refusal(&self) -> Option<String> {
        self.store.refusal().or_else(|| self.guard.refusal())
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.guard.check()?;
        self.store.check().await
    }
}

/// The span of a transaction, with its first written key.
fn commit_span(transaction: &Transaction) -> Span {
    debug_span!(
        "store transaction",
        key = transaction.writes.first().map(|write| write.key().as_str()),
        writes = transaction.writes.len(),
        compares = transaction.compares.len(),
        revision = Empty,
        conflict = Empty,
        error = Empty,
    )
}
