//! Admission policies in CEL (`ValidatingAdmissionPolicy`, `MutatingAdmissionPolicy`), and their bindings.
//!
//! Policies and bindings are read from the cache and kept up to date. A policy without a binding does nothing.
//! Expressions read objects without copying them. Evaluation starts on the thread of the request. If it takes long, it
//! starts again on another thread.

mod declared;
mod judgement;
mod mutating;
mod parameters;
mod policy;
mod run;
mod seen;
mod stats;
mod status;
mod type_checking;
mod validating;

use std::collections::BTreeMap;
use std::sync::Arc;

use keelson_access::follow::{Follower, Index, decoded};
use keelson_builtin::key_prefix;
use keelson_cache::{Cache, Entry};
use keelson_meta::json::Value;
use keelson_meta::{ApiError, Object};
use keelson_registry::{AdmissionAttributes, AttributesNeeded};

use crate::manifests::Manifests;
use crate::matching::MatchedPlugin;

pub(crate) use mutating::MutatingPolicies;
pub(crate) use policy::{Binding, Policy};
pub use stats::{ConditionCounts, ConditionKey, PolicyError, PolicyKey, PolicyStats};
pub use status::PolicyStatus;
pub(crate) use validating::ValidatingPolicies;

const GROUP: &str = "admissionregistration.k8s.io";

/// The kinds of objects that are followed.
#[derive(Clone, Copy, Debug)]
enum Followed {
    Policies,
    Bindings,
}

/// A policy with its bindings.
#[derive(Debug)]
pub(crate) struct Bound {
    pub(crate) policy: Arc<Policy>,
    pub(crate) bindings: Vec<Arc<Binding>>,
}

/// All policies and bindings of one kind.
#[derive(Default)]
struct Policies {
    policies: BTreeMap<String, Arc<Policy>>,
    bindings: BTreeMap<String, Arc<Binding>>,
    /// The policies with bindings, by name.
    bound: Arc<[Bound]>,
}

impl Policies {
    fn arrange(&mut self) {
        let bound = self.policies.values().map(|policy| {
            let bindings = self.bindings.values().filter(|binding| binding.policy == policy.name);
            Bound { policy: policy.clone(), bindings: bindings.cloned().collect() }
        });
        self.bound = bound.filter(|bound| !bound.bindings.is_empty()).collect();
    }
}

impl Index for Policies {
    type Kind = Followed;

    fn clear(&mut self, kind: Followed) {
        match kind {
            Followed::Policies => self.policies.clear(),
            Followed::Bindings => self.bindings.clear(),
        }
        self.arrange();
    }

    fn put(&mut self, kind: Followed, entry: &Entry) {
        let object = decoded(entry);
        let (name, spec) = (object.name(), object.0.get("spec").unwrap_or(&Value::Null));
        match kind {
            Followed::Policies => {
                self.policies.insert(name.to_owned(), Arc::new(Policy::new(MatchedPlugin::Policy, name, spec)));
            }
            Followed::Bindings => {
                self.bindings.insert(name.to_owned(), Arc::new(Binding::new(MatchedPlugin::Policy, name, spec)));
            }
        }
        self.arrange();
    }

    fn remove(&mut self, kind: Followed, key: &str) {
        match kind {
            Followed::Policies => drop(self.policies.remove(key)),
            Followed::Bindings => drop(self.bindings.remove(key)),
        }
        self.arrange();
    }
}

/// Follows the policies of one kind and their bindings.
///
/// # Errors
/// 500 if the cache does not have these kinds.
fn follow(cache: &Arc<Cache>, policies: &str, bindings: &str) -> Result<Follower<Policies>, ApiError> {
    let (policies, bindings) = (key_prefix(GROUP, policies)?, key_prefix(GROUP, bindings)?);
    let followed = [(Followed::Policies, policies.as_str()), (Followed::Bindings, bindings.as_str())];
    Follower::new(cache.clone(), followed).map_err(|error| ApiError::Internal(error.to_string()))
}

/// The policies of manifests, and then those of the API.
type PolicyLists = [Arc<[Bound]>; 2];

fn policy_lists(manifests: Option<&Arc<Manifests>>, policies: &Follower<Policies>) -> PolicyLists {
    let of_manifests = manifests.map(|manifests| manifests.policies()).unwrap_or_default();
    [of_manifests, policies.current(|policies| policies.bound.clone())]
}

/// The parts of a request that the policies read.
fn interest(bound: &PolicyLists, attributes: &AdmissionAttributes<'_>) -> AttributesNeeded {
    let asked = bound.iter().flat_map(|list| list.iter()).filter(|bound| bound.policy.matching.concerns(attributes));
    let wanted =
        asked.map(|bound| if bound.policy.sees_owners { AttributesNeeded::Whole } else { AttributesNeeded::Object });
    wanted.max().unwrap_or(AttributesNeeded::None)
}

/// Returns true if a binding matches the request.
///
/// # Errors
/// Matching fails.
fn is_about(
    binding: &Binding,
    attributes: &AdmissionAttributes<'_>,
    object: Option<&Object>,
) -> Result<bool, ApiError> {
    match &binding.matching {
        None => Ok(true),
        Some(matching) => Ok(matching.covers(attributes) && matching.selects(attributes, object)?),
    }
}
