//! Counters of what happened on the way to PostgreSQL, for metrics.
//!
//! They only grow, and are read at each scrape.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The counts of calls to PostgreSQL so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PostgresStats {
    /// Connections that were made and set up, the first ones included.
    pub connections: u64,
    /// Questions and commits that were sent again, since they certainly had no effect.
    pub retries: u64,
    /// Groups that were committed.
    pub groups: u64,
    /// Transactions in those groups; together they shared so many fewer commits.
    pub transactions: u64,
    /// Groups whose connection broke while they were committed: their outcome is unknown.
    pub unknown: u64,
    /// The number of times that the database had lost commits that this server had seen, and this one noticed first.
    pub losses: u64,
    /// Groups that were refused, since the server has no room or takes no writes.
    pub refused: u64,
    /// True from a refused group on until one is committed.
    pub refusing: bool,
    /// The number of times that this server changed to another history, after a loss or a restore.
    pub exchanges: u64,
}

/// The counters, which outlive the store for their readers.
#[derive(Debug, Default)]
pub struct PostgresCounters {
    pub(crate) connections: AtomicU64,
    pub(crate) retries: AtomicU64,
    pub(crate) groups: AtomicU64,
    pub(crate) transactions: AtomicU64,
    pub(crate) unknown: AtomicU64,
    pub(crate) losses: AtomicU64,
    pub(crate) exchanges: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) refusing: AtomicBool,
}

impl PostgresCounters {
    /// The present values.
    pub fn read(&self) -> PostgresStats {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        PostgresStats {
            connections: of(&self.connections),
            retries: of(&self.retries),
            groups: of(&self.groups),
            transactions: of(&self.transactions),
            unknown: of(&self.unknown),
            losses: of(&self.losses),
            exchanges: of(&self.exchanges),
            refused: of(&self.refused),
            refusing: self.refusing.load(Ordering::Relaxed),
        }
    }
}

pub(crate) fn count(counter: &AtomicU64) {
    add(counter, 1);
}

pub(crate) fn add(counter: &AtomicU64, more: usize) {
    counter.fetch_add(more as u64, Ordering::Relaxed);
}
