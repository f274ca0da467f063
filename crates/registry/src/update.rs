//! Replaces an object, or its status. Some resources are created by an update of a free name, as declared
//! (`create_on_update`), so that a client can renew an object without checking that it exists.

use std::fmt;

use async_trait::async_trait;
use keelson_cache::Entry;
use keelson_meta::error::ConflictKind;
use keelson_meta::field_error::FieldError;
use keelson_meta::options::UpdateOptions;
use keelson_meta::{ApiError, GroupKind, Object};
use keelson_storage::Compare;

use crate::admission::WriteOptions;
use crate::caller::Caller;
use crate::registry::Registry;
use crate::target::Target;
use crate::write::{Live, Ownership, Update, UpdateFn, WriteRequest, WriteResult, modified};

/// The object of an update. Nearly all updates need it once, so it is moved into the write. After a conflict it is
/// decoded again from the client's bytes.
pub struct SentObject<'s> {
    object: Option<Object>,
    again: Again<'s>,
    /// The resourceVersion of the object, if it has one. It then replaces only that state.
    revision: Option<String>,
}

type Again<'s> = Box<dyn Fn() -> Result<Object, ApiError> + Send + Sync + 's>;

impl<'s> SentObject<'s> {
    /// An object decoded by [`accept`](crate::accept), and the function that decodes it again.
    pub fn new(object: Object, again: impl Fn() -> Result<Object, ApiError> + Send + Sync + 's) -> Self {
        let named = object.resource_version();
        let revision = (!matches!(named, "" | "0")).then(|| named.to_owned());
        Self { object: Some(object), again: Box::new(again), revision }
    }

    /// The object for the next attempt to replace one that is `live`. `None` if that no longer has the requested
    /// resourceVersion.
    fn next(&mut self, live: Option<&Entry>) -> Result<Option<Object>, ApiError> {
        if let Some(object) = self.object.take() {
            return Ok(Some(object));
        }
        let current = live.map(|live| live.revision.to_string());
        if self.revision.is_some() && self.revision != current {
            return Ok(None);
        }
        (self.again)().map(Some)
    }
}

impl From<Object> for SentObject<'static> {
    fn from(object: Object) -> Self {
        Self::new(object.clone(), move || Ok(object.clone()))
    }
}

impl fmt::Debug for SentObject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SentObject").field("object", &self.object).finish_non_exhaustive()
    }
}

impl Registry {
    /// Replaces the object of the target's URL by one that [`accept`](crate::accept) has decoded. Below `/status` it
    /// replaces only status and metadata, elsewhere everything except the status.
    ///
    /// # Errors
    /// 404 if the object does not exist, 409 if its resourceVersion or uid is not that of the request, 422 if its
    /// metadata is invalid.
    pub async fn update(
        &self,
        target: &Target,
        name: &str,
        sent: impl Into<SentObject<'_>>,
        caller: &Caller,
        options: &UpdateOptions,
    ) -> Result<WriteResult, ApiError> {
        self.update_while(target, name, sent, caller, options, Vec::new()).await
    }

    /// As [`Registry::update`], with further conditions that the transaction compares.
    ///
    /// # Errors
    /// The errors of [`Registry::update`], and 503 when the conditions do not hold.
    pub async fn update_while(
        &self,
        target: &Target,
        name: &str,
        sent: impl Into<SentObject<'_>>,
        caller: &Caller,
        options: &UpdateOptions,
        conditions: Vec<Compare>,
    ) -> Result<WriteResult, ApiError> {
        let options = WriteOptions::Update(options);
        let request = WriteRequest { conditions, ..WriteRequest::new(target, name, caller, options) };
        self.write(&request, &mut Replacement::new(target, name, sent.into(), false)).await
    }

    /// As [`Registry::update`], but creates a missing object if the resource is declared so.
    ///
    /// # Errors
    /// The errors of [`Registry::update`] and [`Registry::create`].
    pub async fn update_or_create(
        &self,
        target: &Target,
        name: &str,
        sent: impl Into<SentObject<'_>>,
        caller: &Caller,
        options: &UpdateOptions,
    ) -> Result<WriteResult, ApiError> {
        let makes = target.resource.create_on_update && target.subresource.is_none();
        let request = WriteRequest::new(target, name, caller, WriteOptions::Update(options));
        self.write(&request, &mut Replacement::new(target, name, sent.into(), makes)).await
    }
}

/// The replacement of an object.
struct Replacement<'u> {
    target: &'u Target,
    name: &'u str,
    sent: SentObject<'u>,
    makes: bool,
}

impl<'u> Replacement<'u> {
    fn new(target: &'u Target, name: &'u str, sent: SentObject<'u>, makes: bool) -> Self {
        Self { target, name, sent, makes }
    }
}

#[async_trait]
impl UpdateFn for Replacement<'_> {
    fn makes(&self) -> bool {
        self.makes
    }

    async fn propose<'s>(&'s mut self, _: &'s Registry, live: Option<&'s Entry>) -> Result<Update, ApiError> {
        let Some(next) = self.sent.next(live)? else { return Err(modified(self.target, self.name)) };
        let Some(live) = live else {
            let mut object = next;
            if !object.uid().is_empty() {
                let conflict = other_uid(object.uid(), "");
                return Err(ApiError::conflict(self.target.group_resource(), self.name, conflict));
            }
            object.remove_meta("resourceVersion");
            return Ok(Update::New(object, Ownership::Track));
        };
        let live = Live::in_version_of(self.target, live).await?;
        replacement(self.target, self.name, live, next)
    }
}

/// The proposal to replace an object by another state. The client owns the changed fields. Both states are in the
/// version of the request.
///
/// # Errors
/// 409 if uid or resourceVersion differ from those of the request.
pub(crate) fn replacement(target: &Target, name: &str, live: Live, next: Object) -> Result<Update, ApiError> {
    check_preconditions(target, name, &live.object, &next)?;
    Ok(Update::Content { live, next, ownership: Ownership::Track })
}

/// Checks that an object is the one that the client has read, in the same state.
///
/// # Errors
/// 409 if uid or resourceVersion differ. 422 without a resourceVersion, if the resource requires one.
pub(crate) fn check_preconditions(target: &Target, name: &str, stored: &Object, next: &Object) -> Result<(), ApiError> {
    if !next.uid().is_empty() && next.uid() != stored.uid() {
        return Err(ApiError::Conflict {
            resource: target.group_resource(),
            name: name.to_owned(),
            message: Box::new(other_uid(next.uid(), stored.uid())),
        });
    }
    match next.resource_version() {
        "" | "0" if target.resource.unconditional_update => Ok(()),
        "" | "0" => Err(unversioned(target, name)),
        wanted if wanted == stored.resource_version() => Ok(()),
        _ => Err(modified(target, name)),
    }
}

/// The conflict of an object with another uid than the request's.
pub(crate) fn other_uid(wanted: &str, actual: &str) -> ConflictKind {
    ConflictKind::Other(format!("Precondition failed: UID in precondition: {wanted}, UID in object meta: {actual}"))
}

/// 422: the resource requires a resourceVersion in an update. Upstream has the resource in this error, where other
/// errors have the kind.
fn unversioned(target: &Target, name: &str) -> ApiError {
    let kind = GroupKind { group: target.resource.group.to_string(), kind: target.resource.plural.to_string() };
    let fault = FieldError::invalid("metadata.resourceVersion", 0, "must be specified for an update");
    ApiError::Invalid { kind, name: name.to_owned(), errors: vec![fault] }
}
