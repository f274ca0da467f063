//! Companions of a write, which join its transaction: addresses that are taken for an object, counts that it adds to.
//!
//! Companions share the transaction of the object, so they happen with its write or not at all, on whatever server: nothing
//! is left behind by a crash, and nothing has to be repaired. A kind adds some in `Strategy::companions`, which is a stage of the write
//! before validation: what an object is given is judged with it.

use bytes::Bytes;
use keelson_cache::Entry;
use keelson_meta::{ApiError, Object};
use keelson_storage::{Compare, Condition, KeyValue, StoreKey, Transaction, Write};

use crate::encodings::Entered;
use crate::quota::{Charge, Charges};
use crate::registry::{Registry, store_error};
use crate::target::Target;

/// What is compared and written together with an object.
#[derive(Default)]
pub struct Companions {
    compares: Vec<(Compare, OnConflict)>,
    writes: Vec<Write>,
    /// Their own writes, until the object's is over.
    entered: Vec<Entered>,
    /// What is taken of quotas with it.
    charges: Vec<Charge>,
}

/// What becomes of the write of an object when the compare of a companion does not hold.
pub enum OnConflict {
    /// Somebody was faster, and nobody need know: the write passes its stages again and takes something else.
    TryAgain,
    /// The client asked for just this.
    Refuse(Box<ApiError>),
}

impl Companions {
    /// Takes a key that nobody may have.
    pub fn take(&mut self, key: StoreKey, value: Bytes, on_conflict: OnConflict) {
        self.compares.push((Compare { key: key.clone(), condition: Condition::Absent }, on_conflict));
        self.writes.push(Write::Put { key, value, expires: None });
    }

    /// Writes a key again as it was found, so that whoever counts on it looks again.
    pub fn touch(&mut self, found: KeyValue) {
        self.require(Compare { key: found.key.clone(), condition: Condition::At(found.revision) });
        self.writes.push(Write::Put { key: found.key, value: found.value, expires: None });
    }

    /// Counts on something that the write would have to look at again.
    pub fn require(&mut self, compare: Compare) {
        self.compares.push((compare, OnConflict::TryAgain));
    }

    /// Takes something of quotas.
    pub(crate) fn charge(&mut self, charges: Charges) {
        self.charges = charges.charges;
        if let Some(condition) = charges.condition {
            self.require(condition);
        }
    }

    /// What is taken of quotas.
    pub(crate) fn charges(&self) -> &[Charge] {
        &self.charges
    }

    /// Keeps the place of a companion's write until the object's is over.
    pub fn keep(&mut self, entered: Option<Entered>) {
        self.entered.extend(entered);
    }

    /// Gives back a key that was found to be the object's, unless it has changed since: then it is looked at again.
    pub fn give_back(&mut self, found: KeyValue) {
        let condition = Condition::At(found.revision);
        self.compares.push((Compare { key: found.key.clone(), condition }, OnConflict::TryAgain));
        self.writes.push(Write::Delete { key: found.key });
    }

    /// Adds them to the transaction of the object, behind what is in it.
    pub(crate) fn join(&self, transaction: &mut Transaction) {
        transaction.compares.extend(self.compares.iter().map(|(compare, _)| compare.clone()));
        transaction.writes.extend(self.writes.iter().cloned());
    }

    /// What to do after one of their compares, by its place among them, did not hold.
    ///
    /// # Errors
    /// What the client is told, where it asked for what it can't have.
    pub(crate) fn lost(&self, index: usize) -> Result<(), ApiError> {
        match self.compares.get(index) {
            Some((_, OnConflict::Refuse(error))) => Err((**error).clone()),
            Some((_, OnConflict::TryAgain)) | None => Ok(()),
        }
    }
}

impl Registry {
    /// What is written together with an object that becomes `after` (`None`: that goes) where it was `before` (`None`: that
    /// is new). May complete `after` by what was taken for it. Nothing is written here; when somebody else takes the same,
    /// this is asked again, with a higher `attempt`.
    ///
    /// # Errors
    /// 422 when the object asks for what it can't have, 500 when there is nothing left to be given out.
    pub(crate) async fn accompany(
        &self,
        target: &Target,
        before: Option<&Entry>,
        after: Option<&mut Object>,
        attempt: usize,
    ) -> Result<Companions, ApiError> {
        if !target.strategy().write.has_companions() {
            return Ok(Companions::default());
        }
        let before = before.map(|entry| entry.object.decode(entry.revision));
        target.strategy().write.companions(self, target, before.as_ref(), after, attempt).await
    }

    /// Checks for a dry run whether the compares of companions hold now.
    ///
    /// # Errors
    /// What a client would be told if they were written.
    pub(crate) async fn rehearse(&self, companions: &Companions) -> Result<(), ApiError> {
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
