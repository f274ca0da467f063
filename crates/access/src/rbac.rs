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

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, Either, ready};
use keelson_cache::{Cache, Collection, Entry, Scope, WatchCursor};
use keelson_meta::{Object, Revision};
use parking_lot::{RwLock, RwLockWriteGuard};

pub use binding::RoleRef;
pub use escalation::{Missing, missing_rights, rights_beyond};
pub use rule::PolicyRule;

use crate::authorize::{Attributes, Authorizer, Deciding};
use crate::user::User;
use index::{Index, Kind};

/// How many events are taken up before others get the index again: some 30 us each.
const EVENTS_AT_ONCE: usize = 64;
/// How long it rests between two looks, as much is written of which nothing matters here.
const REST: Duration = Duration::from_millis(100);
/// How long nothing may be written before it is looked again whether something was.
const QUIET: Duration = Duration::from_secs(60);

/// The rules that somebody has, and what kept others from being found.
#[derive(Clone, Debug, Default)]
pub struct HeldRules {
    /// The rules: those that count everywhere, and then those of the namespace.
    pub rules: Vec<Arc<PolicyRule>>,
    /// The roles that are bound to him and are not there.
    pub missing: Vec<RoleRef>,
}

/// Decides by the roles and bindings in the cache.
pub struct Rbac {
    cache: Arc<Cache>,
    followed: RwLock<Followed>,
}

struct Followed {
    collections: [(Kind, Arc<Collection>, WatchCursor); 4],
    index: Index,
    /// The watermark up to which the index has everything.
    seen: Revision,
}

/// Why roles and bindings can't be followed.
#[derive(Debug, thiserror::Error)]
#[error("the cache does not hold {0}")]
pub struct NotCached(String);

impl Rbac {
    /// By the roles and bindings that a cache holds below these prefixes: cluster roles, roles, cluster role bindings, role bindings.
    /// Takes about 30 us for each of them.
    ///
    /// # Errors
    /// When the cache does not hold one of them.
    pub fn new(cache: Arc<Cache>, prefixes: [&str; 4]) -> Result<Self, NotCached> {
        let found = |prefix: &str| cache.collection(prefix).ok_or_else(|| NotCached(prefix.to_owned()));
        let [cluster_roles, roles, cluster_bindings, bindings] = prefixes;
        let mut index = Index::default();
        let collections = [
            follow(Kind::ClusterRole, found(cluster_roles)?, &mut index),
            follow(Kind::Role, found(roles)?, &mut index),
            follow(Kind::ClusterRoleBinding, found(cluster_bindings)?, &mut index),
            follow(Kind::RoleBinding, found(bindings)?, &mut index),
        ];
        let followed = Followed { collections, index, seen: Revision::ZERO };
        Ok(Self { cache, followed: RwLock::new(followed) })
    }

    /// Takes up what changes also while nobody asks, so that nobody has to take up much of it. Never ends.
    pub async fn keep_up(self: Arc<Self>) {
        loop {
            let seen = self.followed.read().seen;
            // When nothing was written for that long, there is nothing to take up.
            let _waited = self.cache.wait_for(seen.next(), QUIET).await;
            self.current(|_| ());
            tokio::time::sleep(REST).await;
        }
    }

    /// The rules that a user has in a namespace, or everywhere.
    pub fn rules_of(&self, user: &User, namespace: Option<&str>) -> HeldRules {
        self.current(|index| index.rules_of(user, namespace))
    }

    /// Asks the index as the cache has it now.
    ///
    /// Cost: a comparison where nothing was written since, and a look at each of four collections where something was.
    fn current<T>(&self, ask: impl FnOnce(&Index) -> T) -> T {
        let watermark = self.cache.watermark();
        {
            let followed = self.followed.read();
            if followed.seen >= watermark {
                return ask(&followed.index);
            }
        }
        let mut followed = self.followed.write();
        while !followed.take_up(watermark) {
            RwLockWriteGuard::bump(&mut followed);
        }
        ask(&RwLockWriteGuard::downgrade(followed).index)
    }
}

fn follow(kind: Kind, collection: Arc<Collection>, index: &mut Index) -> (Kind, Arc<Collection>, WatchCursor) {
    loop {
        let snapshot = collection.snapshot();
        // A history that has forgotten the moment of the snapshot meanwhile is asked from a newer one.
        if let Ok(cursor) = collection.watch(snapshot.revision, Scope::All) {
            index.clear(kind);
            for entry in snapshot.range("", None) {
                index.put(kind, &entry.key, &decoded(entry));
            }
            return (kind, collection, cursor);
        }
    }
}

fn decoded(entry: &Entry) -> Object {
    entry.object.decode(entry.revision)
}

impl Followed {
    /// Takes up some of what has happened, and says whether that was all up to a watermark.
    fn take_up(&mut self, watermark: Revision) -> bool {
        let mut is_all = true;
        for (kind, collection, cursor) in &mut self.collections {
            match cursor.try_next(EVENTS_AT_ONCE) {
                Ok(batch) => {
                    is_all &= batch.events.len() < EVENTS_AT_ONCE;
                    for event in &batch.events {
                        match (&event.current, &event.previous) {
                            (Some(entry), _) => self.index.put(*kind, &entry.key, &decoded(entry)),
                            (None, Some(entry)) => self.index.remove(*kind, &entry.key),
                            (None, None) => {}
                        }
                    }
                }
                Err(_) => (_, _, *cursor) = follow(*kind, collection.clone(), &mut self.index),
            }
        }
        if is_all {
            self.seen = self.seen.max(watermark);
        }
        is_all
    }
}

impl Authorizer for Rbac {
    /// Cost: what [`Index::decide`] costs, and now and then that of taking up what was written.
    fn authorize<'a>(&'a self, user: &'a User, attributes: &'a Attributes<'a>) -> Deciding<'a> {
        Either::Left(ready(self.current(|index| index.decide(user, attributes))))
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
