//! The admission plugins in their order, and the calls from the stages of a write.
//!
//! A plugin is called only for the requests that interest it. The duration of each call is measured.

use std::sync::Arc;
use std::time::Instant;

use keelson_meta::options::FieldValidation;
use keelson_meta::{ApiError, GroupVersionKind, Object};
use tracing::{Instrument as _, debug_span};

use super::stats::{AdmissionStage, AdmissionStats, PluginKey};
use super::{Admission, AdmissionAttributes, AttributesNeeded, Mutation, Operation, Reinvocation, WriteOptions};
use crate::caller::Caller;
use crate::intake::{conform, match_name, match_namespace};
use crate::registry::Registry;
use crate::target::Target;
use crate::write::WriteRequest;

/// Plugins, in the order in which they are called.
#[derive(Clone, Debug, Default)]
pub struct AdmissionChain {
    plugins: Vec<Arc<dyn Admission>>,
    stats: Arc<AdmissionStats>,
}

impl FromIterator<Arc<dyn Admission>> for AdmissionChain {
    fn from_iter<I: IntoIterator<Item = Arc<dyn Admission>>>(plugins: I) -> Self {
        Self { plugins: plugins.into_iter().collect(), stats: Arc::default() }
    }
}

impl AdmissionChain {
    /// The durations of the plugins.
    pub fn stats(&self) -> &Arc<AdmissionStats> {
        &self.stats
    }

    /// The names of the plugins, in their order.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.plugins.iter().map(|plugin| plugin.name())
    }

    /// The part of the object that all plugins together need. It is none for the server's own writes before it is
    /// ready: otherwise a webhook that refuses everything would block all servers, and could not be deleted.
    pub(crate) fn interest(&self, attributes: &AdmissionAttributes<'_>) -> AttributesNeeded {
        let AdmissionAttributes { caller, target, .. } = attributes;
        if caller.passes_admission(target) {
            return AttributesNeeded::None;
        }
        self.plugins.iter().map(|plugin| plugin.interest(attributes)).max().unwrap_or(AttributesNeeded::None)
    }

    fn interested(&self, attributes: &AdmissionAttributes<'_>) -> impl Iterator<Item = &Arc<dyn Admission>> {
        self.plugins.iter().filter(|plugin| plugin.interest(attributes) > AttributesNeeded::None)
    }

    /// Calls the mutating plugins. Returns true if one of them changed the object, which is then normalized before the
    /// next plugin. A second pass begins with the kind's own changes, which return the same.
    pub(crate) async fn mutate(
        &self,
        attributes: &AdmissionAttributes<'_>,
        mut object: Option<&mut Object>,
        reshape: impl Fn(&mut Object) -> Result<(), ApiError>,
        inherent: impl Fn(&mut Object) -> Result<bool, ApiError>,
    ) -> Result<bool, ApiError> {
        let begun = Instant::now();
        let mut outcome = Ok(false);
        loop {
            let passed = async {
                let is_changed = match object.as_deref_mut().filter(|_| attributes.reinvocation.is_again()) {
                    Some(object) => inherent(object)? && reshape(object).map(|()| true)?,
                    None => false,
                };
                Ok(self.mutate_once(attributes, object.as_deref_mut(), &reshape).await? | is_changed)
            };
            let passed = passed.await;
            outcome = match (outcome, passed) {
                (Ok(before), Ok(now)) => Ok(before | now),
                (_, Err(error)) | (Err(error), _) => Err(error),
            };
            if outcome.is_err() || !attributes.reinvocation.begin_again() {
                break;
            }
        }
        self.note("", AdmissionStage::Admit, attributes, begun, outcome.is_err());
        outcome
    }

    async fn mutate_once(
        &self,
        attributes: &AdmissionAttributes<'_>,
        mut object: Option<&mut Object>,
        reshape: impl Fn(&mut Object) -> Result<(), ApiError>,
    ) -> Result<bool, ApiError> {
        let mut changed = false;
        for plugin in self.interested(attributes) {
            let begun = Instant::now();
            let call = plugin.mutate(attributes, object.as_deref_mut());
            let mut outcome =
                call.instrument(debug_span!("admission plugin", plugin = plugin.name(), stage = "admit")).await;
            if let (Ok(Mutation::Changed), Some(object)) = (&outcome, object.as_deref_mut()) {
                changed = true;
                outcome = reshape(object).map(|()| Mutation::Changed);
            }
            self.note(plugin.name(), AdmissionStage::Admit, attributes, begun, outcome.is_err());
            outcome?;
        }
        Ok(changed)
    }

    pub(crate) async fn validate(
        &self,
        attributes: &AdmissionAttributes<'_>,
        object: Option<&Object>,
    ) -> Result<(), ApiError> {
        let begun = Instant::now();
        let outcome = async {
            for plugin in self.interested(attributes) {
                let begun = Instant::now();
                let call = plugin.validate(attributes, object);
                let span = debug_span!("admission plugin", plugin = plugin.name(), stage = "validate");
                let outcome = call.instrument(span).await;
                self.note(plugin.name(), AdmissionStage::Validate, attributes, begun, outcome.is_err());
                outcome?;
            }
            Ok(())
        }
        .await;
        self.note("", AdmissionStage::Validate, attributes, begun, outcome.is_err());
        outcome
    }

    fn note(
        &self,
        plugin: &'static str,
        stage: AdmissionStage,
        attributes: &AdmissionAttributes<'_>,
        begun: Instant,
        rejected: bool,
    ) {
        let key = PluginKey { plugin, stage, operation: attributes.operation, rejected };
        self.stats.note(key, begun.elapsed());
    }
}

/// The kind's own changes for a request without an object: none.
///
/// # Errors
/// None.
pub(crate) fn none_inherent(_: &mut Object) -> Result<bool, ApiError> {
    Ok(false)
}

/// Normalizes an object that a plugin has changed.
///
/// # Errors
/// 400 if it no longer matches the URL, 500 if it does not fit its kind.
pub(crate) fn reshape(target: &Target, kind: &GroupVersionKind, object: &mut Object) -> Result<(), ApiError> {
    reshape_unnamed(target, kind, object)?;
    target.name.as_deref().map_or(Ok(()), |name| match_name(name, object))
}

/// As [`reshape`](Self::reshape), for an object that need not have the name of the URL.
fn reshape_unnamed(target: &Target, kind: &GroupVersionKind, object: &mut Object) -> Result<(), ApiError> {
    conform(target, kind, object, &[], FieldValidation::Ignore)
        .map_err(|fault| ApiError::Internal(format!("the object does not fit its schema after admission: {fault}")))?;
    match_namespace(target, object)
}

impl Registry {
    /// Runs admission for an object that is posted and not stored: a binding, an eviction, a review.
    ///
    /// # Errors
    /// The refusal.
    pub(crate) async fn admit_posted(
        &self,
        target: &Target,
        caller: &Caller,
        posted: &mut Object,
    ) -> Result<(), ApiError> {
        self.admit_completed(target, caller, posted, |_| Ok(())).await
    }

    /// As `admit_posted`, for an object that is completed after mutation, so that validation sees the object of the
    /// response.
    ///
    /// # Errors
    /// The refusal, or a failed completion.
    pub(crate) async fn admit_completed(
        &self,
        target: &Target,
        caller: &Caller,
        posted: &mut Object,
        complete: impl FnOnce(&mut Object) -> Result<(), ApiError> + Send,
    ) -> Result<(), ApiError> {
        let name = target.name.clone().unwrap_or_else(|| posted.name().to_owned());
        let request = WriteRequest::new(target, &name, caller, WriteOptions::None);
        let reinvocation = Reinvocation::default();
        let attributes = AdmissionAttributes::new(self, &request, Operation::Create, &reinvocation);
        let admission = self.admission();
        if admission.interest(&attributes) == AttributesNeeded::None {
            return complete(posted);
        }
        let kind = target.taken_kind();
        // A posted object without a name has the name of the URL.
        let is_named = !posted.name().is_empty();
        let reshape = |posted: &mut Object| {
            if is_named { reshape(target, &kind, posted) } else { reshape_unnamed(target, &kind, posted) }
        };
        let asked = async {
            admission.mutate(&attributes, Some(posted), reshape, none_inherent).await?;
            complete(posted)?;
            admission.validate(&attributes, Some(posted)).await
        };
        caller.in_time(asked).await
    }

    /// Runs admission for a connection. `said` has its options.
    ///
    /// # Errors
    /// The refusal.
    pub(crate) async fn admit_connection(
        &self,
        target: &Target,
        name: &str,
        caller: &Caller,
        mut said: Object,
    ) -> Result<(), ApiError> {
        let request = WriteRequest::new(target, name, caller, WriteOptions::None);
        let reinvocation = Reinvocation::default();
        let attributes = AdmissionAttributes::new(self, &request, Operation::Connect, &reinvocation);
        let admission = self.admission();
        if admission.interest(&attributes) == AttributesNeeded::None {
            return Ok(());
        }
        admission.mutate(&attributes, Some(&mut said), |_| Ok(()), none_inherent).await?;
        admission.validate(&attributes, Some(&said)).await
    }
}
