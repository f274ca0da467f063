//! Replacing an object, or its status.

use std::sync::Arc;

use keelson_cache::Entry;
use keelson_codec::stored::StoredObject;
use keelson_meta::error::ConflictKind;
use keelson_meta::options::UpdateOptions;
use keelson_meta::{ApiError, Object};

use crate::kinds;
use crate::managed;
use crate::prepare::{carry_over, validate_update};
use crate::registry::Registry;
use crate::subresources;
use crate::target::Target;
use crate::versions::convert;
use crate::write::{Change, Written, modified};
use crate::writer::Writer;

impl Registry {
    /// Replaces the object of the target's URL by one that [`accept`](crate::accept) has taken in; below `/status` only its
    /// status and metadata, elsewhere everything but its status.
    ///
    /// # Errors
    /// 404 when there is none, 409 when it has another resourceVersion or uid than the client thinks, 422 when its
    /// metadata is not valid.
    pub async fn update(
        &self,
        target: &Target,
        name: &str,
        object: &Object,
        writer: &Writer,
        options: &UpdateOptions,
    ) -> Result<Written, ApiError> {
        let replace = |current: &Arc<Entry>| {
            let shown = self.shown(target, current)?;
            self.replace(target, name, shown, object.clone(), writer)
        };
        self.change(target, name, options.dry_run, replace).await
    }

    /// A stored object in the version of the request.
    ///
    /// # Errors
    /// 500 when it is in no version of its kind.
    pub(crate) fn shown(&self, target: &Target, current: &Entry) -> Result<Object, ApiError> {
        let mut shown = current.object.decode(current.revision);
        convert(target, &mut shown, &target.kind())?;
        Ok(shown)
    }

    /// What becomes of `current` when `writer` wants it to be `next` and may change what the target's endpoint lets him.
    /// Both are in the version of the request.
    ///
    /// # Errors
    /// 409 when it is another object, or has another resourceVersion, than the writer thinks; 422 for what is not valid.
    pub(crate) fn replace(
        &self,
        target: &Target,
        name: &str,
        mut current: Object,
        mut next: Object,
        writer: &Writer,
    ) -> Result<Change, ApiError> {
        check_preconditions(target, name, &current, &next)?;
        next = subresources::confine(target, &current, next, self.now())?;
        kinds::complete_update(target, &current, &mut next, self.now());
        managed::track(target, &mut current, &mut next, writer, self.now());
        self.settle(target, current, next)
    }

    /// What becomes of `current` when it shall be `next`, whose owners are noted already. Both are in the version of the
    /// request.
    ///
    /// # Errors
    /// 422 for what is not valid.
    pub(crate) fn settle(&self, target: &Target, mut current: Object, next: Object) -> Result<Change, ApiError> {
        convert(target, &mut current, &self.storage_kind(target))?;
        let stored = current;
        let mut next = managed::confine(target, &stored, self.to_storage(target, next)?);
        kinds::check_finalizers(target, &next)?;
        // ORDER: what admission fills in is no change, so the generation is counted after it.
        kinds::admit_update(self, target, &stored, &mut next)?;
        carry_over(target, &stored, &mut next);
        kinds::prepare_update(target, &stored, &mut next);
        validate_update(target, &stored, &next)?;
        managed::keep_times(&stored, &mut next);
        if stored.deletion_timestamp().is_some() && next.finalizers().is_empty() && kinds::may_go(target, &next) {
            return Ok(Change::Remove(StoredObject::encode(&next)));
        }
        Ok(Change::Put(next))
    }
}

/// Checks that an object is the one that the client means, in the state that it has seen.
///
/// # Errors
/// 409 when it has another uid or resourceVersion.
pub(crate) fn check_preconditions(target: &Target, name: &str, stored: &Object, next: &Object) -> Result<(), ApiError> {
    if !next.uid().is_empty() && next.uid() != stored.uid() {
        return Err(ApiError::Conflict {
            resource: target.group_resource(),
            name: name.to_owned(),
            message: Box::new(ConflictKind::Other(format!(
                "Precondition failed: UID in precondition: {}, UID in object meta: {}",
                next.uid(),
                stored.uid()
            ))),
        });
    }
    match next.resource_version() {
        "" | "0" => Ok(()),
        wanted if wanted == stored.resource_version() => Ok(()),
        _ => Err(modified(target, name)),
    }
}
