//! Associated writes that join the transaction of an object: keys of allocated addresses, charges of quotas.
//!
//! Associated writes happen with the write of the object or not at all, on every server, so a crash leaves nothing to
//! repair. A kind adds them in `Strategy::companions`, a stage before validation, so that allocated fields are
//! validated too.

use bytes::Bytes;
use keelson_cache::Entry;
use keelson_meta::{ApiError, Object};
use keelson_storage::{Compare, Condition, KeyValue, StoreKey, Transaction, Write};

use crate::encodings::WriteGuard;
use crate::quota::{Charge, Charges};
use crate::registry::{Registry, store_error};
use crate::target::Target;

/// The compares and writes that accompany an object.
#[derive(Default)]
pub struct AssociatedWrites {
    compares: Vec<(Compare, OnConflict)>,
    writes: Vec<Write>,
    /// Keep the gates of the associated writes entered, until the write of the object is over.
    entered: Vec<WriteGuard>,
    /// The charges of quotas.
    charges: Vec<Charge>,
}

/// The reaction to a failed compare of an associated write.
pub enum OnConflict {
    /// Runs the stages again, to allocate something else.
    TryAgain,
    /// The client requested exactly this value, so it gets the error.
    Refuse(Box<ApiError>),
}

impl AssociatedWrites {
    /// Creates a key that must be absent.
    pub fn take(&mut self, key: StoreKey, value: Bytes, on_conflict: OnConflict) {
        self.compares.push((Compare { key: key.clone(), condition: Condition::Absent }, on_conflict));
        self.writes.push(Write::Put { key, value, expires: None });
    }

    /// Writes a key again unchanged, so that concurrent writes that depend on it conflict.
    pub fn touch(&mut self, found: KeyValue) {
        self.require(Compare { key: found.key.clone(), condition: Condition::At(found.revision) });
        self.writes.push(Write::Put { key: found.key, value: found.value, expires: None });
    }

    /// Adds a condition of the transaction. If it does not hold, the stages run again.
    pub fn require(&mut self, compare: Compare) {
        self.compares.push((compare, OnConflict::TryAgain));
    }

    /// Adds the charges of quotas.
    pub(crate) fn charge(&mut self, charges: Charges) {
        self.charges = charges.charges;
        if let Some(condition) = charges.condition {
            self.require(condition);
        }
    }

    /// The charges of quotas.
    pub(crate) fn charges(&self) -> &[Charge] {
        &self.charges
    }

    /// Keeps the gate of an associated write entered until the write of the object is over.
    pub fn keep(&mut self, entered: Option<WriteGuard>) {
        self.entered.extend(entered);
    }

    /// Deletes a key that belongs to the object. If the key has changed since it was read, the stages run again.
    pub fn give_back(&mut self, found: KeyValue) {
        let condition = Condition::At(found.revision);
        self.compares.push((Compare { key: found.key.clone(), condition }, OnConflict::TryAgain));
        self.writes.push(Write::Delete { key: found.key });
    }

    /// Appends the associated writes to the transaction of the object.
    pub(crate) fn join(&self, transaction: &mut Transaction) {
        transaction.compares.extend(self.compares.iter().map(|(compare, _)| compare.clone()));
        transaction.writes.extend(self.writes.iter().cloned());
    }

    /// Handles the failed compare of an associated write, given its index.
    ///
    /// # Errors
    /// The error for the client, if it requested a value that is taken.
    pub(crate) fn lost(&self, index: usize) -> Result<(), ApiError> {
        match self.compares.get(index) {
            Some((_, OnConflict::Refuse(error))) => Err((**error).clone()),
            Some((_, OnConflict::TryAgain)) | None => Ok(()),
        }
    }
}

impl Registry {
    /// Collects the associated writes of an object that changes from `before` (`None`: it is new) to `after` (`None`:
    /// it is deleted). May set allocated fields in `after`. Nothing is written here. After a conflict it is called
    /// again, with a higher `attempt`.
    ///
    /// # Errors
    /// 422 for a requested value that is not available, 500 when nothing is left to allocate.
    pub(crate) async fn accompany(
        &self,
        target: &Target,
        before: Option<&Entry>,
        after: Option<&mut Object>,
        attempt: usize,
    ) -> Result<AssociatedWrites, ApiError> {
        if !target.strategy().write.has_companions() {
            return Ok(AssociatedWrites::default());
        }
        let before = before.map(|entry| entry.object().decode(entry.revision));
        target.strategy().write.companions(self, target, before.as_ref(), after, attempt).await
    }

    /// Checks in a dry run that the compares of associated writes hold now.
    ///
    /// # Errors
    /// The error that the client would get.
    pub(crate) async fn rehearse(&self, companions: &AssociatedWrites) -> Result<(), ApiError> {
        for (compare, on_conflict) in &companions.compares {
            let current = self.store().get(&compare.key).await.map_err(store_error)?;
            match on_conflict {
                OnConflict::Refuse(error) if !compare.condition.holds(current.map(|found| found.revision)) => {
                    return Err((**error).clone());
                }
                OnConflict::Refuse(_) | OnConflict::TryAgain => {}
            }
        }
        Ok(())
    }
}
