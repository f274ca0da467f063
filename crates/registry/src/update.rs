//! Replacing an object, or its status.

use std::borrow::Cow;
use std::sync::Arc;

use keelson_cache::Entry;
use keelson_meta::error::ConflictKind;
use keelson_meta::field_error::FieldError;
use keelson_meta::options::UpdateOptions;
use keelson_meta::{ApiError, GroupKind, Object};

use crate::kinds;
use crate::managed;
use crate::prepare::{carry_over, validate_update};
use crate::registry::Registry;
use crate::subresources;
use crate::target::Target;
use crate::versions::convert;
use crate::write::{Change, Draft, Written, modified};
use crate::writer::Writer;

/// A stored object as a writer sees it, with its owners beside it: most writes leave them as they are.
pub(crate) struct Shown<'e> {
    /// The object, without `metadata.managedFields`.
    pub(crate) object: Object,
    /// That as text.
    pub(crate) managed: Option<&'e str>,
}

impl<'e> Shown<'e> {
    /// The object in the version that it is stored in.
    pub(crate) fn of(current: &'e Entry) -> Self {
        let (object, managed) = current.object.decode_apart(current.revision);
        Self { object, managed }
    }
}

impl Registry {
    /// Replaces the object of the target's URL by one that [`accept`](crate::accept) has taken in; below `/status` only its
    /// status and metadata, elsewhere everything but its status.
    ///
    /// `sent` gives the object, anew for each attempt: nearly all updates need one, which is then not copied.
    ///
    /// # Errors
    /// 404 when there is none, 409 when it has another resourceVersion or uid than the client thinks, 422 when its
    /// metadata is not valid.
    pub async fn update(
        &self,
        target: &Target,
        name: &str,
        mut sent: impl FnMut() -> Result<Object, ApiError>,
        writer: &Writer,
        options: &UpdateOptions,
    ) -> Result<Written, ApiError> {
        let replace = |current: &Arc<Entry>| {
            let shown = self.shown(target, current)?;
            self.replace(target, name, shown, sent()?, writer)
        };
        self.change(target, name, options.dry_run, replace).await
    }

    /// A stored object in the version of the request.
    ///
    /// # Errors
    /// 500 when it is in no version of its kind.
    pub(crate) fn shown<'e>(&self, target: &Target, current: &'e Entry) -> Result<Shown<'e>, ApiError> {
        let mut shown = Shown::of(current);
        convert(target, &mut shown.object, target.kind())?;
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
        mut current: Shown<'_>,
        mut next: Object,
        writer: &Writer,
    ) -> Result<Change, ApiError> {
        let Shown { object, managed: known } = &mut current;
        check_preconditions(target, name, object, &next)?;
        next = subresources::confine(target, object, next, self.now())?;
        kinds::complete_update(target, object, &mut next, self.now());
        let managed = managed::track(target, object, &mut next, *known, writer, self.now());
        self.settle(target, &current, Draft { object: next, managed })
    }

    /// What becomes of `current` when it shall be `next`, whose owners are noted already. Both are in the version of the
    /// request.
    ///
    /// # Errors
    /// 422 for what is not valid.
    pub(crate) fn settle(&self, target: &Target, current: &Shown<'_>, next: Draft) -> Result<Change, ApiError> {
        let stored = self.as_stored(target, &current.object)?;
        let Draft { object: next, managed } = next;
        let mut next = managed::confine(target, &stored, self.to_storage(target, next)?);
        target.strategy().check_subresource(target, &next)?;
        // ORDER: what admission fills in is no change, so the generation is counted after it.
        kinds::admit_update(self, target, &stored, &mut next)?;
        carry_over(target, &stored, &mut next);
        kinds::prepare_update(target, &stored, &mut next);
        validate_update(target, &stored, &next)?;
        let managed = managed::keep_times(&stored, current.managed, &mut next, managed);
        if stored.deletion_timestamp().is_some() && next.finalizers().is_empty() && target.strategy().may_go(&next) {
            return Ok(Change::Remove(Draft { object: next, managed }.encode().into_object()));
        }
        Ok(Change::Put(Draft { object: next, managed }))
    }

    /// An object of the request's version in the one that is stored, which is nearly always the same.
    fn as_stored<'o>(&self, target: &Target, object: &'o Object) -> Result<Cow<'o, Object>, ApiError> {
        let kind = target.storage_kind();
        if object.api_version() == Some(kind.group_version().to_string().as_str()) {
            return Ok(Cow::Borrowed(object));
        }
        let mut converted = object.clone();
        convert(target, &mut converted, kind)?;
        Ok(Cow::Owned(converted))
    }
}

/// Checks that an object is the one that the client means, in the state that it has seen.
///
/// # Errors
/// 409 when it has another uid or resourceVersion; 422 when it has none and its resource is not updated without.
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
        "" | "0" if target.resource.unconditional_update => Ok(()),
        "" | "0" => Err(unversioned(target, name)),
        wanted if wanted == stored.resource_version() => Ok(()),
        _ => Err(modified(target, name)),
    }
}

/// 422: the resource is updated only from a state that the writer has seen. Upstream names the resource where others name
/// the kind.
fn unversioned(target: &Target, name: &str) -> ApiError {
    let kind = GroupKind { group: target.resource.group.to_string(), kind: target.resource.plural.to_string() };
    let fault = FieldError::invalid_in_go("metadata.resourceVersion", "0x0", "must be specified for an update");
    ApiError::Invalid { kind, name: name.to_owned(), errors: vec![fault] }
}
