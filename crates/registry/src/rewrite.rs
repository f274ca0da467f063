//! Rewrites a stored object without changes, because the store has it in another encoding than the current one.
//!
//! Only the encoding changes. The object is not validated again, so an object that older rules allowed does not block
//! the rewrite. No field gets another owner. Admission runs as for any update.

use std::sync::Arc;

use async_trait::async_trait;
use keelson_cache::{Entry, StalePage};
use keelson_codec::stored::Encoding;
use keelson_meta::options::UpdateOptions;
use keelson_meta::{ApiError, GroupVersionKind};
use keelson_storage::Seal;

use crate::admission::{Operation, WriteOptions};
use crate::caller::Caller;
use crate::registry::Registry;
use crate::surface::StoredCollection;
use crate::target::Target;
use crate::write::{Change, Live, ManagedObject, Update, UpdateFn, WriteRequest, existing};

impl Registry {
    /// Rewrites an object of the target's collection in the current encoding, if the store has it in another one.
    ///
    /// # Errors
    /// 404 if the object does not exist, otherwise the errors of conversion, admission and the store.
    pub async fn rewrite(&self, target: &Target, name: &str, caller: &Caller) -> Result<(), ApiError> {
        let options = UpdateOptions::default();
        let request = WriteRequest::new(target, name, caller, WriteOptions::Update(&options));
        let mut rewrite = Rewrite { target, is_needed: false };
        self.write(&request, &mut rewrite).await?;
        if rewrite.is_needed {
            self.counters().count_rewrite();
        }
        Ok(())
    }

    /// The next objects of a collection that the store has in another kind or under another seal than the current ones,
    /// from a key on. At most `most` objects, all of them readable.
    pub fn stale(&self, stored: &StoredCollection, kind: &GroupVersionKind, from: &str, most: usize) -> StalePage {
        self.counters().count_stale_page();
        let current = self.current(stored.cached.prefix(), kind);
        stored.cached.stale(|encoding| current.is_of(encoding), from, most)
    }

    /// The number of objects in a collection that a migration would rewrite: those of
    /// [`count_stale`](StoredCollection::count_stale) that can be read, and those under another seal than the current
    /// one. Costs no scan.
    pub fn count_rewritable(&self, stored: &StoredCollection, kind: &GroupVersionKind) -> usize {
        let current = self.current(stored.cached.prefix(), kind);
        let others = stored.cached.encodings().into_iter().filter(|(encoding, _)| !current.is_of(encoding));
        others.map(|(_, count)| count).sum()
    }

    /// The current encoding of new objects.
    pub(crate) fn current(&self, prefix: &str, kind: &GroupVersionKind) -> Current {
        Current { api_version: kind.group_version().to_string(), seal: self.store().seal(prefix) }
    }

    /// Waits until the cache shows every write that was acknowledged before this call, by any server.
    ///
    /// # Errors
    /// 503 if the store does not answer, or if the cache does not catch up in time.
    pub async fn catch_up_with_store(&self) -> Result<(), ApiError> {
        self.catch_up().await
    }
}

impl StoredCollection {
    /// The encodings of the stored objects, with the number of objects in each.
    pub fn encodings(&self) -> Vec<(Arc<Encoding>, usize)> {
        self.cached.encodings()
    }

    /// The number of objects in the store with another encoding than that of this kind, including unreadable objects.
    /// Costs no scan.
    pub fn count_stale(&self, kind: &GroupVersionKind) -> usize {
        let current = kind.group_version().to_string();
        let others = self.cached.encodings().into_iter().filter(|(encoding, _)| !encoding.is_current(&current));
        others.map(|(_, count)| count).sum::<usize>() + self.cached.count_unreadable("")
    }
}

/// The current encoding of a collection's objects.
pub(crate) struct Current {
    api_version: String,
    seal: Seal,
}

impl Current {
    /// Returns true if an encoding is this one.
    pub(crate) fn is_of(&self, encoding: &Encoding) -> bool {
        encoding.is_current(&self.api_version) && encoding.is_sealed_by(self.seal.number())
    }
}

/// The rewrite of an object.
struct Rewrite<'r> {
    target: &'r Target,
    /// True if the last attempt found the object in another encoding.
    is_needed: bool,
}

#[async_trait]
impl UpdateFn for Rewrite<'_> {
    async fn propose<'s>(&'s mut self, registry: &'s Registry, live: Option<&'s Entry>) -> Result<Update, ApiError> {
        let live = existing(live)?;
        let collection = registry.collection(self.target)?;
        let current = registry.current(collection.prefix(), self.target.storage_kind());
        self.is_needed = !collection.is_current(live, |encoding| current.is_of(encoding));
        if !self.is_needed {
            return Ok(Update::Change(Change::Keep(live.object().clone(), live.revision), None));
        }
        let Live { object, managed_fields } = Live::stored(live);
        let object = registry.to_storage(self.target, object).await?;
        Ok(Update::Change(Change::Put(ManagedObject::new(object, managed_fields)), Some(Operation::Update)))
    }
}
