//! The input of a policy for one request, and the selection of the thread for its expressions.
//!
//! An evaluation leaves no borrowed values behind, so requests may await between evaluations.

use std::sync::{Arc, OnceLock};

use keelson_cel::Value as Cel;
use keelson_meta::json::Value;
use keelson_meta::{ApiError, Object};
use keelson_registry::AdmissionAttributes;
use tokio::runtime::{Handle, RuntimeFlavor};

use super::parameters::Decoded;
use super::policy::Policy;
use super::run::{Reach, Run, Stage};
use super::stats::{ConditionKey, PolicyStats};
use crate::conditions::ConditionsResult;
use crate::matching::{Endpoint, is_namespaces, namespace_of};
use crate::request;
use crate::scene::{PolicyVariables, Rights};
use crate::shown::AdmissionObjects;

/// The input of a policy for one request.
pub(crate) struct PolicyInput<'a> {
    attributes: &'a AdmissionAttributes<'a>,
    endpoint: Endpoint,
    /// The variable `request`, built at its first use.
    request: OnceLock<Value>,
    rights: Rights<'a>,
    namespace: Option<Arc<Object>>,
    stats: &'a PolicyStats,
}

impl<'a> PolicyInput<'a> {
    /// # Errors
    /// 404 if the namespace of the object does not exist.
    pub(crate) async fn new(
        attributes: &'a AdmissionAttributes<'a>,
        endpoint: &Endpoint,
        decoded: &Decoded,
        stats: &'a PolicyStats,
    ) -> Result<Self, ApiError> {
        let named = namespace_of(attributes).filter(|_| !is_namespaces(attributes.target));
        let namespace = match named {
            None => None,
            Some(name) => {
                let namespaces = attributes.target.surface.target("", "namespaces")?;
                match namespaces.collection()?.get(name) {
                    Some(entry) => Some(decoded.get(&namespaces, &entry).await?),
                    None => Some(Arc::new(crate::matching::namespace(attributes, name)?)),
                }
            }
        };
        let rights = Rights::new(attributes, endpoint);
        Ok(Self { attributes, endpoint: endpoint.clone(), request: OnceLock::new(), rights, namespace, stats })
    }

    /// Evaluates the expressions of a policy, on this thread unless that takes long.
    pub(crate) fn run<T>(
        &self,
        policy: &Policy,
        shown: &AdmissionObjects,
        (object, old): (Option<&Object>, Option<&Object>),
        params: Option<&Object>,
        evaluate: impl for<'s> Fn(&'s Run<'s>) -> T,
    ) -> Result<Option<T>, String> {
        let request = if policy.sees_request {
            self.request.get_or_init(|| request::for_expressions(self.attributes, &self.endpoint))
        } else {
            &Value::Null
        };
        let scene =
            PolicyVariables { object: shown.object(object), old: shown.old(old), request, rights: &self.rights };
        let namespace = self.namespace.as_deref();
        let stage = |reach| Stage {
            scene,
            namespace,
            params: policy.params.is_some().then_some(params),
            compiled: policy.compiled(),
            reach,
        };
        let conditions = || {
            let mut variables: Vec<Cel<'_>> = scene.variables(true, namespace);
            if policy.params.is_some() {
                variables.push(params.map_or(Cel::Null, |params| keelson_cel::values::from_map(&params.0, None)));
            }
            let key = ConditionKey {
                name: policy.name.clone(),
                kind: "policy",
                stage: "validate",
                operation: self.attributes.operation,
            };
            self.stats.timed(&key, || policy.conditions.are_met(&variables))
        };
        match if policy.conditions.is_empty() { ConditionsResult::Yes } else { conditions() } {
            ConditionsResult::Yes => {}
            ConditionsResult::No => return Ok(None),
            ConditionsResult::Unknown(why) => return Err(why),
        }
        let within = |reach| {
            let run = Run::new(stage(reach));
            run.begin();
            let value = evaluate(&run);
            (value, run.is_cut())
        };
        match within(Reach::SHORT) {
            (value, false) => Ok(Some(value)),
            (_, true) => Ok(Some(apart(|| within(Reach::WHOLE).0))),
        }
    }
}

/// Runs long work on a thread that no other request waits for.
fn apart<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}
