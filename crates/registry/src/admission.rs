//! Admission: plugins that change what is written, or refuse it, whatever its kind.
//!
//! A plugin is asked twice about each write, at the two places that `write::stages` has for it: once to change the object,
//! once to judge what has become of it. It may wait for others; when the object changes meanwhile it is asked again, so it
//! should have no effect of its own. What a plugin adds nobody owns. It may warn who writes (`caller.warnings()` of the
//! attributes), whatever it answers, also where another plugin or a later stage refuses the write. The plugins are those of servers that
//! are written with the library; what the server itself takes from classes is in `kinds`.

mod certificates;
mod node_restriction;

use std::fmt::Debug;
use std::sync::Arc;

use futures::future::{BoxFuture, ready};
use keelson_meta::options::{CreateOptions, DeleteOptions, PatchOptions, UpdateOptions};
use keelson_meta::{ApiError, GroupVersionKind, Object};

pub use certificates::CertificateRules;
pub use node_restriction::NodeRestriction;

use crate::caller::Caller;
use crate::intake::{conform, match_url};
use crate::registry::Registry;
use crate::target::Target;
use crate::write::WriteRequest;
use keelson_meta::options::FieldValidation;

/// What a request does, as admission tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// An object is made, or an act posted.
    Create,
    /// An object is changed.
    Update,
    /// An object is deleted.
    Delete,
    /// A request is passed on to somebody else.
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
    /// None: the server writes by itself, or nothing is written.
    None,
    /// Those of a create.
    Create(&'a CreateOptions),
    /// Those of an update.
    Update(&'a UpdateOptions),
    /// Those of a patch.
    Patch(&'a PatchOptions),
    /// Those of a deletion.
    Delete(&'a DeleteOptions),
}

/// A write as admission sees it, but for the object that it leaves.
#[derive(Clone, Copy, Debug)]
pub struct AdmissionAttributes<'a> {
    /// Who writes, or only rehearses.
    pub caller: &'a Caller,
    /// What is done.
    pub operation: Operation,
    /// The endpoint, its subresource and the version of the request.
    pub target: &'a Target,
    /// The name in the request, or that of the object which it makes: empty until a name is generated, and where a collection is
    /// deleted.
    pub name: &'a str,
    /// The object as it is stored, in the version of the request, or what the endpoint shows of it, such as its scale; `None` for a
    /// new one.
    pub old: Option<&'a Object>,
    /// The options of the request.
    pub options: WriteOptions<'a>,
}

impl<'a> AdmissionAttributes<'a> {
    pub(crate) fn of(request: &WriteRequest<'a>, operation: Operation, old: Option<&'a Object>) -> Self {
        let name = if request.of_collection { "" } else { request.name };
        let WriteRequest { target, caller, options, .. } = *request;
        Self { caller, operation, target, name, old, options }
    }

    /// The same for a new object, whose name may have been generated since.
    pub(crate) fn of_new(request: &WriteRequest<'a>, object: &'a Object) -> Self {
        let attributes = Self::of(request, Operation::Create, None);
        if attributes.name.is_empty() { Self { name: object.name(), ..attributes } } else { attributes }
    }
}

/// Whether a plugin changed an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// It did not.
    Unchanged,
    /// It did: the object is given the shape of its kind again.
    Changed,
}

/// A plugin.
pub trait Admission: Debug + Send + Sync {
    /// Whether it has anything to say to what this caller writes there; it is not asked otherwise, and nothing is prepared for it.
    fn concerns(&self, _caller: &Caller, _target: &Target) -> bool {
        true
    }

    /// Changes what is written, if it wants to; `None` for a deletion and for a connection, which leave no object.
    ///
    /// # Errors
    /// What the client is told when the write is refused.
    fn mutate<'a>(
        &'a self,
        attributes: &'a AdmissionAttributes<'a>,
        object: Option<&'a mut Object>,
    ) -> BoxFuture<'a, Result<Mutation, ApiError>> {
        let (_, _) = (attributes, object);
        Box::pin(ready(Ok(Mutation::Unchanged)))
    }

    /// Judges what will be stored: with its uid, its generated name, and what the server fills in, in the version of the request. The
    /// addresses and ports of a service are taken behind this, with the transaction that writes it.
    ///
    /// # Errors
    /// What the client is told when the write is refused.
    fn validate<'a>(
        &'a self,
        attributes: &'a AdmissionAttributes<'a>,
        object: Option<&'a Object>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        let (_, _) = (attributes, object);
        Box::pin(ready(Ok(())))
    }
}

/// Plugins, in the order in which they are asked.
#[derive(Clone, Debug, Default)]
pub struct AdmissionChain(Vec<Arc<dyn Admission>>);

impl FromIterator<Arc<dyn Admission>> for AdmissionChain {
    fn from_iter<I: IntoIterator<Item = Arc<dyn Admission>>>(plugins: I) -> Self {
        Self(plugins.into_iter().collect())
    }
}

impl AdmissionChain {
    /// Whether a plugin has anything to say to what a caller writes there.
    pub(crate) fn concerns(&self, caller: &Caller, target: &Target) -> bool {
        self.0.iter().any(|plugin| plugin.concerns(caller, target))
    }

    fn asked(&self, attributes: &AdmissionAttributes<'_>) -> impl Iterator<Item = &Arc<dyn Admission>> {
        let AdmissionAttributes { caller, target, .. } = *attributes;
        self.0.iter().filter(|plugin| plugin.concerns(caller, target))
    }

    /// Whether any of them changed the object.
    pub(crate) async fn mutate(
        &self,
        attributes: &AdmissionAttributes<'_>,
        mut object: Option<&mut Object>,
    ) -> Result<bool, ApiError> {
        let mut changed = false;
        for plugin in self.asked(attributes) {
            changed |= plugin.mutate(attributes, object.as_deref_mut()).await? == Mutation::Changed;
        }
        Ok(changed)
    }

    pub(crate) async fn validate(
        &self,
        attributes: &AdmissionAttributes<'_>,
        object: Option<&Object>,
    ) -> Result<(), ApiError> {
        for plugin in self.asked(attributes) {
            plugin.validate(attributes, object).await?;
        }
        Ok(())
    }
}

/// Gives what a plugin changed the shape of its kind again.
///
/// # Errors
/// 400 when it is no longer the one of the URL, 500 when it does not fit its kind.
pub(crate) fn reshape(target: &Target, kind: &GroupVersionKind, object: &mut Object) -> Result<(), ApiError> {
    conform(target, kind, object, &[], FieldValidation::Ignore)
        .map_err(|fault| ApiError::Internal(format!("what admission made of the object does not fit it: {fault}")))?;
    match_url(target, object)
}

impl Registry {
    /// Asks admission of something that is posted and not stored: a binding, an eviction, a review.
    ///
    /// # Errors
    /// Why it is refused.
    pub(crate) async fn admit_posted(
        &self,
        target: &Target,
        caller: &Caller,
        posted: &mut Object,
    ) -> Result<(), ApiError> {
        if !self.admission().concerns(caller, target) {
            return Ok(());
        }
        let name = target.name.clone().unwrap_or_else(|| posted.name().to_owned());
        let request = WriteRequest::new(target, &name, caller, WriteOptions::None);
        let attributes = AdmissionAttributes::of(&request, Operation::Create, None);
        if self.admission().mutate(&attributes, Some(posted)).await? {
            reshape(target, &target.taken_kind(), posted)?;
        }
        self.admission().validate(&attributes, Some(posted)).await
    }

    /// Asks admission of a request that somebody else would answer.
    ///
    /// # Errors
    /// Why it is refused.
    pub(crate) async fn admit_connection(&self, target: &Target, name: &str, caller: &Caller) -> Result<(), ApiError> {
        if !self.admission().concerns(caller, target) {
            return Ok(());
        }
        let request = WriteRequest::new(target, name, caller, WriteOptions::None);
        let attributes = AdmissionAttributes::of(&request, Operation::Connect, None);
        self.admission().mutate(&attributes, None).await?;
        self.admission().validate(&attributes, None).await
    }
}
