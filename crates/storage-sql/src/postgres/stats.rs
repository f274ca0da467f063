//! Counters of the calls to PostgreSQL, for metrics.
//!
//! Counters only grow. Each scrape reads them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The counts of calls to PostgreSQL so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PostgresStats {
    /// Connections that were created and configured, including the first ones.
    pub connections: u64,
    /// Queries and commits that were sent again, since the first attempt certainly had no effect.
    pub retries: u64,
    /// Groups that were committed.
    pub groups: u64,
    /// Transactions in those groups.
    pub transactions: u64,
    /// Groups whose connection broke during the commit, so that their outcome is unknown.
    pub unknown: u64,
    /// The number of times that this server was the first to find that the database had lost commits.
    pub losses: u64,
    /// Groups that the server refused, since its disk is full or it does not accept writes.
    pub refused: u64,
    /// True after a refused group, until a group is committed.
    pub refusing: bool,
    /// The number of times that this server changed to another history, after a loss or a restore.
    pub exchanges: u64,
}

/// The counters. Readers may keep them after the store is dropped.
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
    /// The current values.
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
