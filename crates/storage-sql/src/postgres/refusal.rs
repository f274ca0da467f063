//! Detects a PostgreSQL that refuses every write: its disk is full or fails, it has become read-only, or a permission
//! or a table is missing.
//!
//! Reads still work in this state, so only a write can detect it. The next successful write ends it. Every server
//! renews its lease at intervals, so there are always writes.

use std::sync::atomic::Ordering;

use keelson_storage::StoreError;
use parking_lot::Mutex;

use super::stats::{PostgresCounters, count};

/// The reason for which the server refuses writes. None if it does not.
#[derive(Debug, Default)]
pub(crate) struct Refusal(Mutex<Option<String>>);

impl Refusal {
    /// Records that a group was refused. Further groups will be too, until an operator changes the server.
    pub(crate) fn begins(&self, why: &StoreError, counters: &PostgresCounters) {
        count(&counters.refused);
        if !counters.refusing.swap(true, Ordering::Relaxed) {
            tracing::error!(%why, "PostgreSQL refuses writes; reads are served, and writes fail until it accepts them");
        }
        *self.0.lock() = Some(why.to_string());
    }

    /// Records that a group was committed.
    pub(crate) fn ends(&self, counters: &PostgresCounters) {
        if counters.refusing.load(Ordering::Relaxed) && counters.refusing.swap(false, Ordering::Relaxed) {
            *self.0.lock() = None;
            tracing::info!(refused = counters.refused.load(Ordering::Relaxed), "PostgreSQL takes writes again");
        }
    }

    /// Returns an error while the server refuses writes.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        match &*self.0.lock() {
            Some(why) => Err(StoreError::Unavailable(format!("PostgreSQL takes no writes: {why}"))),
            None => Ok(()),
        }
    }
}

/// The error of a write if no server accepts writes.
pub(crate) fn read_only(cause: &str) -> StoreError {
    StoreError::ReadOnly(format!(
        "PostgreSQL is read-only ({cause}); set default_transaction_read_only to off, or let a primary take connections"
    ))
}
