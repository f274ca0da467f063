//! Counts of configuration reloads: successes, failures, and the time of the last one of each.
//!
//! The names of the metrics are defined elsewhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// The reloads of one file. Clones share the counts.
#[derive(Clone, Debug, Default)]
pub struct Reloads(Arc<Counters>);

#[derive(Debug, Default)]
struct Counters {
    succeeded: AtomicU64,
    failed: AtomicU64,
    last_success: AtomicU64,
    last_failure: AtomicU64,
}

/// The reloads with one status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReloadCounts {
    /// `success` or `failure`.
    pub status: &'static str,
    /// The number of reloads.
    pub count: u64,
    /// The time of the last reload in seconds since 1970; 0 if there was none.
    pub last: u64,
}

impl Reloads {
    /// Counts a reload.
    pub fn note(&self, succeeded: bool, now: SystemTime) {
        let now = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let Counters { succeeded: good, failed, last_success, last_failure } = &*self.0;
        let (count, last) = if succeeded { (good, last_success) } else { (failed, last_failure) };
        count.fetch_add(1, Ordering::Relaxed);
        last.store(now, Ordering::Relaxed);
    }

    /// The counts by status.
    pub fn counts(&self) -> [ReloadCounts; 2] {
        let of = |status, count: &AtomicU64, last: &AtomicU64| ReloadCounts {
            status,
            count: count.load(Ordering::Relaxed),
            last: last.load(Ordering::Relaxed),
        };
        let Counters { succeeded, failed, last_success, last_failure } = &*self.0;
        [of("success", succeeded, last_success), of("failure", failed, last_failure)]
    }
}
