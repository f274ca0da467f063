//! Admission hooks: a program's own code for each write of one of its types.
//!
//! A hook sees typed objects. It runs twice: first to change the object, then to validate the result. It runs again
//! when the stored object changed meanwhile, so it should have no side effects.

use std::borrow::Cow;
use std::marker::PhantomData;

use async_trait::async_trait;
use futures::future::BoxFuture;
use keelson_access::User;
use keelson_meta::{ApiError, GroupVersionKind, Object};
use keelson_registry::{Admission, AdmissionAttributes, AttributesNeeded, Mutation, Operation};
use kube::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// An admission hook for one type, in the version of that type.
#[async_trait]
pub trait AdmissionHook<K: Send + Sync>: Send + Sync + 'static {
    /// Changes the object before it is stored. Not called for deletions. Its changes get no managedFields entry.
    ///
    /// # Errors
    /// The message to the client of a refused write.
    async fn mutate(&self, request: &AdmissionRequest<'_, K>, object: &mut K) -> Result<(), Refusal> {
        let (_, _) = (request, object);
        Ok(())
    }

    /// Validates the object before it is stored, or its deletion (`None`; the object is in [`AdmissionRequest::old`]).
    ///
    /// # Errors
    /// The message to the client of a refused write.
    async fn validate(&self, request: &AdmissionRequest<'_, K>, object: Option<&K>) -> Result<(), Refusal> {
        let (_, _) = (request, object);
        Ok(())
    }
}

/// A write, without the new object.
#[derive(Debug)]
pub struct AdmissionRequest<'a, K> {
    /// The user.
    pub user: &'a User,
    /// The operation.
    pub operation: Operation,
    /// The namespace. `None` for an object without one.
    pub namespace: Option<&'a str>,
    /// The name. Empty for a name still to be generated, and for the deletion of a collection.
    pub name: &'a str,
    /// The written subresource, such as `status`.
    pub subresource: Option<&'a str>,
    /// The stored object. `None` for a new one.
    pub old: Option<K>,
    /// True for a dry run.
    pub dry_run: bool,
    attributes: &'a AdmissionAttributes<'a>,
}

impl<K> AdmissionRequest<'_, K> {
    /// Adds a warning to the response, even if the write is refused.
    pub fn warn(&self, text: impl Into<String>) {
        self.attributes.caller.warnings().add(text);
    }
}

/// The refusal of a write: 403 with this text after the object's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(Cow<'static, str>);

impl Refusal {
    /// A refusal with this text.
    pub fn new(text: impl Into<Cow<'static, str>>) -> Self {
        Self(text.into())
    }
}

/// A hook as an admission plugin.
pub(crate) struct HookPlugin<K, H> {
    hook: H,
    kind: GroupVersionKind,
    of: PhantomData<fn() -> K>,
}

impl<K: Resource<DynamicType = ()>, H> HookPlugin<K, H> {
    pub(crate) fn new(hook: H) -> Self {
        let kind = GroupVersionKind {
            group: K::group(&()).into_owned(),
            version: K::version(&()).into_owned(),
            kind: K::kind(&()).into_owned(),
        };
        Self { hook, kind, of: PhantomData }
    }
}

impl<K, H> HookPlugin<K, H>
where
    K: Serialize + DeserializeOwned + Send + Sync + 'static,
    H: AdmissionHook<K>,
{
    /// The request for the hook; `None` for writes that it does not handle.
    fn request<'a>(
        &self,
        attributes: &'a AdmissionAttributes<'a>,
    ) -> Result<Option<AdmissionRequest<'a, K>>, ApiError> {
        let AdmissionAttributes { caller, operation, target, name, old, .. } = *attributes;
        if *target.version.kind() != self.kind || operation == Operation::Connect {
            return Ok(None);
        }
        Ok(Some(AdmissionRequest {
            user: caller.user(),
            operation,
            namespace: target.namespace.as_deref(),
            name,
            subresource: target.subresource.as_ref().map(|below| &*below.name),
            old: old.map(typed).transpose()?,
            dry_run: caller.is_dry_run(),
            attributes,
        }))
    }

    fn refused(attributes: &AdmissionAttributes<'_>, refusal: &Refusal) -> ApiError {
        ApiError::Refused {
            resource: attributes.target.group_resource(),
            name: attributes.name.to_owned(),
            message: refusal.to_string(),
            causes: Vec::new(),
        }
    }
}

impl<K, H> Admission for HookPlugin<K, H>
where
    K: Serialize + DeserializeOwned + Send + Sync + 'static,
    H: AdmissionHook<K>,
{
    fn interest(&self, attributes: &AdmissionAttributes<'_>) -> AttributesNeeded {
        let is_asked = *attributes.target.version.kind() == self.kind && attributes.operation != Operation::Connect;
        if is_asked { AttributesNeeded::Whole } else { AttributesNeeded::None }
    }

    fn mutate<'a>(
        &'a self,
        attributes: &'a AdmissionAttributes<'a>,
        object: Option<&'a mut Object>,
    ) -> BoxFuture<'a, Result<Mutation, ApiError>> {
        Box::pin(async move {
            let (Some(request), Some(object)) = (self.request(attributes)?, object) else {
                return Ok(Mutation::Unchanged);
            };
            let mut changed: K = typed(object)?;
            let before = untyped(&changed)?;
            self.hook.mutate(&request, &mut changed).await.map_err(|refusal| Self::refused(attributes, &refusal))?;
            let after = untyped(&changed)?;
            if after == before {
                return Ok(Mutation::Unchanged);
            }
            *object = after;
            Ok(Mutation::Changed)
        })
    }

    fn validate<'a>(
        &'a self,
        attributes: &'a AdmissionAttributes<'a>,
        object: Option<&'a Object>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            let Some(request) = self.request(attributes)? else { return Ok(()) };
            let object: Option<K> = object.map(typed).transpose()?;
            let judged = self.hook.validate(&request, object.as_ref()).await;
            judged.map_err(|refusal| Self::refused(attributes, &refusal))
        })
    }
}

impl<K, H> std::fmt::Debug for HookPlugin<K, H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hooked").field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// Converts an object to the program's type.
///
/// # Errors
/// 500 when the type rejects an object that its schema allows.
pub(crate) fn typed<K: DeserializeOwned>(object: &Object) -> Result<K, ApiError> {
    let read = serde_json::to_vec(object).and_then(|bytes| serde_json::from_slice(&bytes));
    read.map_err(|error| ApiError::Internal(format!("the type of the object does not read it: {error}")))
}

/// Converts a value of the program's type to an object.
///
/// # Errors
/// 500 when it does not serialize to an object.
pub(crate) fn untyped<K: Serialize>(typed: &K) -> Result<Object, ApiError> {
    let object = serde_json::to_vec(typed).and_then(|bytes| serde_json::from_slice(&bytes));
    object.map_err(|error| ApiError::Internal(format!("the type of the object does not write it: {error}")))
}
