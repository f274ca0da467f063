//! Counters of the cache, for metrics and health.
//!
//! The counters belong to the whole cache and not to its collections. So reading them costs the same for any number of
//! collections, and removing a collection does not change them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use crate::packing::PackingStats;

/// The fault of a failed tail. The cache still serves its state and retries.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the cache receives no events from the store: {error}")]
pub struct TailFault {
    /// The time of the failure.
    pub since: SystemTime,
    /// The last error of the store, for the operator.
    pub error: String,
}

/// Statistics of the cache, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Events applied in all collections.
    pub events: u64,
    /// Stored values that are not objects. The cache hides them.
    pub undecodable: u64,
    /// The number of times that the tail was reopened.
    pub tail_restarts: u64,
    /// The number of times that all collections were reloaded, which ends all watches.
    pub reloads: u64,
    /// The number of comparisons of a collection with the store.
    pub checks: u64,
    /// The number of collections that differed from the store and were reloaded, which ends their watches.
    pub repairs: u64,
    /// The difference between the newest known revision of the store and the watermark.
    pub lag: u64,
    /// The number of old states that were rebuilt from a history. Kept states do not count.
    pub snapshots_rebuilt: u64,
    /// The bytes that the histories hold in addition to the newest state.
    pub history_bytes: u64,
    /// The number of collections.
    pub collections: usize,
    /// The number of kept query views.
    pub views: usize,
    /// Their approximate size in bytes.
    pub view_bytes: u64,
    /// The statistics of plain and packed objects.
    pub packing: PackingStats,
}

/// The counters that the code increments.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) events: Counter,
    pub(crate) undecodable: Counter,
    pub(crate) tail_restarts: Counter,
    pub(crate) reloads: Counter,
    pub(crate) checks: Counter,
    pub(crate) repairs: Counter,
    pub(crate) snapshots_rebuilt: Counter,
}

/// A counter.
#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds to the counter. Returns the old value.
    pub(crate) fn add(&self, count: u64) -> u64 {
        self.0.fetch_add(count, Ordering::Relaxed)
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
