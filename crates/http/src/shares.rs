//! The share of one user in common resources.
//!
//! Limits bound the connections, watches and slow bodies of all clients together. [`Level`] defines the part of each
//! limit that one user may take. Levels follow the priority levels of kube-apiserver, since a node, a controller and an
//! ordinary user need different shares.

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
/// The prefix of the names of the cluster's own controllers.
const SYSTEM_USERS: &str = "system:kube-";
/// The prefix of the names of service accounts of the cluster's own controllers.
const SYSTEM_ACCOUNTS: &str = "system:serviceaccount:kube-system:";
/// The prefix of the names of all service accounts.
const ACCOUNTS: &str = "system:serviceaccount:";

/// The key that counts all front proxies together.
const FRONT_PROXIES: [u8; 11] = *b"front-proxy";
/// The key that counts all clients with wrong credentials together.
const UNKNOWN: [u8; 7] = *b"unknown";

/// A user's share is a number of such parts of the limit.
const PARTS: usize = 16;
/// Only administrators may use the last one in this many parts of a limit.
const KEPT: usize = 8;
/// Only nodes, controllers and administrators may use another one in this many parts. A user with write access to many
/// namespaces can create accounts in each.
const KEPT_FOR_CLUSTER: usize = 4;
/// The number of locks for the counts of [`Shares`], which are divided by user.
const SHARDS: usize = 16;
/// The time after which a refused client may try again, in seconds.
const RETRY_SECONDS: u32 = 5;

/// Hashes user names. The seed is random, so that no user can choose a name that shares the count of another.
static HASH: LazyLock<DefaultHashBuilder> = LazyLock::new(DefaultHashBuilder::default);

/// The kind of a user, which determines its share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// Members of `system:masters`.
    Exempt,
    /// Kubelets. Each is a user of its own.
    Nodes,
    /// The cluster's own controllers: `system:kube-*`, and service accounts of `kube-system`.
    System,
    /// All other service accounts, those of one namespace together. Each may have a pod on each node.
    Accounts,
    /// All other users with credentials.
    Users,
    /// Clients without credentials, which count as one user together.
    Anonymous,
}

impl Level {
    /// The level of a user.
    pub(crate) fn of_user(user: &User) -> Self {
        match user {
            _ if user.is_in(MASTERS) => Self::Exempt,
            _ if user.is_in(UNAUTHENTICATED) => Self::Anonymous,
            _ if user.is_in(NODES) => Self::Nodes,
            _ if user.name.starts_with(SYSTEM_USERS) || user.name.starts_with(SYSTEM_ACCOUNTS) => Self::System,
            _ if user.name.starts_with(ACCOUNTS) => Self::Accounts,
            _ => Self::Users,
        }
    }

    /// The part of `all` that one user of the level may have, at least one.
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

    /// Returns true for the cluster's own components, which lose connections after all other users.
    pub(crate) const fn is_of_cluster(self) -> bool {
        match self {
            Self::Exempt | Self::Nodes | Self::System => true,
            Self::Accounts | Self::Users | Self::Anonymous => false,
        }
    }

    /// The part of `all` that all users together may take when a user of this level takes more.
    const fn most_together(self, all: usize) -> usize {
        match self {
            Self::Exempt => all,
            Self::Nodes | Self::System => all - all / KEPT,
            Self::Accounts | Self::Users | Self::Anonymous => all - all / KEPT - all / KEPT_FOR_CLUSTER,
        }
    }
}

/// A user for the purpose of shares, or all service accounts of a namespace ([`User::share_name`]). Two names with the
/// same hash share a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    /// A hash of the name.
    pub(crate) flow: u64,
    /// The level.
    pub(crate) level: Level,
}

impl Holder {
    /// The holder for a user.
    pub(crate) fn of_user(user: &User) -> Self {
        Self { flow: HASH.hash_one(user.share_name()), level: Level::of_user(user) }
    }

    /// The clients with wrong credentials.
    pub(crate) fn unknown() -> Self {
        Self { flow: HASH.hash_one(UNKNOWN), level: Level::Anonymous }
    }

    /// The front proxies, whose connections carry the requests of many users.
    pub(crate) fn front_proxies() -> Self {
        Self { flow: HASH.hash_one(FRONT_PROXIES), level: Level::System }
    }
}

/// A limited resource, such as watches, with a share for each user.
///
/// Locks are divided by user. A request locks once when it takes the resource and once when it returns it.
#[derive(Debug)]
pub(crate) struct Shares {
    /// The name of the resource in errors and metrics, such as `watches`.
    name: &'static str,
    all: usize,
    taken: AtomicUsize,
    refused: AtomicU64,
    shards: [Mutex<HashMap<u64, usize>>; SHARDS],
}

/// The amount that one request holds until this is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    shares: Arc<Shares>,
    flow: u64,
    weight: usize,
}

impl Shares {
    /// Creates a resource with a limit of `all`.
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

    /// Takes an amount of `weight` for a request of a user.
    ///
    /// # Errors
    /// 429 when the user has used its share, or when the rest is reserved for users of other levels.
    pub(crate) fn take(self: &Arc<Self>, holder: Holder, weight: usize) -> Result<Share, ApiError> {
        let before = self.taken.fetch_add(weight, Ordering::Relaxed);
        // From here on, dropping the share returns the amount.
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

    /// Metrics: the amount in use, and the number of refused requests.
    pub(crate) fn samples(&self) -> Vec<Sample> {
        let labels = || vec![("resource", self.name.to_owned())];
        vec![
            Sample {
                name: "keelson_shares_taken",
                help: "Units of the limits for each user that users hold",
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
            assert_eq!(Level::of_user(&user(name, groups)), expect, "{name}");
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
    fn the_accounts_of_a_namespace_have_one_share() {
        let shares = Shares::new("watches", 64);
        let take = |name: &str| shares.take(Holder::of_user(&user(name, &[])), 1);
        let of_web: Vec<_> =
            (0..16).map(|number| take(&format!("system:serviceaccount:web:a{number}")).unwrap()).collect();
        let refused = take("system:serviceaccount:web:another").unwrap_err();
        assert!(refused.to_string().contains("has 16 of the 16"), "{refused}");
        for other in
            ["system:serviceaccount:webs:a", "system:serviceaccount:web", "web", "system:serviceaccount:kube-system:a"]
        {
            assert!(take(other).is_ok(), "{other}");
        }
        drop(of_web);
        assert!(take("system:serviceaccount:web:another").is_ok());
    }

    #[test]
    fn each_user_has_a_share_and_administrators_a_reserve() {
        let shares = Shares::new("watches", 16);
        let take = |name: &str, groups: &[&str]| shares.take(Holder::of_user(&user(name, groups)), 1);
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
