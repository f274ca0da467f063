//! One bound for the size of a write, whatever the engine: what one store holds can be brought to every other.
//!
//! etcd takes requests of 1.5 MiB and no more; SQLite and PostgreSQL would take objects that grow patch by patch without end.
//! A transaction is measured as etcd would measure it, with some room for what is put around it, so that what passes here at
//! etcd's own bound passes there too. Whoever copies or restores a store writes past this.

use std::sync::Arc;

use crate::guarded::{CommitGuard, GuardedStore};
use crate::key::StoreKey;
use crate::store::{CommitError, Committed, Store, StoreError, Transaction, Write};

/// The largest request that etcd takes unless it is told otherwise, in bytes.
pub const DEFAULT_BOUND: usize = 1536 * 1024;
/// What surrounds a transaction in a request, the compare of a [`crate::FencedStore`] included, in bytes: more than it is.
const AROUND: usize = 1024;
/// What surrounds each key and value in it, in bytes: more than it is.
const AROUND_PART: usize = 32;

/// A store that takes no transaction above a size.
pub type BoundedStore = GuardedStore<SizeBound>;

/// The limit of the size of a transaction.
pub struct SizeBound {
    /// In bytes.
    bound: usize,
    /// True for errors in etcd's words.
    as_etcd: bool,
}

impl BoundedStore {
    /// The store behind the bound, which is in bytes of a whole transaction: keys, values and what is around them.
    pub fn new(store: Arc<dyn Store>, bound: usize) -> Self {
        Self::behind(store, SizeBound { bound, as_etcd: false })
    }

    /// As [`BoundedStore::new`], with etcd's words in errors: clients of a store on etcd know them.
    pub fn on_etcd(store: Arc<dyn Store>, bound: usize) -> Self {
        Self::behind(store, SizeBound { bound, as_etcd: true })
    }
}

/// How many bytes of etcd's requests a transaction takes, or a little less.
fn size(transaction: &Transaction) -> usize {
    // A compared key is named twice: etcd is asked what it holds if the compare fails.
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
    async fn what_is_too_large_is_refused_and_not_written() {
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
        // Several parts count together.
        let two = put(most / 2).put(StoreKey::new("/registry/b"), vec![0; most / 2]);
        assert!(store.commit(two).await.is_err());
    }
}
