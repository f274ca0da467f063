//! Shares of users in common resources.
//!
//! Connections, watches and bodies in flight are limited for all clients together. [`Level`] has the part of each limit that one
//! user may take, so that the rule is in one place. Levels follow the priority levels of kube-apiserver: a node, a controller and
//! an ordinary user need different shares.

use std::hash::BuildHasher as _;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use hashbrown::{DefaultHashBuilder, HashMap};
use keelson_access::User;
use keelson_access::user::{MASTERS, UNAUTHENTICATED};
use keelson_meta::ApiError;
use parking_lot::Mutex;

use crate::metrics::{MetricKind, Sample};

/// The group of the kubelets.
const NODES: &str = "system:nodes";
/// The beginning of the names of the cluster's own controllers.
const SYSTEM_USERS: &str = "system:kube-";
/// The beginning of the names of the service accounts of the cluster's own controllers.
const SYSTEM_ACCOUNTS: &str = "system:serviceaccount:kube-system:";
/// The beginning of the names of all service accounts.
const ACCOUNTS: &str = "system:serviceaccount:";

/// The key by which all front proxies are counted together.
const FRONT_PROXIES: [u8; 11] = *b"front-proxy";

/// The parts into which a bound is divided.
const PARTS: usize = 16;
/// The part of each number of shares that only administrators may use: one in so many.
const KEPT: usize = 8;
/// The part that only nodes, controllers and administrators may use: one in so many. A user who may write to one namespace can make any
/// number of service accounts, each with a share.
const KEPT_FOR_CLUSTER: usize = 4;
/// Locks among which the counts of [`Shares`] are divided, by user.
const SHARDS: usize = 16;
/// The time after which a refused client may try again, in seconds.
const RETRY_SECONDS: u32 = 5;

/// Hashes the names of users. Seeded at random, so that no name can be chosen that shares the counts of another.
static HASH: LazyLock<DefaultHashBuilder> = LazyLock::new(DefaultHashBuilder::default);

/// The kind of a user, which decides about its share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// Members of `system:masters`.
    Exempt,
    /// Kubelets. Each is a user of its own.
    Nodes,
    /// The cluster's own controllers: `system:kube-*`, and service accounts of `kube-system`.
    System,
    /// All other service accounts. One account may have a pod on each node.
    Accounts,
    /// All other users with credentials.
    Users,
    /// Clients without credentials, who are one user together.
    Anonymous,
}

impl Level {
    /// The level of a user.
    pub(crate) fn of(user: &User) -> Self {
        match user {
            _ if user.is_in(MASTERS) => Self::Exempt,
            _ if user.is_in(UNAUTHENTICATED) => Self::Anonymous,
            _ if user.is_in(NODES) => Self::Nodes,
            _ if user.name.starts_with(SYSTEM_USERS) || user.name.starts_with(SYSTEM_ACCOUNTS) => Self::System,
            _ if user.name.starts_with(ACCOUNTS) => Self::Accounts,
            _ => Self::Users,
        }
    }

    /// The part of `all` that one user of the level may have, which is at least one.
    pub(crate) const fn most_of(self, all: usize) -> usize {
        let parts = match self {
            Self::Exempt | Self::Anonymous => 12,
            Self::System => 8,
            Self::Accounts => 4,
            Self::Users => 2,
            Self::Nodes => 1,
        };
        let most = all.saturating_mul(parts) / PARTS;
        if most == 0 { 1 } else { most }
    }

    /// True for the cluster's own parts, which give way after all other users.
    pub(crate) const fn is_of_cluster(self) -> bool {
        match self {
            Self::Exempt | Self::Nodes | Self::System => true,
            Self::Accounts | Self::Users | Self::Anonymous => false,
        }
    }

    /// The part of `all` that may be taken by all users together when a user of this level takes more.
    const fn most_together(self, all: usize) -> usize {
        match self {
            Self::Exempt => all,
            Self::Nodes | Self::System => all - all / KEPT,
            Self::Accounts | Self::Users | Self::Anonymous => all - all / KEPT - all / KEPT_FOR_CLUSTER,
        }
    }
}

/// A user, as far as its share is concerned. Two names with one hash share their counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    /// A hash of the name.
    pub(crate) flow: u64,
    /// The level.
    pub(crate) level: Level,
}

impl Holder {
    /// The holder that a user is.
    pub(crate) fn of(user: &User) -> Self {
        Self { flow: HASH.hash_one(&user.name), level: Level::of(user) }
    }

    /// The front proxies, whose connections carry the requests of many users.
    pub(crate) fn front_proxies() -> Self {
        Self { flow: HASH.hash_one(FRONT_PROXIES), level: Level::System }
    }
}

/// A number of something that requests hold, of which each user may have a share.
///
/// Each user's count is behind one of several locks, and taken once for what is held for long.
#[derive(Debug)]
pub(crate) struct Shares {
    /// Their name in errors and metrics, such as `watches`.
    name: &'static str,
    all: usize,
    taken: AtomicUsize,
    refused: AtomicU64,
    shards: [Mutex<HashMap<u64, usize>>; SHARDS],
}

/// A number of them that one request holds until this is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    shares: Arc<Shares>,
    flow: u64,
    weight: usize,
}

impl Shares {
    /// There are `all`.
    pub(crate) fn new(name: &'static str, all: usize) -> Arc<Self> {
        Arc::new(Self {
            name,
            all,
            taken: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
            shards: std::array::from_fn(|_| Mutex::default()),
        })
    }

    fn shard(&self, flow: u64) -> &Mutex<HashMap<u64, usize>> {
        &self.shards[(flow % SHARDS as u64) as usize]
    }

    /// Takes `weight` of them for a request of a user.
    ///
    /// # Errors
    /// 429 when the user has its share, or when only those are left that are kept for administrators.
    pub(crate) fn take(self: &Arc<Self>, holder: Holder, weight: usize) -> Result<Share, ApiError> {
        let before = self.taken.fetch_add(weight, Ordering::Relaxed);
        // From here on it is given back when the share is dropped.
        let share = Share { shares: self.clone(), flow: holder.flow, weight };
        let together = holder.level.most_together(self.all);
        let mut shard = self.shard(holder.flow).lock();
        let held = shard.entry(holder.flow).or_default();
        *held += weight;
        let (own, most) = (*held, holder.level.most_of(self.all));
        drop(shard);
        let why = if own > most {
            format!("too many {}: the user has {} of the {most} that one user may have", self.name, own - weight)
        } else if before + weight > together {
            format!("too many {}: all users together have {before} of the {together} that they may have", self.name)
        } else {
            return Ok(share);
        };
        self.refused.fetch_add(1, Ordering::Relaxed);
        Err(ApiError::ShareExceeded { message: why, retry_after_seconds: RETRY_SECONDS })
    }

    /// Metrics: the number taken, and the requests refused for them.
    pub(crate) fn samples(&self) -> Vec<Sample> {
        let labels = || vec![("resource", self.name.to_owned())];
        vec![
            Sample {
                name: "keelson_shares_taken",
                help: "Shares that users hold of what is bounded for each user",
                kind: MetricKind::Gauge,
                labels: labels(),
                value: self.taken.load(Ordering::Relaxed) as f64,
            },
            Sample {
                name: "keelson_shares_refused_total",
                help: "Requests refused because their user or all users together have their share",
                kind: MetricKind::Counter,
                labels: labels(),
                value: self.refused.load(Ordering::Relaxed) as f64,
            },
        ]
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.shares.taken.fetch_sub(self.weight, Ordering::Relaxed);
        let mut shard = self.shares.shard(self.flow).lock();
        let left = shard.get_mut(&self.flow).map(|held| {
            *held -= self.weight;
            *held
        });
        if left == Some(0) {
            shard.remove(&self.flow);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str, groups: &[&str]) -> User {
        let groups = groups.iter().map(ToString::to_string).collect();
        User { name: name.to_owned(), groups, ..User::default() }
    }

    #[test]
    fn nodes_controllers_accounts_and_users_have_levels_of_their_own() {
        let check = |name: &str, groups: &[&str], expect: Level| {
            assert_eq!(Level::of(&user(name, groups)), expect, "{name}");
        };
        check("x", &["system:masters", "system:nodes"], Level::Exempt);
        check("system:node:a", &["system:nodes"], Level::Nodes);
        check("system:kube-scheduler", &[], Level::System);
        check("system:serviceaccount:kube-system:dns", &[], Level::System);
        check("system:serviceaccount:default:default", &[], Level::Accounts);
        check("ann", &["system:authenticated"], Level::Users);
        check("system:anonymous", &["system:unauthenticated"], Level::Anonymous);
    }

    #[test]
    fn one_user_has_its_share_and_the_last_ones_are_kept_for_administrators() {
        let shares = Shares::new("watches", 16);
        let take = |name: &str, groups: &[&str]| shares.take(Holder::of(&user(name, groups)), 1);
        let of_ann: Vec<_> = (0..2).map(|_| take("ann", &[]).unwrap()).collect();
        let refused = take("ann", &[]).unwrap_err();
        assert_eq!(refused.code(), 429);
        assert!(refused.to_string().contains("too many watches: the user has 2 of the 2"), "{refused}");
        let others: Vec<_> = (0..8).map(|number| take(&format!("user-{number}"), &[]).unwrap()).collect();
        let refused = take("bob", &[]).unwrap_err();
        assert!(refused.to_string().contains("all users together have 10 of the 10"), "{refused}");
        let nodes: Vec<_> = (0..4).map(|number| take(&format!("node-{number}"), &["system:nodes"]).unwrap()).collect();
        let refused = take("system:kube-scheduler", &[]).unwrap_err();
        assert!(refused.to_string().contains("all users together have 14 of the 14"), "{refused}");
        let admin = take("root", &["system:masters"]).unwrap();
        drop((of_ann, others, nodes));
        assert!(take("ann", &[]).is_ok() && take("bob", &[]).is_ok());
        drop(admin);
        assert_eq!(shares.taken.load(Ordering::Relaxed), 0);
        assert!(shares.shards.iter().all(|shard| shard.lock().is_empty()));
    }
}
