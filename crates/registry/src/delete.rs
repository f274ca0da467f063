//! Deleting an object: at once, or marked when finalizers hold it.

use std::sync::Arc;

use keelson_cache::Entry;
use keelson_codec::stored::StoredObject;
use keelson_meta::clock::rfc3339;
use keelson_meta::error::ConflictKind;
use keelson_meta::metadata_rules::{FINALIZER_FOREGROUND, FINALIZER_ORPHAN};
use keelson_meta::options::{DeleteOptions, PropagationPolicy};
use keelson_meta::{ApiError, Object};

use crate::kinds;
use crate::registry::Registry;
use crate::target::Target;
use crate::write::{Change, Written};

/// What a delete did.
#[derive(Clone, Debug)]
pub enum Deleted {
    /// The object is gone; this is how it was.
    Gone(Written),
    /// The object is marked and goes when its finalizers do.
    Pending(Written),
}

impl Registry {
    /// Deletes the object of the target's URL.
    ///
    /// # Errors
    /// 404 when there is none, 409 when it is not the one that the preconditions name.
    pub async fn delete(&self, target: &Target, name: &str, options: &DeleteOptions) -> Result<Deleted, ApiError> {
        let mut gone = false;
        let written = self
            .change(target, name, options.dry_run, |current| {
                let change = self.deletion(target, name, current, options)?;
                gone = matches!(change, Change::Remove(_));
                Ok(change)
            })
            .await?;
        Ok(if gone { Deleted::Gone(written) } else { Deleted::Pending(written) })
    }

    /// Whether a delete of this resource is answered with the object as it was, rather than with a `Status`.
    pub fn returns_deleted(&self, target: &Target) -> bool {
        kinds::returns_deleted(target)
    }

    fn deletion(
        &self,
        target: &Target,
        name: &str,
        current: &Arc<Entry>,
        options: &DeleteOptions,
    ) -> Result<Change, ApiError> {
        let stored = current.object.decode(current.revision);
        check_preconditions(target, name, &stored, options)?;
        kinds::check_delete(target, name)?;
        let held_by = finalizers(&stored, options);
        if held_by.is_empty() && kinds::may_go(target, &stored) {
            return Ok(Change::Remove(current.object.clone()));
        }
        let mut marked = stored;
        marked.remove_meta("resourceVersion");
        if held_by.is_empty() {
            marked.remove_meta("finalizers");
        } else {
            marked.set_meta("finalizers", held_by);
        }
        if marked.deletion_timestamp().is_none() {
            marked.set_meta("deletionTimestamp", rfc3339(self.clock.now()));
            if kinds::has_grace_period(target) {
                marked.set_meta("deletionGracePeriodSeconds", 0);
            }
            if let Some(generation) = marked.generation() {
                marked.set_meta("generation", generation + 1);
            }
            kinds::mark_terminating(target, &mut marked);
        }
        Ok(Change::Put(marked))
    }
}

/// The finalizers that the object has after the client's wish for its dependents is added.
fn finalizers(stored: &Object, options: &DeleteOptions) -> Vec<String> {
    let wanted = match options.propagation_policy {
        Some(PropagationPolicy::Foreground) => Some(FINALIZER_FOREGROUND),
        Some(PropagationPolicy::Orphan) => Some(FINALIZER_ORPHAN),
        Some(PropagationPolicy::Background) | None => None,
    };
    let mut all: Vec<String> = stored
        .finalizers()
        .into_iter()
        .filter(|held| {
            options.propagation_policy.is_none() || !matches!(*held, FINALIZER_FOREGROUND | FINALIZER_ORPHAN)
        })
        .map(str::to_owned)
        .collect();
    all.extend(wanted.map(str::to_owned));
    all
}

fn check_preconditions(target: &Target, name: &str, stored: &Object, options: &DeleteOptions) -> Result<(), ApiError> {
    let conflict = |message| ApiError::Conflict {
        resource: target.group_resource(),
        name: name.to_owned(),
        message: Box::new(message),
    };
    if let Some(wanted) = options.preconditions.uid.as_deref().filter(|wanted| *wanted != stored.uid()) {
        return Err(conflict(ConflictKind::UidPrecondition {
            kind: target.resource.kind.to_owned(),
            wanted: wanted.to_owned(),
            actual: stored.uid().to_owned(),
        }));
    }
    let revision = stored.resource_version();
    if let Some(wanted) = options.preconditions.resource_version.as_deref().filter(|wanted| *wanted != revision) {
        return Err(conflict(ConflictKind::RevisionPrecondition {
            kind: target.resource.kind.to_owned(),
            wanted: wanted.to_owned(),
            actual: revision.to_owned(),
        }));
    }
    Ok(())
}

impl Deleted {
    /// The object as it was, or as it stands marked.
    pub fn object(&self) -> &StoredObject {
        match self {
            Self::Gone(written) | Self::Pending(written) => &written.object,
        }
    }
}
