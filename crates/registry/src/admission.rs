//! Admission: plugins that change or refuse a write of any kind.
//!
//! `write::stages` calls a plugin at two places: once to change the object, and once to validate the result. A plugin
//! may wait for other services. When the object changes meanwhile, the plugin is called again, so it must have no side
//! effects. Fields set by a plugin get no managedFields entry.
//!
//! A plugin may add warnings (`caller.warnings()` of the attributes), also when the write is refused. This crate does
//! not know which plugins exist.

mod chain;
mod reinvocation;
mod stats;

use std::fmt::Debug;

use futures::future::{BoxFuture, ready};
use keelson_meta::options::{CreateOptions, DeleteOptions, FieldValidation, PatchOptions, UpdateOptions};
use keelson_meta::{ApiError, GroupVersion, GroupVersionKind, Object};

pub use chain::AdmissionChain;
pub(crate) use chain::{none_inherent, reshape};
pub use reinvocation::Reinvocation;
pub use stats::{ADMISSION_BUCKETS, AdmissionStage, AdmissionStats, AdmissionTimes, PluginKey};

use crate::caller::Caller;
use crate::intake::conform;
use crate::registry::Registry;
use crate::target::Target;
use crate::versions::convert;
use crate::write::WriteRequest;

/// The operation of a request, as admission names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// An object is created, or posted to a create-only subresource.
    Create,
    /// An object is changed.
    Update,
    /// An object is deleted.
    Delete,
    /// A connection to a kubelet, a pod or a service.
    Connect,
}

impl Operation {
    /// The operation as rules and reviews name it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// The options of a request.
#[derive(Clone, Copy, Debug)]
pub enum WriteOptions<'a> {
    /// No options: the server writes by itself, or nothing is written.
    None,
    /// The options of a create.
    Create(&'a CreateOptions),
    /// The options of an update.
    Update(&'a UpdateOptions),
    /// The options of a patch.
    Patch(&'a PatchOptions),
    /// The options of a deletion.
    Delete(&'a DeleteOptions),
}

/// The attributes of a write that admission sees, without the new object.
#[derive(Clone, Copy)]
pub struct AdmissionAttributes<'a> {
    /// The registry for reads of other objects.
    pub registry: &'a Registry,
    /// The caller, with its dry run.
    pub caller: &'a Caller,
    /// The operation.
    pub operation: Operation,
    /// The endpoint, its subresource and the version of the request.
    pub target: &'a Target,
    /// The name in the request, or the name of the object that it creates. Empty until a name is generated, and for the
    /// deletion of a collection.
    pub name: &'a str,
    /// The stored object in the version of the request, or its form at the endpoint, such as its scale. `None` for a
    /// new object.
    pub old: Option<&'a Object>,
    /// The options of the request.
    pub options: WriteOptions<'a>,
    /// The number of this pass through the mutating plugins, and the plugins that request another pass.
    pub reinvocation: &'a Reinvocation,
}

impl Debug for AdmissionAttributes<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AdmissionAttributes")
            .field("operation", &self.operation)
            .field("target", &self.target)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl<'a> AdmissionAttributes<'a> {
    pub(crate) fn new(
        registry: &'a Registry,
        request: &WriteRequest<'a>,
        operation: Operation,
        reinvocation: &'a Reinvocation,
    ) -> Self {
        let name = if request.of_collection { "" } else { request.name };
        let WriteRequest { target, caller, options, .. } = *request;
        Self { registry, caller, operation, target, name, old: None, options, reinvocation }
    }

    /// Sets the stored object before the write.
    #[must_use]
    pub(crate) fn from(self, old: Option<&'a Object>) -> Self {
        Self { old, ..self }
    }

    /// Sets a new object, whose name may have been generated.
    #[must_use]
    pub(crate) fn making(self, object: &'a Object) -> Self {
        if self.name.is_empty() { Self { name: object.name(), ..self } } else { self }
    }

    /// The name of the subresource that is written; empty for the object itself.
    pub fn subresource(&self) -> &'a str {
        self.target.subresource.as_ref().map_or("", |below| &*below.name)
    }

    /// Normalizes an object in any version of the requested resource: prunes fields that its kind lacks, and sets
    /// defaults.
    ///
    /// # Errors
    /// The text of upstream's decoder for an object that does not fit its kind.
    pub fn fit(&self, kind: &GroupVersionKind, object: &mut Object) -> Result<(), String> {
        conform(self.target, kind, object, &[], FieldValidation::Ignore).map(|_| ())
    }

    /// Converts an object to another version, or to the other group that serves its resource.
    ///
    /// # Errors
    /// 500 if the object cannot be converted.
    pub async fn convert(&self, object: &mut Object, to: &GroupVersionKind) -> Result<(), ApiError> {
        let target = self.target;
        let from = object.api_version().and_then(GroupVersion::parse).unwrap_or_default();
        if from.group == to.group {
            return convert(target, object, to).await;
        }
        let of = |group: &str| {
            let resource = target.surface.by_kind(group, &to.kind)?;
            Some(target.surface.target_of(resource, resource.versions().first()?))
        };
        let unknown = || ApiError::Internal(format!("unable to convert to {to:?}: unknown kind"));
        let (before, behind) = (of(&from.group).ok_or_else(unknown)?, of(&to.group).ok_or_else(unknown)?);
        convert(&before, object, before.storage_kind()).await?;
        convert(&behind, object, to).await
    }

    /// The 403 error with which plugins refuse a request, with this reason.
    pub fn refused(&self, message: impl Into<String>) -> ApiError {
        let (resource, name) = (self.target.group_resource(), self.name.to_owned());
        ApiError::Refused { resource, name, message: message.into(), causes: Vec::new() }
    }
}

/// The part of an object that a plugin reads. Each one costs more than the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AttributesNeeded {
    /// Nothing: the plugin is not called.
    None,
    /// The object without `metadata.managedFields`. Its resourceVersion may be missing too, if it is stored in the
    /// version of the request.
    Object,
    /// The whole of it, with `metadata.managedFields`.
    Whole,
}

/// The result of a mutation: the object changed or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// The object is as it was.
    Unchanged,
    /// The object changed, and is normalized again.
    Changed,
}

/// A plugin.
pub trait Admission: Debug + Send + Sync {
    /// The plugin's name in settings and metrics.
    fn name(&self) -> &'static str {
        "Hook"
    }

    /// Returns the part of the object that this plugin needs for such a write. It is called before the object exists.
    /// If every plugin returns [`AttributesNeeded::None`], nothing is prepared for them.
    fn interest(&self, _attributes: &AdmissionAttributes<'_>) -> AttributesNeeded {
        AttributesNeeded::Whole
    }

    /// Changes the object of a write; `None` for a deletion, which leaves no object. For a connection, the object holds
    /// its options.
    ///
    /// # Errors
    /// The error for the client, if the write is refused.
    fn mutate<'a>(
        &'a self,
        attributes: &'a AdmissionAttributes<'a>,
        object: Option<&'a mut Object>,
    ) -> BoxFuture<'a, Result<Mutation, ApiError>> {
        let (_, _) = (attributes, object);
        Box::pin(ready(Ok(Mutation::Unchanged)))
    }

    /// Validates the object that will be stored, with uid, generated name and server fields, in the version of the
    /// request. Addresses and ports of a service are allocated later, with the transaction.
    ///
    /// # Errors
    /// The error for the client, if the write is refused.
    fn validate<'a>(
        &'a self,
        attributes: &'a AdmissionAttributes<'a>,
        object: Option<&'a Object>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        let (_, _) = (attributes, object);
        Box::pin(ready(Ok(())))
    }
}
