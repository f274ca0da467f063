//! Deletes an object in one of three ways:
//!
//! - at once
//! - with finalizers: marks it until its last finalizer is removed
//! - gracefully: marks it until its grace period is over and a client deletes it for good
//!
//! The result of a deletion depends on the object alone. An eviction can therefore combine a deletion with a change of
//! its own in one write.

use async_trait::async_trait;
use keelson_cache::Entry;
use keelson_codec::stored::StoredObject;
use keelson_meta::clock::rfc3339;
use keelson_meta::error::ConflictKind;
use keelson_meta::metadata_rules::{FINALIZER_FOREGROUND, FINALIZER_ORPHAN};
use keelson_meta::options::{DeleteOptions, PropagationPolicy};
use keelson_meta::{ApiError, Object};

use crate::admission::{Operation, WriteOptions};
use crate::caller::Caller;
use crate::grace::{self, Grace};
use crate::registry::Registry;
use crate::target::Target;
use crate::update::other_uid;
use crate::write::{Change, Effect, Live, ManagedObject, Update, UpdateFn, WriteRequest, WriteResult, existing};

/// The result of a delete.
#[derive(Clone, Debug)]
pub enum Deleted {
    /// The object was deleted. This is its last state.
    Gone(WriteResult),
    /// The object is marked. It is deleted with its last finalizer, or after its grace period.
    Pending(WriteResult),
}

impl Registry {
    /// Deletes the object of the target's URL.
    ///
    /// # Errors
    /// 404 if the object does not exist, 409 if it does not match the preconditions.
    pub async fn delete(
        &self,
        target: &Target,
        name: &str,
        caller: &Caller,
        options: &DeleteOptions,
    ) -> Result<Deleted, ApiError> {
        let request = WriteRequest::new(target, name, caller, WriteOptions::Delete(options));
        warn_of(target, caller, options);
        self.delete_requested(&request, options).await
    }

    /// As [`Registry::delete`], for a request that may delete a collection.
    ///
    /// # Errors
    /// As [`Registry::delete`].
    pub(crate) async fn delete_requested(
        &self,
        request: &WriteRequest<'_>,
        options: &DeleteOptions,
    ) -> Result<Deleted, ApiError> {
        let target = request.target;
        let mut delete = Deletion { target, options };
        let written = self.write(request, &mut delete).await?;
        Ok(if written.effect == Effect::Removed { Deleted::Gone(written) } else { Deleted::Pending(written) })
    }

    /// Returns true if a delete of this resource returns the object rather than a `Status`.
    pub fn returns_deleted(&self, target: &Target) -> bool {
        target.version.returns_deleted()
    }

    /// The change that deletes a stored object, which is decoded whole, with its resourceVersion.
    ///
    /// # Errors
    /// 409 if the preconditions do not match, 403 for an object that cannot be deleted.
    pub(crate) fn deletion(
        &self,
        target: &Target,
        mut next: ManagedObject,
        options: &DeleteOptions,
    ) -> Result<Change, ApiError> {
        let object = &mut next.object;
        check_preconditions(target, object, options)?;
        target.strategy().delete.check_delete(self, target, object.name())?;
        object.remove_meta("resourceVersion");
        match grace::next_step(target, object, options) {
            Grace::Pending => Ok(Change::Put(next)),
            Grace::Within(period) => {
                let held_by = finalizers(target, object, options);
                set_finalizers(object, held_by);
                grace::grant(object, period, self.now());
                let stays = period > 0 || !object.finalizers().is_empty();
                Ok(if stays { Change::Put(next) } else { Change::Remove(next.encode(target).into_object()) })
            }
            Grace::None => Ok(self.plain_deletion(target, next, options)),
        }
    }

    /// The deletion of an object without a grace period, or after it.
    fn plain_deletion(&self, target: &Target, mut next: ManagedObject, options: &DeleteOptions) -> Change {
        let object = &mut next.object;
        let held_by = finalizers(target, object, options);
        if held_by.is_empty() && target.strategy().delete.may_go(object) {
            return Change::Remove(next.encode(target).into_object());
        }
        set_finalizers(object, held_by);
        if object.deletion_timestamp().is_none() {
            object.set_meta("deletionTimestamp", rfc3339(self.now()));
            if target.strategy().delete.states_grace_period() {
                object.set_meta("deletionGracePeriodSeconds", 0);
            }
            if target.strategy().delete.counts_deletion() {
                grace::count_deletion(object);
            }
            target.strategy().delete.mark_terminating(object);
        }
        Change::Put(next)
    }
}

/// The deletion of an object, decided by its stored state.
struct Deletion<'d> {
    target: &'d Target,
    options: &'d DeleteOptions,
}

#[async_trait]
impl UpdateFn for Deletion<'_> {
    async fn propose<'s>(&'s mut self, registry: &'s Registry, live: Option<&'s Entry>) -> Result<Update, ApiError> {
        let (live, target) = (existing(live)?, self.target);
        if target.resource.converter().is_some() {
            // An object that cannot be converted to the version of the request is not deleted: as upstream, the client
            // gets the error before anything changes.
            Live::in_version_of(target, live).await?;
        }
        let change =
            registry.deletion(target, ManagedObject::stored(live.object().decode(live.revision)), self.options)?;
        Ok(Update::Change(change, Some(Operation::Delete)))
    }
}

/// Warns a client that deletes objects of this resource with these options.
pub(crate) fn warn_of(target: &Target, caller: &Caller, options: &DeleteOptions) {
    caller.warnings().extend(target.strategy().delete.warn_on_delete(options).map(str::to_owned));
}

/// The options of a deletion for admission: with the effective grace period, and with the uid if the kind requires it.
/// `None` if a deletion is under way and this one changes nothing: then admission is skipped.
pub(crate) fn judged_options(target: &Target, stored: &Object, stated: &DeleteOptions) -> Option<DeleteOptions> {
    let mut options = stated.clone();
    match grace::next_step(target, stored, stated) {
        Grace::Pending => return None,
        Grace::Within(seconds) => options.grace_period_seconds = Some(seconds),
        Grace::None => {}
    }
    if target.strategy().delete.is_deleted_by_uid() {
        options.preconditions.uid.get_or_insert_with(|| stored.uid().to_owned());
    }
    Some(options)
}

fn set_finalizers(object: &mut Object, finalizers: Vec<String>) {
    if finalizers.is_empty() {
        object.remove_meta("finalizers");
    } else {
        object.set_meta("finalizers", finalizers);
    }
}

/// The finalizers of the object, with the one that the client's options request for its dependents. Without such
/// options, the kind decides.
fn finalizers(target: &Target, stored: &Object, options: &DeleteOptions) -> Vec<String> {
    let held = stored.finalizers();
    let wanted = match (options.orphan_dependents, options.propagation_policy) {
        (Some(true), _) | (None, Some(PropagationPolicy::Orphan)) => Some(FINALIZER_ORPHAN),
        (None, Some(PropagationPolicy::Foreground)) => Some(FINALIZER_FOREGROUND),
        (Some(false), _) | (None, Some(PropagationPolicy::Background)) => None,
        (None, None) => {
            let known = [FINALIZER_ORPHAN, FINALIZER_FOREGROUND].into_iter().find(|known| held.contains(known));
            known.or(target.strategy().delete.orphans_by_default().then_some(FINALIZER_ORPHAN))
        }
    };
    let others = held.into_iter().filter(|held| !matches!(*held, FINALIZER_FOREGROUND | FINALIZER_ORPHAN));
    others.chain(wanted).map(str::to_owned).collect()
}

fn check_preconditions(target: &Target, stored: &Object, options: &DeleteOptions) -> Result<(), ApiError> {
    let conflict = |message| Err(ApiError::conflict(target.group_resource(), stored.name(), message));
    if let Some(wanted) = options.preconditions.uid.as_deref().filter(|wanted| *wanted != stored.uid()) {
        if target.strategy().delete.is_deleted_by_uid() {
            return conflict(other_uid(wanted, stored.uid()));
        }
        return conflict(ConflictKind::UidPrecondition {
            kind: target.resource.kind.to_string(),
            wanted: wanted.to_owned(),
            actual: stored.uid().to_owned(),
        });
    }
    let revision = stored.resource_version();
    if let Some(wanted) = options.preconditions.resource_version.as_deref().filter(|wanted| *wanted != revision) {
        return conflict(ConflictKind::RevisionPrecondition {
            kind: target.resource.kind.to_string(),
            wanted: wanted.to_owned(),
            actual: revision.to_owned(),
        });
    }
    Ok(())
}

impl Deleted {
    /// The last state of the object, or its marked state.
    pub fn object(&self) -> &StoredObject {
        &self.written().object
    }

    /// The object and its revision.
    pub fn written(&self) -> &WriteResult {
        match self {
            Self::Gone(written) | Self::Pending(written) => written,
        }
    }
}
