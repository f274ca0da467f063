//! Role-based access control: the permissions of stored roles and bindings.
//!
//! [`Rbac`] follows roles, cluster roles and their bindings in the cache, as an [`Index`]. A decision reads only the
//! bindings of the user and of its groups. A write takes effect once the cache has it. `rule` matches and compares
//! rules, and `escalation` finds rights that a user would grant without having them.
//!
//! This authorizer never denies: without a matching rule another authorizer may allow the request.

mod binding;
mod escalation;
mod index;
mod role;
mod rule;
mod sieve;
mod texts;

use std::fmt;
use std::sync::Arc;

use futures::future::{BoxFuture, Either, ready};
use keelson_cache::Cache;
use keelson_supervision::outcome;
use tokio::sync::Mutex;

pub use binding::RoleRef;
pub use escalation::{Missing, missing_rights, rights_beyond};
pub use rule::PolicyRule;

use crate::authorize::{Attributes, Authorizer, PendingVerdict};
use crate::follow::{Follower, NotCached};
use crate::user::User;
use index::{Index, Kind, UndecodedRole};

/// The rules of a user, and the reasons why the list may be incomplete.
#[derive(Clone, Debug, Default)]
pub struct HeldRules {
    /// The rules: the cluster-wide ones, then those of the namespace.
    pub rules: Vec<Arc<PolicyRule>>,
    /// Rules that reviews show, but that give no right to create roles: upstream compares new roles with stored ones.
    pub shown: Vec<Arc<PolicyRule>>,
    /// The roles that are bound to the user but do not exist.
    pub missing: Vec<RoleRef>,
    /// Messages of authorizers that do not decide by rules.
    pub unresolved: Vec<&'static str>,
}

impl HeldRules {
    /// The reason why the rules may be incomplete, for reviews; `None` if they are complete.
    pub fn faults(&self) -> Option<String> {
        let missing = self.missing.iter().map(RoleRef::not_found_by_authorizer);
        binding::aggregated(missing.chain(self.unresolved.iter().map(ToString::to_string)))
    }
}

/// Authorizes by the roles and bindings in the cache.
pub struct Rbac {
    followed: Arc<Follower<Index>>,
    /// Held while a large role is decoded or many events are applied. Only one thread at a time does this.
    reading: Mutex<()>,
}

/// The result of a read of the index, or the reason why it is not available yet.
enum Answer<T> {
    Given(T),
    /// The index lacks more events than a thread that serves requests may apply.
    Behind,
    Unread(UndecodedRole),
}

impl Rbac {
    /// Creates the authorizer over a cache. `prefixes` are the key prefixes of cluster roles, roles, cluster role
    /// bindings and role bindings. Takes about 30 us for each object.
    ///
    /// # Errors
    /// The cache has no collection for a prefix.
    pub fn new(cache: Arc<Cache>, prefixes: [&str; 4]) -> Result<Self, NotCached> {
        let kinds = [Kind::ClusterRole, Kind::Role, Kind::ClusterRoleBinding, Kind::RoleBinding];
        let followed = Arc::new(Follower::new(cache, kinds.into_iter().zip(prefixes))?);
        Ok(Self { followed, reading: Mutex::new(()) })
    }

    /// Updates the index continuously, so that a request never has many events to apply. Never returns.
    pub async fn keep_up(self: Arc<Self>) {
        self.followed.keep_up().await;
    }

    /// The rules of a user in a namespace, or cluster-wide.
    pub async fn rules_of(&self, user: &User, namespace: Option<&str>) -> HeldRules {
        self.ask(|index| index.rules_of(user, namespace)).await
    }

    /// Reads the index without waiting.
    fn try_ask<T>(&self, ask: impl FnOnce(&Index) -> Result<T, UndecodedRole>) -> Answer<T> {
        match self.followed.try_current(ask) {
            None => Answer::Behind,
            Some(Err(unread)) => Answer::Unread(unread),
            Some(Ok(answer)) => Answer::Given(answer),
        }
    }

    /// Reads the index. If events must be applied or a role decoded first, another thread does that.
    async fn ask<T>(&self, ask: impl Fn(&Index) -> Result<T, UndecodedRole>) -> T {
        loop {
            let unread = match self.try_ask(&ask) {
                Answer::Given(answer) => return answer,
                Answer::Unread(UndecodedRole(role)) => Some(role),
                Answer::Behind => None,
            };
            let _turn = self.reading.lock().await;
            let followed = self.followed.clone();
            let work = move || match unread {
                Some(role) => {
                    role.read_rules();
                }
                None => followed.current(|_| ()),
            };
            outcome(keelson_supervision::spawn_blocking(work)).await;
        }
    }
}

impl Authorizer for Rbac {
    /// Cost: that of [`Index::decide`], plus applying new events if there are any. The future waits if many events must
    /// be applied or a large role decoded.
    fn authorize<'a>(&'a self, user: &'a User, attributes: &'a Attributes<'a>) -> PendingVerdict<'a> {
        match self.try_ask(|index| index.decide(user, attributes)) {
            Answer::Given(verdict) => Either::Left(ready(verdict)),
            Answer::Behind | Answer::Unread(_) => {
                Either::Right(Box::pin(self.ask(move |index| index.decide(user, attributes))))
            }
        }
    }

    fn rules<'a>(&'a self, user: &'a User, namespace: Option<&'a str>) -> BoxFuture<'a, HeldRules> {
        Box::pin(self.rules_of(user, namespace))
    }
}

impl fmt::Debug for Rbac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rbac").finish_non_exhaustive()
    }
}
