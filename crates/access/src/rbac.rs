//! Role-based access control: what the stored roles and bindings allow.
//!
//! [`Rbac`] follows roles, cluster roles and their bindings in the cache and keeps them as an [`Index`], by which a decision asks only
//! the bindings of the user and of its groups. What is written there counts for whoever asks after the cache has it.
//! What rules allow and cover is in `rule`, which rights somebody would give away without having them in `escalation`.
//!
//! Nothing is ever denied: who is allowed by no rule has no right yet, and another authorizer may know better.

mod binding;
mod escalation;
mod index;
mod rule;
mod sieve;

use std::fmt;
use std::sync::Arc;

use futures::future::{BoxFuture, Either, ready};
use keelson_cache::Cache;

pub use binding::RoleRef;
pub use escalation::{Missing, missing_rights, rights_beyond};
pub use rule::PolicyRule;

use crate::authorize::{Attributes, Authorizer, Deciding};
use crate::follow::{Follower, NotCached};
use crate::user::User;
use index::{Index, Kind};

/// The rules that somebody has, and what kept others from being found.
#[derive(Clone, Debug, Default)]
pub struct HeldRules {
    /// The rules: those that count everywhere, and then those of the namespace.
    pub rules: Vec<Arc<PolicyRule>>,
    /// The roles that are bound to him and are not there.
    pub missing: Vec<RoleRef>,
    /// What is told by authorizers that decide about him by something else than rules.
    pub unresolved: Vec<&'static str>,
}

impl HeldRules {
    /// Why these may not be all, as a review says it; `None` where they are.
    pub fn faults(&self) -> Option<String> {
        let missing = self.missing.iter().map(RoleRef::not_found_by_authorizer);
        binding::aggregated(missing.chain(self.unresolved.iter().map(ToString::to_string)))
    }
}

/// Decides by the roles and bindings in the cache.
pub struct Rbac(Follower<Index>);

impl Rbac {
    /// By the roles and bindings that a cache holds below these prefixes: cluster roles, roles, cluster role bindings, role bindings.
    /// Takes about 30 us for each of them.
    ///
    /// # Errors
    /// When the cache does not hold one of them.
    pub fn new(cache: Arc<Cache>, prefixes: [&str; 4]) -> Result<Self, NotCached> {
        let kinds = [Kind::ClusterRole, Kind::Role, Kind::ClusterRoleBinding, Kind::RoleBinding];
        Follower::new(cache, kinds.into_iter().zip(prefixes)).map(Self)
    }

    /// Takes up what changes also while nobody asks, so that nobody has to take up much of it. Never ends.
    pub async fn keep_up(self: Arc<Self>) {
        self.0.keep_up().await;
    }

    /// The rules that a user has in a namespace, or everywhere.
    pub fn rules_of(&self, user: &User, namespace: Option<&str>) -> HeldRules {
        self.0.current(|index| index.rules_of(user, namespace))
    }
}

impl Authorizer for Rbac {
    /// Cost: what [`Index::decide`] costs, and now and then that of taking up what was written.
    fn authorize<'a>(&'a self, user: &'a User, attributes: &'a Attributes<'a>) -> Deciding<'a> {
        Either::Left(ready(self.0.current(|index| index.decide(user, attributes))))
    }

    fn rules<'a>(&'a self, user: &'a User, namespace: Option<&'a str>) -> BoxFuture<'a, HeldRules> {
        Box::pin(ready(self.rules_of(user, namespace)))
    }
}

impl fmt::Debug for Rbac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rbac").finish_non_exhaustive()
    }
}
