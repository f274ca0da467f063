//! The strategy of a kind: the steps of the generic verbs at which it is asked what it does differently.
//!
//! A strategy hangs from the version of a resource that a request is for (`Target::strategy`), so that no verb knows a kind by
//! name. Every step has the answer of an ordinary kind as its default; [`Ordinary`] has nothing but these. Steps that change an object
//! say whether they did: its fields are brought into canonical order once, when it is encoded, and only then.

use std::time::SystemTime;

use futures::future::BoxFuture;
use keelson_access::User;
use keelson_codec::StoredObject;
use keelson_meta::field_error::FieldError;
use keelson_meta::json::Map;
use keelson_meta::options::DeleteOptions;
use keelson_meta::{ApiError, Object};

use crate::caller::Caller;
use crate::companions::Companions;
use crate::older::Older;
use crate::prepare::same_specification;
use crate::registry::Registry;
use crate::target::Target;
use crate::warnings::Warnings;
use crate::write::{ManagedObject, WriteRequest};

/// A path of names of fields.
pub(crate) type FieldPath = &'static [&'static str];

/// What an endpoint takes of a sent object.
pub(crate) enum Confined {
    /// All of it, as far as the kind has a say.
    AsSent(Object),
    /// A part of it, and what is wrong with the rest.
    Cut(Object, Vec<FieldError>),
}

/// The steps at which a kind is asked. Objects are in the version of the request before [`Strategy::initial_status`], and in the
/// one that is stored from there on.
pub(crate) trait Strategy: Send + Sync {
    /// Whether to judge an object may take long, however small it is.
    fn is_judged_long(&self) -> bool {
        false
    }

    /// Whether objects are written before the server has published in which version it stores them: those without which it could
    /// not publish.
    fn precedes_publication(&self, _target: &Target) -> bool {
        false
    }

    /// Returns true for objects by which servers, nodes and controllers show that they are alive. A full store takes small ones.
    fn keeps_alive(&self) -> bool {
        false
    }

    /// The fields that stored objects of older servers lack and that are filled in when these are read.
    fn older(&self) -> Option<Older> {
        None
    }

    /// Fills in what a new object is read as having said; who wrote it therefore owns it.
    fn complete_new(&self, _object: &mut Object, _now: SystemTime) -> bool {
        false
    }

    /// The same of what an object shall become.
    fn complete_update(&self, _current: &Object, next: &mut Object, now: SystemTime) -> bool {
        self.complete_new(next, now)
    }

    /// Notes in a new object who makes it.
    fn attribute(&self, _object: &mut Object, _user: &User) -> bool {
        false
    }

    /// Whether the creator of an object also states its status.
    fn keeps_status_on_create(&self, _creator: &Caller) -> bool {
        false
    }

    /// What the server says in the status of a new object.
    fn initial_status(&self, _object: &Object, _now: SystemTime) -> Map {
        Map::new()
    }

    /// Has a new object take over what other objects say: its class, or the one that is the default.
    ///
    /// # Errors
    /// 403 when it contradicts its class, or there is none of that name.
    fn admit(&self, _registry: &Registry, _target: &Target, _object: &mut Object) -> Result<bool, ApiError> {
        Ok(false)
    }

    /// The same of what an object shall become.
    ///
    /// # Errors
    /// 403 for what contradicts other objects.
    fn admit_update(
        &self,
        _registry: &Registry,
        _target: &Target,
        _current: &Object,
        _next: &mut Object,
    ) -> Result<bool, ApiError> {
        Ok(false)
    }

    /// Gives a new object what it gets beyond what it was sent with. It has its name and its uid by then.
    fn prepare_create(&self, _object: &mut Object, _warnings: &Warnings) -> bool {
        false
    }

    /// Gives an object what it keeps or gets on an update of the target's endpoint.
    fn prepare_update(&self, _target: &Target, _current: &Object, _next: &mut Object) -> bool {
        false
    }

    /// Notes in an object when it changed.
    fn date_update(&self, _target: &Target, _current: &Object, _next: &mut Object, _now: SystemTime) -> bool {
        false
    }

    /// Whether an object asks for something else than before, so that its generation goes up.
    fn raises_generation(&self, current: &Object, next: &Object) -> bool {
        !same_specification(current, next)
    }

    /// What is wrong with a new object beside what other objects say; it stands before what is wrong with it by itself.
    ///
    /// # Errors
    /// 500 when the others can't be read.
    fn faults_beside_others(&self, _registry: &Registry, _object: &Object) -> Result<Vec<FieldError>, ApiError> {
        Ok(Vec::new())
    }

    /// What of a sent object reaches the stored one through a subresource, as far as it is not just all of its status, or all but
    /// that.
    fn confine(&self, _subresource: &str, _stored: &Object, sent: Object, _now: SystemTime) -> Confined {
        Confined::AsSent(sent)
    }

    /// What a write to an endpoint, empty for the object itself, cannot change besides.
    fn kept(&self, _subresource: &str) -> &'static [FieldPath] {
        &[]
    }

    /// What a write to an endpoint changes in part, so that nobody who writes there owns it.
    fn shared(&self, _subresource: &str) -> &'static [FieldPath] {
        &[]
    }

    /// Checks what an update of a subresource leaves, beyond what validation knows.
    ///
    /// # Errors
    /// 422 with what is wrong.
    fn check_subresource(&self, _target: &Target, _object: &Object) -> Result<(), ApiError> {
        Ok(())
    }

    /// Returns true if objects give rights to users, or have the server read other objects for them. A write of such an object requires
    /// these rights, which cost a decision of the authorizer. Most kinds do not.
    fn grants_rights(&self) -> bool {
        false
    }

    /// Whether a write counts for every request that comes after its answer, also where these are judged by what the cache has.
    fn counts_at_once(&self) -> bool {
        self.grants_rights()
    }

    /// Refuses to give rights that the caller does not have, in a valid object that becomes `after` where it was `before` (`None`: that
    /// is new).
    ///
    /// # Errors
    /// 403 or 422 with the rights that it lacks, 404 for rights that do not exist.
    fn check_grant<'a>(
        &'a self,
        _registry: &'a Registry,
        _request: &'a WriteRequest<'a>,
        _before: Option<&'a Object>,
        _after: &'a Object,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async { Ok(()) })
    }

    /// Returns true if some changes through an endpoint, empty for the object itself, require rights of their own. Most kinds have no such
    /// changes.
    fn restricts_changes(&self, _subresource: &str) -> bool {
        false
    }

    /// The changes from `before` to `after` that the caller has no right to make. They are reported before the faults of validation.
    ///
    /// # Errors
    /// 500 when other objects can't be read.
    fn unauthorized_changes<'a>(
        &'a self,
        _registry: &'a Registry,
        _request: &'a WriteRequest<'a>,
        _before: &'a Object,
        _after: &'a Object,
    ) -> BoxFuture<'a, Result<Vec<FieldError>, ApiError>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// Whether objects are ever written together with others. Most are not, and cost nothing.
    fn has_companions(&self) -> bool {
        false
    }

    /// What is written together with an object that becomes `after` (`None`: that goes) where it was `before` (`None`: that is
    /// new). May complete `after` by what was taken for it.
    ///
    /// # Errors
    /// 422 when the object asks for what it can't have, 500 when there is nothing left to be given out.
    fn companions<'a>(
        &'a self,
        _registry: &'a Registry,
        _target: &'a Target,
        _before: Option<&'a Object>,
        _after: Option<&'a mut Object>,
        _attempt: usize,
    ) -> BoxFuture<'a, Result<Companions, ApiError>> {
        Box::pin(async { Ok(Companions::default()) })
    }

    /// Refuses to delete an object that clients count on.
    ///
    /// # Errors
    /// 403 for an object that has to stay.
    fn check_delete(&self, _registry: &Registry, _target: &Target, _name: &str) -> Result<(), ApiError> {
        Ok(())
    }

    /// Whether objects are given time to end once they are deleted.
    fn is_graceful(&self) -> bool {
        false
    }

    /// Whether a deletion is bound to the uid of the object that it finds: those who judge it are shown that, and another uid is told of
    /// in the words in which an update tells of it.
    fn is_deleted_by_uid(&self) -> bool {
        false
    }

    /// Whether an object that is marked as deleted says that it has no time to end.
    fn states_grace_period(&self) -> bool {
        true
    }

    /// What stands in the place of an object that would go now, `last` as it was, because it is needed still; `None`: it goes.
    ///
    /// # Errors
    /// 500 when it can't be told who needs it.
    fn made_again<'a>(
        &'a self,
        _registry: &'a Registry,
        _last: &'a StoredObject,
    ) -> BoxFuture<'a, Result<Option<ManagedObject>, ApiError>> {
        Box::pin(async { Ok(None) })
    }

    /// Whether an object that is marked as deleted asks for something else than before, so that its generation goes up.
    fn counts_deletion(&self) -> bool {
        true
    }

    /// Changes an object that is being deleted but may not go yet. It says by then since when.
    fn mark_terminating(&self, _object: &mut Object) {}

    /// Whether an object without `metadata.finalizers` may go.
    fn may_go(&self, _object: &Object) -> bool {
        true
    }

    /// Whether dependents stay when an object is deleted by somebody who says nothing of them: so it was before there was
    /// garbage collection.
    fn orphans_by_default(&self) -> bool {
        false
    }

    /// What somebody should be told who deletes an object with these options.
    fn warn_on_delete(&self, _options: &DeleteOptions) -> Option<&'static str> {
        None
    }

    /// Whether a delete is answered with the object as it was, rather than with a `Status`.
    fn returns_deleted(&self) -> bool {
        false
    }
}

/// A kind without rules of its own.
pub(crate) struct Ordinary;

impl Strategy for Ordinary {}

/// A kind whose status is written without its metadata, and that has no other rules.
pub(super) struct StatusAlone;

impl Strategy for StatusAlone {
    fn kept(&self, subresource: &str) -> &'static [FieldPath] {
        metadata_of_status(subresource)
    }
}

/// A kind that others define: its status is written without its metadata.
pub(crate) struct Defined;

impl Strategy for Defined {
    fn kept(&self, subresource: &str) -> &'static [FieldPath] {
        metadata_of_status(subresource)
    }
}

/// A kind whose deletion is answered with the object itself, and whose status, if there is one, is written without its metadata.
pub(super) struct ReturnsDeleted;

impl Strategy for ReturnsDeleted {
    fn kept(&self, subresource: &str) -> &'static [FieldPath] {
        metadata_of_status(subresource)
    }

    fn returns_deleted(&self) -> bool {
        true
    }
}

/// What a write of the status keeps where only the status itself is written.
pub(super) fn metadata_of_status(subresource: &str) -> &'static [FieldPath] {
    if subresource == "status" { &[&["metadata"]] } else { &[] }
}
