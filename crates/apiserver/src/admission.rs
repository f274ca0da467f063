//! Admission hooks: what a program does with each write of a type of its own before it is stored.
//!
//! A hook sees typed objects. It is asked twice: once to change the object, and once to judge what has become of it. When the stored
//! object changes meanwhile it is asked again, so it should have no effect of its own.

use std::borrow::Cow;
use std::marker::PhantomData;

use async_trait::async_trait;
use futures::future::BoxFuture;
use keelson_access::User;
use keelson_meta::{ApiError, GroupVersionKind, Object};
use keelson_registry::{Admission, AdmissionAttributes, Interest, Mutation, Operation};
use kube::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A hook for writes of one type, in the version of that type.
#[async_trait]
pub trait AdmissionHook<K: Send + Sync>: Send + Sync + 'static {
    /// Changes what will be written. Not asked of deletions. What it adds nobody owns.
    ///
    /// # Errors
    /// What the client is told when the write is refused.
    async fn mutate(&self, request: &AdmissionRequest<'_, K>, object: &mut K) -> Result<(), Refusal> {
        let (_, _) = (request, object);
        Ok(())
    }

    /// Judges what will be stored, or what will be gone (`None`; it is in [`AdmissionRequest::old`]).
    ///
    /// # Errors
    /// What the client is told when the write is refused.
    async fn validate(&self, request: &AdmissionRequest<'_, K>, object: Option<&K>) -> Result<(), Refusal> {
        let (_, _) = (request, object);
        Ok(())
    }
}

/// A write, but for the object that it leaves.
#[derive(Debug)]
pub struct AdmissionRequest<'a, K> {
    /// Who writes.
    pub user: &'a User,
    /// What is done.
    pub operation: Operation,
    /// The namespace; `None` of an object in none.
    pub namespace: Option<&'a str>,
    /// The name; empty where it is still to be generated, and where a collection is deleted.
    pub name: &'a str,
    /// The subresource that is written, such as `status`.
    pub subresource: Option<&'a str>,
    /// The object as it is stored; `None` for a new one.
    pub old: Option<K>,
    /// Whether nothing will be stored.
    pub dry_run: bool,
    attributes: &'a AdmissionAttributes<'a>,
}

impl<K> AdmissionRequest<'_, K> {
    /// Warns who writes, whatever becomes of the write.
    pub fn warn(&self, text: impl Into<String>) {
        self.attributes.caller.warnings().add(text);
    }
}

/// Why a hook refuses a write: 403, with this text behind the name of the object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(Cow<'static, str>);

impl Refusal {
    /// A refusal with this text.
    pub fn new(text: impl Into<Cow<'static, str>>) -> Self {
        Self(text.into())
    }
}

/// A hook as the write engine asks it.
pub(crate) struct Hooked<K, H> {
    hook: H,
    kind: GroupVersionKind,
    of: PhantomData<fn() -> K>,
}

impl<K: Resource<DynamicType = ()>, H> Hooked<K, H> {
    pub(crate) fn new(hook: H) -> Self {
        let kind = GroupVersionKind {
            group: K::group(&()).into_owned(),
            version: K::version(&()).into_owned(),
            kind: K::kind(&()).into_owned(),
        };
        Self { hook, kind, of: PhantomData }
    }
}

impl<K, H> Hooked<K, H>
where
    K: Serialize + DeserializeOwned + Send + Sync + 'static,
    H: AdmissionHook<K>,
{
    /// What the hook is told; `None` of writes that are not its.
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

impl<K, H> Admission for Hooked<K, H>
where
    K: Serialize + DeserializeOwned + Send + Sync + 'static,
    H: AdmissionHook<K>,
{
    fn interest(&self, attributes: &AdmissionAttributes<'_>) -> Interest {
        let is_asked = *attributes.target.version.kind() == self.kind && attributes.operation != Operation::Connect;
        if is_asked { Interest::Whole } else { Interest::None }
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

impl<K, H> std::fmt::Debug for Hooked<K, H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hooked").field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// An object as the program's type.
///
/// # Errors
/// 500 when the type does not read what its schema allows.
pub(crate) fn typed<K: DeserializeOwned>(object: &Object) -> Result<K, ApiError> {
    let read = serde_json::to_vec(object).and_then(|bytes| serde_json::from_slice(&bytes));
    read.map_err(|error| ApiError::Internal(format!("the type of the object does not read it: {error}")))
}

/// What the program's type is as an object.
///
/// # Errors
/// 500 when it is none.
pub(crate) fn untyped<K: Serialize>(typed: &K) -> Result<Object, ApiError> {
    let object = serde_json::to_vec(typed).and_then(|bytes| serde_json::from_slice(&bytes));
    object.map_err(|error| ApiError::Internal(format!("the type of the object does not write it: {error}")))
}
