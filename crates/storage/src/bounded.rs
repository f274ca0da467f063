//! One size limit for writes on every engine, so that the content of one store fits into any other.
//!
//! etcd accepts requests up to 1.5 MiB. SQLite and PostgreSQL have no such limit, so patches could make an object grow
//! without end. The guard computes the size that a transaction would have as an etcd request, plus a margin for its
//! envelope. So etcd accepts every transaction that passes here with etcd's own limit. Copies and restores bypass the
//! limit.

use std::sync::Arc;

use crate::guarded::{CommitGuard, GuardedStore};
use crate::key::StoreKey;
use crate::store::{CommitError, Committed, Store, StoreError, Transaction, Write};

/// etcd's default limit of a request, in bytes.
pub const DEFAULT_BOUND: usize = 1536 * 1024;
/// The upper limit of the envelope of a transaction in a request, including the compare of a [`crate::FencedStore`], in
/// bytes.
const AROUND: usize = 1024;
/// The upper limit of the envelope of each key and value, in bytes.
const AROUND_PART: usize = 32;

/// A store that refuses transactions above a size.
pub type BoundedStore = GuardedStore<SizeBound>;

/// The size limit of a transaction.
pub struct SizeBound {
    /// In bytes.
    bound: usize,
    /// True if errors use etcd's texts.
    as_etcd: bool,
}

impl BoundedStore {
    /// Limits `store` to transactions of `bound` bytes: keys, values and their envelope.
    pub fn new(store: Arc<dyn Store>, bound: usize) -> Self {
        Self::behind(store, SizeBound { bound, as_etcd: false })
    }

    /// Limits a store on etcd. Errors have etcd's texts, which clients of such a store recognize.
    pub fn on_etcd(store: Arc<dyn Store>, bound: usize) -> Self {
        Self::behind(store, SizeBound { bound, as_etcd: true })
    }
}

/// The size of a transaction in an etcd request, in bytes; possibly a little less.
fn size(transaction: &Transaction) -> usize {
    // A compared key appears twice, since the failure branch reads it.
    let compares = transaction.compares.iter().map(|compare| 2 * (compare.key.as_str().len() + AROUND_PART));
    let writes = transaction.writes.iter().map(|write| {
        let value = match write {
            Write::Put { value, .. } => value.len(),
            Write::Delete { .. } => 0,
        };
        write.key().as_str().len() + value + AROUND_PART
    });
    AROUND + compares.chain(writes).sum::<usize>()
}

impl CommitGuard for SizeBound {
    async fn commit(&self, store: &dyn Store, transaction: Transaction) -> Result<Committed, CommitError> {
        let (bytes, limit) = (size(&transaction), self.bound);
        if bytes > limit {
            let key = transaction.writes.first().map_or_else(|| StoreKey::new(""), |write| write.key().clone());
            let refused = StoreError::AboveLimit { key, bytes, limit };
            return Err(if self.as_etcd { StoreError::TooLarge(refused.to_string()) } else { refused }.into());
        }
        store.commit(transaction).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryStore;

    #[tokio::test]
    async fn too_large_objects_are_refused() {
        let memory = MemoryStore::new();
        let store = BoundedStore::new(Arc::new(memory.clone()), 4096);
        let key = StoreKey::new("/registry/a");
        let put = |length: usize| Transaction::default().put(key.clone(), vec![0; length]);
        let most = 4096 - size(&put(0));
        let refused = store.commit(put(most + 1)).await.unwrap_err();
        assert!(
            matches!(&refused, CommitError::Store(StoreError::AboveLimit { bytes: 4097, limit: 4096, .. })),
            "{refused}"
        );
        let on_etcd = BoundedStore::on_etcd(Arc::new(memory.clone()), 4096);
        let refused = on_etcd.commit(put(most + 1)).await.unwrap_err();
        assert!(
            matches!(&refused, CommitError::Store(StoreError::TooLarge(why)) if why.contains("/registry/a")),
            "{refused}"
        );
        assert!(memory.get(&key).await.unwrap().is_none());
        store.commit(put(most)).await.unwrap();
        // The sum of all parts counts.
        let two = put(most / 2).put(StoreKey::new("/registry/b"), vec![0; most / 2]);
        assert!(store.commit(two).await.is_err());
    }
}
