//! The strategies of a kind: the steps of the generic verbs at which kinds differ.
//!
//! As in kube-apiserver, each verb that writes has its own strategy. The version of a resource has them
//! (`Target::strategy`), so no verb compares names of kinds. Every step defaults to that of an ordinary kind.
//!
//! A step that changes an object returns true if it did. The fields of a changed object are brought into canonical
//! order once, when it is encoded.

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
use crate::companions::AssociatedWrites;
pub use crate::prepare::same_specification;
use crate::registry::Registry;
use crate::target::Target;
use crate::warnings::Warnings;
use crate::write::{ManagedObject, WriteRequest};

/// A path of field names.
pub type FieldPath = &'static [&'static str];

/// The part of a sent object that an endpoint accepts.
pub enum AcceptedPart {
    /// The whole object: the kind restricts nothing.
    AsSent(Object),
    /// A part of the object, with the faults of the rest.
    Cut(Object, Vec<FieldError>),
}

/// The rules for the metadata of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetadataRules {
    /// The rules for all objects.
    Plain,
    /// The rules for all objects. Finalizers also need a domain.
    DomainsForFinalizers,
    /// The rules for all objects, checked only once all others hold.
    PlainAndLast,
}

/// The steps of every write, and properties of a kind that all writes depend on.
pub trait WriteStrategy: Send + Sync {
    /// Returns true if validation of an object may take long, however small it is.
    fn has_long_validation(&self) -> bool {
        false
    }

    /// Returns true if objects can be written before the server has published their storage version, because the
    /// publication needs them.
    fn precedes_publication(&self, _target: &Target) -> bool {
        false
    }

    /// Returns true for objects that show that servers, nodes and controllers are alive. A full store accepts small
    /// ones.
    fn keeps_alive(&self) -> bool {
        false
    }

    /// Returns true if objects give rights to users, or cause the server to read other objects for users. A write of
    /// such an object requires these rights, and costs a decision of the authorizer. Most kinds return false.
    fn grants_rights(&self) -> bool {
        false
    }

    /// Returns true if every request after the response of a write must see the write, even if its decision reads the
    /// cache.
    fn counts_at_once(&self) -> bool {
        self.grants_rights()
    }

    /// Refuses to give rights that the caller does not have. The object is valid, and changes from `before` (`None`: it
    /// is new) to `after`.
    ///
    /// # Errors
    /// 403 or 422 with the rights that the caller lacks, 404 for rights that do not exist.
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

    /// The associated writes of an object that changes from `before` (`None`: it is new) to `after` (`None`: it is
    /// deleted). May set allocated fields in `after`.
    ///
    /// # Errors
    /// 422 if a requested value is not available, 500 if nothing is left to allocate.
    fn companions<'a>(
        &'a self,
        _registry: &'a Registry,
        _target: &'a Target,
        _before: Option<&'a Object>,
        _after: Option<&'a mut Object>,
        _attempt: usize,
    ) -> BoxFuture<'a, Result<AssociatedWrites, ApiError>> {
        Box::pin(async { Ok(AssociatedWrites::default()) })
    }
}

/// The steps of a create. Before [`CreateStrategy::initial_status`] objects are in the version of the request, and from
/// there on in the stored version.
pub trait CreateStrategy: Send + Sync {
    /// Fills in fields that a new object implies. The client owns them.
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

    /// Sets fields of a new object from other objects: its class, or the default class.
    ///
    /// # Errors
    /// 403 if the object contradicts its class, or if no class has that name.
    fn admit(&self, _registry: &Registry, _target: &Target, _object: &mut Object) -> Result<bool, ApiError> {
        Ok(false)
    }

    /// Fills in further fields of a new object. Its name and uid are already set.
    fn prepare_create(&self, _object: &mut Object, _warnings: &Warnings) -> bool {
        false
    }

    /// The faults of a new object that follow from other objects. They are reported before those of validation.
    ///
    /// # Errors
    /// 500 if the other objects cannot be read.
    fn faults_beside_others(&self, _registry: &Registry, _object: &Object) -> Result<Vec<FieldError>, ApiError> {
        Ok(Vec::new())
    }
}

/// The steps of an update of an object or of one of its subresources.
pub trait UpdateStrategy: Send + Sync {
    /// Fills in fields that the next state of an object implies. The client owns them.
    fn complete_update(&self, _current: &Object, _next: &mut Object, _now: SystemTime) -> bool {
        false
    }

    /// Sets fields in the next state of an object from other objects.
    ///
    /// # Errors
    /// 403 if the object contradicts other objects.
    fn admit_update(
        &self,
        _registry: &Registry,
        _target: &Target,
        _current: &Object,
        _next: &mut Object,
    ) -> Result<bool, ApiError> {
        Ok(false)
    }

    /// Sets the fields that an object keeps or gets in an update through the target's endpoint.
    fn prepare_update(&self, _target: &Target, _current: &Object, _next: &mut Object) -> bool {
        false
    }

    /// Records the time of the change in an object.
    fn date_update(&self, _target: &Target, _current: &Object, _next: &mut Object, _now: SystemTime) -> bool {
        false
    }

    /// Returns true if the specification changed, so that the generation increases.
    fn raises_generation(&self, current: &Object, next: &Object) -> bool {
        !same_specification(current, next)
    }

    /// The part of a sent object that a subresource accepts, if it is neither the whole status nor everything else.
    fn confine(&self, _subresource: &str, _stored: &Object, sent: Object, _now: SystemTime) -> AcceptedPart {
        AcceptedPart::AsSent(sent)
    }

    /// The fields that a write to an endpoint cannot change. The name is empty for the object itself.
    fn kept(&self, _subresource: &str) -> &'static [FieldPath] {
        &[]
    }

    /// The fields that a write to an endpoint changes in part, so that the client does not own them.
    fn shared(&self, _subresource: &str) -> &'static [FieldPath] {
        &[]
    }

    /// Returns true if [`count_update`](Self::count_update) counts updates through an endpoint. The name is empty for
    /// the object itself.
    fn counts_updates(&self, _subresource: &str) -> bool {
        false
    }

    /// Counts an update for metrics, after its commit.
    fn count_update(&self, _before: &Object, _after: &Object) {}

    /// Checks the result of an update of a subresource, beyond validation.
    ///
    /// # Errors
    /// 422 with the faults.
    fn check_subresource(&self, _target: &Target, _object: &Object) -> Result<(), ApiError> {
        Ok(())
    }

    /// Returns true if some changes through an endpoint require rights of their own. The name is empty for the object
    /// itself. Most kinds return false.
    fn restricts_changes(&self, _subresource: &str) -> bool {
        false
    }

    /// The changes from `before` to `after` that the caller has no right to make. They are reported before the faults
    /// of validation.
    ///
    /// # Errors
    /// 500 if other objects cannot be read.
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

    /// Returns true if deleted objects get a grace period.
    fn is_graceful(&self) -> bool {
        false
    }

    /// Returns true if a deletion has the uid of the object that it finds as a precondition. Admission sees that uid.
    /// Another uid is a conflict with the text of an update.
    fn is_deleted_by_uid(&self) -> bool {
        false
    }

    /// Returns true if an object that is marked as deleted gets a grace period of zero.
    fn states_grace_period(&self) -> bool {
        true
    }

    /// The object that replaces a deleted one because it is still needed. `last` is the last state. `None` if it is
    /// deleted.
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

    /// Returns true if marking an object as deleted increases its generation.
    fn counts_deletion(&self) -> bool {
        true
    }

    /// Changes an object that is being deleted but cannot be removed yet. Its deletion timestamp is already set.
    fn mark_terminating(&self, _object: &mut Object) {}

    /// Returns true if an object without `metadata.finalizers` may be removed.
    fn may_go(&self, _object: &Object) -> bool {
        true
    }

    /// Returns true if a deletion without a propagation policy orphans dependents, as before garbage collection
    /// existed.
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

    /// Removes the finalizer for the content of an object, after the content is gone. Only namespaces have content.
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
    pub const DEFINED: Self = Self { update: &StatusOnlyStrategy, ..Self::ORDINARY };

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
pub struct StatusOnlyStrategy;

impl UpdateStrategy for StatusOnlyStrategy {
    fn kept(&self, subresource: &str) -> &'static [FieldPath] {
        metadata_of_status(subresource)
    }
}

/// The paths that a write of the status cannot change, for kinds where it writes the status alone.
pub fn metadata_of_status(subresource: &str) -> &'static [FieldPath] {
    if subresource == "status" { &[&["metadata"]] } else { &[] }
}
