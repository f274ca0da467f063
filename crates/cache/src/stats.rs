//! Counters of the cache, for metrics and health.
//!
//! The counters belong to the whole cache, not to its collections: reading them costs the same however many collections
//! there are, and a collection that is removed takes nothing out of them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

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
    /// How many collections there are.
    pub collections: usize,
    /// How many views of queries are kept.
    pub views: usize,
    /// About how many bytes these take.
    pub view_bytes: u64,
}

/// What is counted where it happens.
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

/// A number that only grows.
#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds to it. Returns what it was.
    pub(crate) fn add(&self, count: u64) -> u64 {
        self.0.fetch_add(count, Ordering::Relaxed)
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
