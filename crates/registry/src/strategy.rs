//! The strategies of a kind: the steps of the generic verbs at which kinds differ.
//!
//! As in kube-apiserver there is one for each verb that writes. They hang from the version of a resource that a request is for
//! (`Target::strategy`), so that no verb knows a kind by name. Every step defaults to that of an ordinary kind. A step that changes an
//! object returns true if it did: the fields of a changed object are brought into canonical order once, when it is encoded.

use std::time::SystemTime;

use futures::future::BoxFuture;
use keelson_access::User;
use keelson_codec::StoredObject;
use keelson_meta::field_error::FieldError;
use keelson_meta::json::Map;
use keelson_meta::options::DeleteOptions;
use keelson_meta::{ApiError, Object};

use crate::caller::Caller;
pub use crate::closed_fields::{ClosedFields, EACH};
use crate::companions::Companions;
pub use crate::prepare::same_specification;
use crate::registry::Registry;
use crate::target::Target;
use crate::warnings::Warnings;
use crate::write::{ManagedObject, WriteRequest};

/// A path of names of fields.
pub type FieldPath = &'static [&'static str];

/// The part of a sent object that an endpoint accepts.
pub enum Confined {
    /// All of it, as far as the kind has a say.
    AsSent(Object),
    /// A part of it, and what is wrong with the rest.
    Cut(Object, Vec<FieldError>),
}

/// The rules for the metadata of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetadataRules {
    /// The rules for all objects.
    Plain,
    /// The rules for all objects; finalizers also need a domain.
    DomainsForFinalizers,
    /// The rules for all objects, checked only once all others hold.
    PlainAndLast,
}

/// The steps of every write, and properties of a kind that all writes depend on.
pub trait WriteStrategy: Send + Sync {
    /// Returns true if validation of an object may take long, however small it is.
    fn is_judged_long(&self) -> bool {
        false
    }

    /// Returns true if objects are written before the server has published their storage version: those that the publication needs.
    fn precedes_publication(&self, _target: &Target) -> bool {
        false
    }

    /// Returns true for objects by which servers, nodes and controllers show that they are alive. A full store takes small ones.
    fn keeps_alive(&self) -> bool {
        false
    }

    /// Returns true if objects give rights to users, or have the server read other objects for them. A write of such an object requires
    /// these rights, which cost a decision of the authorizer. Most kinds do not.
    fn grants_rights(&self) -> bool {
        false
    }

    /// Returns true if every request that follows the response of a write must see it, also where decisions read the cache.
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

    /// Returns true if objects may have associated writes. Most kinds have none, at no cost.
    fn has_companions(&self) -> bool {
        false
    }

    /// The associated writes of an object that becomes `after` (`None`: it goes) from `before` (`None`: it is new). May complete `after`
    /// with what they take for it.
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
}

/// The steps of a create. Objects are in the version of the request before [`CreateStrategy::initial_status`], and in the stored
/// version from there on.
pub trait CreateStrategy: Send + Sync {
    /// Fills in fields that a new object implies; its writer therefore owns them.
    fn complete_new(&self, _object: &mut Object, _now: SystemTime) -> bool {
        false
    }

    /// Records the creator in a new object.
    fn attribute(&self, _object: &mut Object, _user: &User) -> bool {
        false
    }

    /// Returns true if a create also sets the status.
    fn keeps_status_on_create(&self, _creator: &Caller) -> bool {
        false
    }

    /// The status of a new object.
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

    /// Fills in fields of a new object beyond those that were sent. It has its name and its uid by then.
    fn prepare_create(&self, _object: &mut Object, _warnings: &Warnings) -> bool {
        false
    }

    /// The faults of a new object that follow from other objects. They are reported before those of validation.
    ///
    /// # Errors
    /// 500 when the others can't be read.
    fn faults_beside_others(&self, _registry: &Registry, _object: &Object) -> Result<Vec<FieldError>, ApiError> {
        Ok(Vec::new())
    }
}

/// The steps of an update of an object or of one of its subresources.
pub trait UpdateStrategy: Send + Sync {
    /// Fills in fields that the next state of an object implies; its writer therefore owns them.
    fn complete_update(&self, _current: &Object, _next: &mut Object, _now: SystemTime) -> bool {
        false
    }

    /// Has the next state of an object take over fields of other objects.
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

    /// Sets the fields that an object keeps or gets in an update of the endpoint.
    fn prepare_update(&self, _target: &Target, _current: &Object, _next: &mut Object) -> bool {
        false
    }

    /// Records in an object when it changed.
    fn date_update(&self, _target: &Target, _current: &Object, _next: &mut Object, _now: SystemTime) -> bool {
        false
    }

    /// Returns true if the specification changed, so that the generation goes up.
    fn raises_generation(&self, current: &Object, next: &Object) -> bool {
        !same_specification(current, next)
    }

    /// The part of a sent object that a subresource takes, where that is neither all of the status nor all of the rest.
    fn confine(&self, _subresource: &str, _stored: &Object, sent: Object, _now: SystemTime) -> Confined {
        Confined::AsSent(sent)
    }

    /// The fields that a write to an endpoint cannot change. The name is empty for the object itself.
    fn kept(&self, _subresource: &str) -> &'static [FieldPath] {
        &[]
    }

    /// The fields that a write to an endpoint changes in part, so that its writer does not own them.
    fn shared(&self, _subresource: &str) -> &'static [FieldPath] {
        &[]
    }

    /// Checks the result of an update of a subresource, beyond validation.
    ///
    /// # Errors
    /// 422 with what is wrong.
    fn check_subresource(&self, _target: &Target, _object: &Object) -> Result<(), ApiError> {
        Ok(())
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
}

/// The steps of a deletion.
pub trait DeleteStrategy: Send + Sync {
    /// Refuses to delete an object that clients rely on.
    ///
    /// # Errors
    /// 403 for an object that has to stay.
    fn check_delete(&self, _registry: &Registry, _target: &Target, _name: &str) -> Result<(), ApiError> {
        Ok(())
    }

    /// Returns true if deleted objects get time to end.
    fn is_graceful(&self) -> bool {
        false
    }

    /// Returns true if a deletion is bound to the uid of the object that it finds. Admission gets that uid, and another one is a
    /// conflict in the words of an update.
    fn is_deleted_by_uid(&self) -> bool {
        false
    }

    /// Returns true if an object that is marked as deleted states a grace period of zero.
    fn states_grace_period(&self) -> bool {
        true
    }

    /// The object that replaces a deleted one because it is still needed; `last` is its last state. `None`: it is deleted.
    ///
    /// # Errors
    /// 500 when its users cannot be determined.
    fn made_again<'a>(
        &'a self,
        _registry: &'a Registry,
        _last: &'a StoredObject,
    ) -> BoxFuture<'a, Result<Option<ManagedObject>, ApiError>> {
        Box::pin(async { Ok(None) })
    }

    /// Returns true if marking an object as deleted raises its generation.
    fn counts_deletion(&self) -> bool {
        true
    }

    /// Changes an object that is being deleted but may not go yet. Its deletion timestamp is set by then.
    fn mark_terminating(&self, _object: &mut Object) {}

    /// Returns true if an object without `metadata.finalizers` may go.
    fn may_go(&self, _object: &Object) -> bool {
        true
    }

    /// Returns true if dependents stay when the options of a deletion do not mention them, as before there was garbage collection.
    fn orphans_by_default(&self) -> bool {
        false
    }

    /// The warning for the caller of a deletion with these options.
    fn warn_on_delete(&self, _options: &DeleteOptions) -> Option<&'static str> {
        None
    }

    /// Returns true if a deletion returns the object in its last state rather than a `Status`.
    fn returns_deleted(&self) -> bool {
        false
    }

    /// Takes off what holds an object for its content, once that is gone. Only namespaces have content.
    fn finalize(&self, _object: &mut Object) {}
}

/// The strategies of a kind: one for all writes, and one for each verb that writes.
#[derive(Clone, Copy)]
pub struct Strategies {
    /// The steps of all writes.
    pub write: &'static dyn WriteStrategy,
    /// The steps of a create.
    pub create: &'static dyn CreateStrategy,
    /// The steps of an update.
    pub update: &'static dyn UpdateStrategy,
    /// The steps of a deletion.
    pub delete: &'static dyn DeleteStrategy,
}

impl Strategies {
    /// The strategies of a kind without rules of its own.
    pub const ORDINARY: Self = Self { write: &Ordinary, create: &Ordinary, update: &Ordinary, delete: &Ordinary };
    /// The strategies of a kind that a definition declares: its status is written without its metadata.
    pub const DEFINED: Self = Self { update: &StatusAlone, ..Self::ORDINARY };

    /// Replaces the steps of all writes.
    #[must_use]
    pub const fn write(mut self, strategy: &'static dyn WriteStrategy) -> Self {
        self.write = strategy;
        self
    }

    /// Replaces the steps of a create.
    #[must_use]
    pub const fn create(mut self, strategy: &'static dyn CreateStrategy) -> Self {
        self.create = strategy;
        self
    }

    /// Replaces the steps of an update.
    #[must_use]
    pub const fn update(mut self, strategy: &'static dyn UpdateStrategy) -> Self {
        self.update = strategy;
        self
    }

    /// Replaces the steps of a deletion.
    #[must_use]
    pub const fn delete(mut self, strategy: &'static dyn DeleteStrategy) -> Self {
        self.delete = strategy;
        self
    }
}

/// The strategy of a kind without rules of its own.
struct Ordinary;

impl WriteStrategy for Ordinary {}

impl CreateStrategy for Ordinary {}

impl UpdateStrategy for Ordinary {}

impl DeleteStrategy for Ordinary {}

/// The strategy of a kind whose status is written without its metadata.
pub struct StatusAlone;

impl UpdateStrategy for StatusAlone {
    fn kept(&self, subresource: &str) -> &'static [FieldPath] {
        metadata_of_status(subresource)
    }
}

/// The paths that a write of the status keeps where only the status itself is written.
pub fn metadata_of_status(subresource: &str) -> &'static [FieldPath] {
    if subresource == "status" { &[&["metadata"]] } else { &[] }
}
