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

use crate::authorize::{Attributes, Authorizer, Deciding};
use crate::follow::{Follower, NotCached};
use crate::user::User;
use index::{Index, Kind, Unread};

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
pub struct Rbac {
    followed: Arc<Follower<Index>>,
    /// Held while a large role is read or a large change is taken up, which one thread does at a time.
    reading: Mutex<()>,
}

/// The answer to a question, or the reason why it can't be given yet.
enum Answer<T> {
    Given(T),
    /// More was written than may be taken up on a thread that serves requests.
    Behind,
    Unread(Unread),
}

impl Rbac {
    /// By the roles and bindings that a cache holds below these prefixes: cluster roles, roles, cluster role bindings, role bindings.
    /// Takes about 30 us for each of them.
    ///
    /// # Errors
    /// When the cache does not hold one of them.
    pub fn new(cache: Arc<Cache>, prefixes: [&str; 4]) -> Result<Self, NotCached> {
        let kinds = [Kind::ClusterRole, Kind::Role, Kind::ClusterRoleBinding, Kind::RoleBinding];
        let followed = Arc::new(Follower::new(cache, kinds.into_iter().zip(prefixes))?);
        Ok(Self { followed, reading: Mutex::new(()) })
    }

    /// Takes up what changes also while nobody asks, so that nobody has to take up much of it. Never ends.
    pub async fn keep_up(self: Arc<Self>) {
        self.followed.keep_up().await;
    }

    /// The rules that a user has in a namespace, or everywhere.
    pub async fn rules_of(&self, user: &User, namespace: Option<&str>) -> HeldRules {
        self.ask(|index| index.rules_of(user, namespace)).await
    }

    /// Asks at once.
    fn try_ask<T>(&self, ask: impl FnOnce(&Index) -> Result<T, Unread>) -> Answer<T> {
        match self.followed.try_current(ask) {
            None => Answer::Behind,
            Some(Err(unread)) => Answer::Unread(unread),
            Some(Ok(answer)) => Answer::Given(answer),
        }
    }

    /// Asks, and has another thread do first what takes long.
    async fn ask<T>(&self, ask: impl Fn(&Index) -> Result<T, Unread>) -> T {
        loop {
            let unread = match self.try_ask(&ask) {
                Answer::Given(answer) => return answer,
                Answer::Unread(Unread(role)) => Some(role),
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
            outcome(tokio::task::spawn_blocking(work)).await;
        }
    }
}

impl Authorizer for Rbac {
    /// Cost: what [`Index::decide`] costs, and now and then that of taking up what was written. What takes long is waited for.
    fn authorize<'a>(&'a self, user: &'a User, attributes: &'a Attributes<'a>) -> Deciding<'a> {
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
