//! Notices a PostgreSQL that refuses every write: its disk is full or fails, it has become read-only, or a right or a table is gone.
//!
//! Reads still work then, so only a write finds it out. The next write that passes ends the state: every server renews its lease now and
//! then.

use std::sync::atomic::Ordering;

use keelson_storage::StoreError;
use parking_lot::Mutex;

use super::stats::{PostgresCounters, count};

/// The reason of the refusal, while writes are refused.
#[derive(Debug, Default)]
pub(crate) struct Refusal(Mutex<Option<String>>);

impl Refusal {
    /// Notes that a group was refused. The next ones will be too, until an operator changes the server.
    pub(crate) fn begins(&self, why: &StoreError, counters: &PostgresCounters) {
        count(&counters.refused);
        if !counters.refusing.swap(true, Ordering::Relaxed) {
            tracing::error!(%why, "PostgreSQL takes no writes; reads go on, and every write is refused until it does");
        }
        *self.0.lock() = Some(why.to_string());
    }

    /// Notes that a group was committed.
    pub(crate) fn ends(&self, counters: &PostgresCounters) {
        if counters.refusing.load(Ordering::Relaxed) && counters.refusing.swap(false, Ordering::Relaxed) {
            *self.0.lock() = None;
            tracing::info!(refused = counters.refused.load(Ordering::Relaxed), "PostgreSQL takes writes again");
        }
    }

    /// Returns an error while writes are refused.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        match &*self.0.lock() {
            Some(why) => Err(StoreError::Unavailable(format!("PostgreSQL takes no writes: {why}"))),
            None => Ok(()),
        }
    }
}

/// The error of a write that found no server which takes writes.
pub(crate) fn read_only(cause: &str) -> StoreError {
    StoreError::ReadOnly(format!(
        "PostgreSQL is read-only ({cause}); set default_transaction_read_only to off, or let a primary take connections"
    ))
}
