//! The server's memory store with copies of programs' objects: writes of these go to the program first.
//!
//! All other calls go to the store that holds the copies.

use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use keelson_meta::{GroupResource, Revision};
use keelson_storage::{
    CommitError, Committed, KeyValue, RangePage, RangeRequest, Seal, Store, StoreError, StoreKey, Tail, Transaction,
};

use crate::mirror::Mirror;

pub(crate) struct MirroredStore {
    copy: Arc<dyn Store>,
    mirrors: Arc<[(GroupResource, Arc<Mirror>)]>,
}

impl MirroredStore {
    pub(crate) fn new(copy: Arc<dyn Store>, mirrors: Arc<[(GroupResource, Arc<Mirror>)]>) -> Self {
        Self { copy, mirrors }
    }
}

#[async_trait]
impl Store for MirroredStore {
    async fn commit(&self, transaction: Transaction) -> Result<Committed, CommitError> {
        let mirrors = self.mirrors.iter().map(|(_, mirror)| mirror);
        let of = |mirror: &&Arc<Mirror>| transaction.writes.iter().any(|write| mirror.has(write.key()));
        let Some(mirror) = mirrors.into_iter().find(of).cloned() else { return self.copy.commit(transaction).await };
        // A write that the program accepted is copied even if its client gives up.
        keelson_supervision::outcome(tokio::spawn(async move { mirror.commit(transaction).await })).await
    }

    async fn get(&self, key: &StoreKey) -> Result<Option<KeyValue>, StoreError> {
        self.copy.get(key).await
    }

    async fn range(&self, request: RangeRequest) -> Result<RangePage, StoreError> {
        self.copy.range(request).await
    }

    async fn count(&self, request: RangeRequest) -> Result<u64, StoreError> {
        self.copy.count(request).await
    }

    async fn current_revision(&self) -> Result<Revision, StoreError> {
        self.copy.current_revision().await
    }

    fn known_revision(&self) -> Option<Revision> {
        self.copy.known_revision()
    }

    async fn oldest_revision(&self) -> Result<Revision, StoreError> {
        self.copy.oldest_revision().await
    }

    async fn tail(&self, after: Revision) -> Result<Tail, StoreError> {
        self.copy.tail(after).await
    }

    async fn compact(&self, oldest: Revision) -> Result<(), StoreError> {
        self.copy.compact(oldest).await
    }

    async fn expire(&self, now: SystemTime) -> Result<usize, StoreError> {
        self.copy.expire(now).await
    }

    fn seal(&self, key: &str) -> Seal {
        self.copy.seal(key)
    }

    async fn verify(&self) -> Result<(), StoreError> {
        self.copy.verify().await
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.copy.check().await
    }
}
