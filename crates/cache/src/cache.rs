//! The cache of one server: all collections, one watermark, and the task that keeps them fed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use keelson_codec::DecodeError;
use keelson_meta::{Clock, Revision};
use keelson_storage::{KeyValue, Store, StoreError};
use keelson_supervision::Supervisor;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use crate::check::Checker;
use crate::collection::{Change, Collection, CollectionSpec};
use crate::entry::Entry;
use crate::history::Budget;
use crate::tail::Follower;
use crate::watermark::{Behind, Watermark};
use crate::written::Written;

/// How long history is kept unless configured: what etcd-backed API servers compact after.
pub const DEFAULT_HISTORY: Duration = Duration::from_secs(5 * 60);
/// How often the cache is compared with the store, unless a server is told otherwise.
pub const DEFAULT_CHECK_INTERVAL: Duration = Duration::from_mins(10);
/// How many bytes all histories may hold unless configured.
pub const DEFAULT_HISTORY_BYTES: u64 = 256 << 20;

/// How many values that can't be read are named in the log.
const NAMED_UNREADABLE: u64 = 100;

/// How much of the past a cache keeps.
#[derive(Clone)]
pub struct CacheConfig {
    /// For how long an event stays in the history.
    pub history: Duration,
    /// How many bytes all histories together may hold beyond the newest state. What goes over it is dropped early.
    pub history_bytes: u64,
    /// In what time every collection is compared with the store once; `None` is never.
    pub check_interval: Option<Duration>,
    /// Is told when a task of the cache dies.
    pub supervisor: Supervisor,
    /// Tells how old events are.
    pub clock: Arc<dyn Clock>,
}

impl CacheConfig {
    /// The default bounds, by this clock, and no comparisons with the store.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            history: DEFAULT_HISTORY,
            history_bytes: DEFAULT_HISTORY_BYTES,
            check_interval: None,
            supervisor: Supervisor::default(),
            clock,
        }
    }
}

/// All collections of a store, as of one watermark.
pub struct Cache {
    shared: Arc<Shared>,
    tasks: Vec<AbortHandle>,
    /// Cancelled before the tasks are aborted.
    closing: CancellationToken,
}

/// The tail of the store is broken; the cache serves what it has and tries again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the cache has not heard from the store: {error}")]
pub struct TailFault {
    /// Since when.
    pub since: SystemTime,
    /// What the store last said, for the operator.
    pub error: String,
}

/// What the cache has done so far, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Events applied, of all collections.
    pub events: u64,
    /// Values that could not be read as objects and are not shown.
    pub undecodable: u64,
    /// How often the tail of the store was opened again.
    pub tail_restarts: u64,
    /// How often everything was loaded again, which ends all watches.
    pub reloads: u64,
    /// How often a collection was compared with the store.
    pub checks: u64,
    /// How often a collection differed from the store and was loaded again, which ends its watches.
    pub repairs: u64,
    /// How many revisions the store has, as far as is known, that the cache does not show yet.
    pub lag: u64,
    /// States of the past that were rebuilt from a history; those that were still at hand are not counted.
    pub snapshots_rebuilt: u64,
    /// Bytes that the histories hold beyond the newest state.
    pub history_bytes: u64,
}

/// What the tail's task and the cache's users share.
pub(crate) struct Shared {
    pub(crate) collections: Vec<Arc<Collection>>,
    /// The collections by prefix, ascending.
    routes: Vec<(Box<str>, usize)>,
    pub(crate) watermark: Arc<Watermark>,
    budget: Arc<Budget>,
    fault: Mutex<Option<TailFault>>,
    /// The newest revision of the store that anybody has heard of.
    heard_of: AtomicU64,
    pub(crate) counters: Counters,
}

#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) events: AtomicU64,
    pub(crate) undecodable: AtomicU64,
    pub(crate) tail_restarts: AtomicU64,
    pub(crate) reloads: AtomicU64,
    pub(crate) checks: AtomicU64,
    pub(crate) repairs: AtomicU64,
}

impl Cache {
    /// Loads the collections as they were at the oldest revision the store can read, replays what happened since, and
    /// follows the store from then on. So old snapshots and watches work at once after a restart.
    ///
    /// Returns when the cache has reached the revision that was the newest when it began to follow.
    ///
    /// # Errors
    /// When the store fails, or two prefixes overlap ([`StoreError::Corrupt`]: the caller's keys are damaged).
    pub async fn start(
        store: Arc<dyn Store>,
        specs: Vec<CollectionSpec>,
        config: CacheConfig,
    ) -> Result<Arc<Self>, StoreError> {
        let shared = Arc::new(Shared::new(specs, config.history_bytes)?);
        let (repairs, to_repair) = mpsc::channel(1);
        let (checks, supervisor) = (config.check_interval, config.supervisor.clone());
        let mut follower = Follower::new(store.clone(), shared.clone(), config, to_repair);
        let tail = follower.start().await?;
        let closing = CancellationToken::new();
        let mut tasks = vec![supervisor.spawn("cache-tail", &closing, follower.run(tail)).abort_handle()];
        if let Some(interval) = checks {
            let checker = Checker { store, shared: shared.clone(), interval, repairs };
            tasks.push(supervisor.spawn("cache-check", &closing, checker.run()).abort_handle());
        }
        Ok(Arc::new(Self { shared, tasks, closing }))
    }

    /// The revision up to which every collection shows every write.
    pub fn watermark(&self) -> Revision {
        self.shared.watermark.get()
    }

    /// Waits until the watermark has reached a revision.
    ///
    /// # Errors
    /// [`Behind`] when it has not within `timeout`.
    pub async fn wait_for(&self, revision: Revision, timeout: Duration) -> Result<(), Behind> {
        self.shared.watermark.wait_for(revision, timeout).await
    }

    /// A collection, by its place among the specs that the cache was started with.
    ///
    /// # Panics
    /// When there is no such place.
    pub fn collection(&self, place: usize) -> &Arc<Collection> {
        &self.shared.collections[place]
    }

    /// All collections, in the order of the specs.
    pub fn collections(&self) -> &[Arc<Collection>] {
        &self.shared.collections
    }

    /// Notes that the store has a revision, for the figure by how much the cache is behind.
    pub fn heard_of(&self, revision: Revision) {
        self.shared.heard_of(revision);
    }

    /// Whether the cache hears from the store.
    ///
    /// # Errors
    /// What is wrong, and since when.
    pub fn healthy(&self) -> Result<(), TailFault> {
        self.shared.fault.lock().clone().map_or(Ok(()), Err)
    }

    /// Drops all history up to a revision, as the store has done or is about to do. Snapshots and watches at or after
    /// it are not affected.
    pub fn compacted(&self, oldest: Revision) {
        self.shared.trim(oldest);
    }

    /// What the cache has done so far.
    pub fn stats(&self) -> CacheStats {
        let Counters { events, undecodable, tail_restarts, reloads, checks, repairs } = &self.shared.counters;
        CacheStats {
            events: events.load(Ordering::Relaxed),
            undecodable: undecodable.load(Ordering::Relaxed),
            tail_restarts: tail_restarts.load(Ordering::Relaxed),
            reloads: reloads.load(Ordering::Relaxed),
            checks: checks.load(Ordering::Relaxed),
            repairs: repairs.load(Ordering::Relaxed),
            lag: self.shared.heard_of.load(Ordering::Relaxed).saturating_sub(self.watermark().get()),
            snapshots_rebuilt: self.shared.collections.iter().map(|collection| collection.rebuilt()).sum(),
            history_bytes: self.shared.budget.used(),
        }
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        self.closing.cancel();
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl Shared {
    fn new(specs: Vec<CollectionSpec>, history_bytes: u64) -> Result<Self, StoreError> {
        let mut routes: Vec<(Box<str>, usize)> =
            specs.iter().enumerate().map(|(place, spec)| (spec.prefix.as_str().into(), place)).collect();
        routes.sort_unstable();
        if let Some(pair) = routes.windows(2).find(|pair| pair[1].0.starts_with(&*pair[0].0)) {
            return Err(StoreError::Corrupt(format!("the prefix {} lies below {}", pair[1].0, pair[0].0)));
        }
        let watermark = Arc::new(Watermark::new(Revision::ZERO));
        let budget = Arc::new(Budget::new(history_bytes));
        let written = Arc::new(Written::default());
        let collections = specs
            .into_iter()
            .map(|spec| Arc::new(Collection::new(spec, watermark.clone(), budget.clone(), written.clone())))
            .collect();
        let (fault, counters) = (Mutex::new(None), Counters::default());
        Ok(Self { collections, routes, watermark, budget, fault, heard_of: AtomicU64::new(0), counters })
    }

    /// The collection that a key of the store belongs to, and the key relative to it.
    pub(crate) fn route<'a>(&self, key: &'a str) -> Option<(usize, &'a str)> {
        // No prefix lies below another, so only the last one not behind the key can be its own.
        let behind = self.routes.partition_point(|(prefix, _)| &**prefix <= key);
        let (prefix, place) = self.routes.get(behind.checked_sub(1)?)?;
        key.strip_prefix(&**prefix).map(|relative| (*place, relative))
    }

    pub(crate) fn apply(&self, place: usize, changes: Vec<Change>) {
        self.counters.events.fetch_add(changes.len() as u64, Ordering::Relaxed);
        self.collections[place].apply(changes);
    }

    pub(crate) fn trim(&self, oldest: Revision) {
        self.collections.iter().for_each(|collection| collection.trim(oldest));
    }

    /// Reads a value of the collection at `place`. The operator must see what can't be read, since it is not shown to
    /// clients; but a store that another server filled can be full of it.
    pub(crate) fn decode(&self, place: usize, stored: &KeyValue) -> Result<Arc<Entry>, DecodeError> {
        self.collections[place].decode(stored).inspect_err(|error| {
            let before = self.counters.undecodable.fetch_add(1, Ordering::Relaxed);
            if before < NAMED_UNREADABLE {
                tracing::error!(key = %stored.key, %error, "a stored value can't be read and is not shown");
            } else if before == NAMED_UNREADABLE {
                tracing::error!("more stored values can't be read; from now on they are counted and not named");
            }
        })
    }

    pub(crate) fn heard_of(&self, revision: Revision) {
        self.heard_of.fetch_max(revision.get(), Ordering::Relaxed);
    }

    pub(crate) fn set_fault(&self, now: SystemTime, error: &StoreError) {
        let mut fault = self.fault.lock();
        let since = fault.as_ref().map_or(now, |fault| fault.since);
        *fault = Some(TailFault { since, error: error.to_string() });
    }

    pub(crate) fn clear_fault(&self) {
        *self.fault.lock() = None;
    }
}
