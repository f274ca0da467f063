//! Role-based access control: the permissions of stored roles and bindings.
//!
//! [`Rbac`] follows roles, cluster roles and their bindings in the cache, as an [`Index`]. A decision reads only the
//! bindings of the user and its groups. A write takes effect once the cache has it. `rule` matches and compares rules,
//! and `escalation` finds rights that a user would grant without holding them.
//!
//! Nothing is ever denied: without a matching rule another authorizer may still allow.

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

/// The rules of a user, with the reasons why some may be missing.
#[derive(Clone, Debug, Default)]
pub struct HeldRules {
    /// The rules: those that apply everywhere, then those of the namespace.
    pub rules: Vec<Arc<PolicyRule>>,
    /// The roles that are bound to the user and do not exist.
    pub missing: Vec<RoleRef>,
    /// Reports of authorizers that decide by something other than rules.
    pub unresolved: Vec<&'static str>,
}

impl HeldRules {
    /// The reason why the rules may be incomplete, as reviews state it; `None` if they are complete.
    pub fn faults(&self) -> Option<String> {
        let missing = self.missing.iter().map(RoleRef::not_found_by_authorizer);
        binding::aggregated(missing.chain(self.unresolved.iter().map(ToString::to_string)))
    }
}

/// Decides by the roles and bindings in the cache.
pub struct Rbac(Follower<Index>);

impl Rbac {
    /// Creates the authorizer for a cache and the prefixes of cluster roles, roles, cluster role bindings and role
    /// bindings. Takes about 30 us for each object.
    ///
    /// # Errors
    /// The cache holds no collection for a prefix.
    pub fn new(cache: Arc<Cache>, prefixes: [&str; 4]) -> Result<Self, NotCached> {
        let kinds = [Kind::ClusterRole, Kind::Role, Kind::ClusterRoleBinding, Kind::RoleBinding];
        Follower::new(cache, kinds.into_iter().zip(prefixes)).map(Self)
    }

    /// Updates the index without requests too, so that no request has to catch up far. Never ends.
    pub async fn keep_up(self: Arc<Self>) {
        self.0.keep_up().await;
    }

    /// The rules of a user in a namespace, or everywhere.
    pub fn rules_of(&self, user: &User, namespace: Option<&str>) -> HeldRules {
        self.0.current(|index| index.rules_of(user, namespace))
    }
}

impl Authorizer for Rbac {
    /// Cost: that of [`Index::decide`], and sometimes of an update after writes.
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
