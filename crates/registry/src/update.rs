//! Replacing an object, or its status.

use std::sync::Arc;

use keelson_cache::Entry;
use keelson_codec::stored::StoredObject;
use keelson_meta::error::ConflictKind;
use keelson_meta::options::UpdateOptions;
use keelson_meta::{ApiError, Object};

use crate::kinds;
use crate::prepare::{carry_over, take_status, validate_update};
use crate::registry::Registry;
use crate::target::Target;
use crate::versions::convert;
use crate::write::{Change, Written, modified};

impl Registry {
    /// Replaces the object of the target's URL by one that [`accept`](crate::accept) has taken in; below `/status` only its
    /// status, elsewhere everything but its status.
    ///
    /// # Errors
    /// 404 when there is none, 409 when it has another resourceVersion or uid than the client thinks, 422 when its
    /// metadata is not valid.
    pub async fn update(
        &self,
        target: &Target,
        name: &str,
        object: &Object,
        options: &UpdateOptions,
    ) -> Result<Written, ApiError> {
        let next = self.to_storage(target, object.clone())?;
        self.change(target, name, options.dry_run, |current| self.replace(target, name, current, next.clone())).await
    }

    /// What becomes of `current` when a client wants it to be `next`, which is in the version that is stored.
    pub(crate) fn replace(
        &self,
        target: &Target,
        name: &str,
        current: &Arc<Entry>,
        next: Object,
    ) -> Result<Change, ApiError> {
        let mut stored = current.object.decode(current.revision);
        convert(target, &mut stored, &self.storage_kind(target))?;
        check_preconditions(target, name, &stored, &next)?;
        let mut next = match target.subresource_name() {
            Some("status") => {
                let mut only_status = stored.clone();
                take_status(&mut only_status, &next);
                only_status
            }
            Some("finalize") => {
                let mut only_finalizers = stored.clone();
                kinds::replace_finalizers(target, &mut only_finalizers, &next)?;
                only_finalizers
            }
            _ => {
                let mut all_else = next;
                if target.resource.has_status() {
                    take_status(&mut all_else, &stored);
                }
                all_else
            }
        };
        carry_over(target, &stored, &mut next);
        kinds::prepare_update(target, &stored, &mut next, self.now());
        validate_update(target, &stored, &next)?;
        if stored.deletion_timestamp().is_some() && next.finalizers().is_empty() && kinds::may_go(target, &next) {
            return Ok(Change::Remove(StoredObject::encode(&next)));
        }
        Ok(Change::Put(next))
    }
}

fn check_preconditions(target: &Target, name: &str, stored: &Object, next: &Object) -> Result<(), ApiError> {
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
