//! Files of configuration that are read again: how often that went well, how often it did not, and when last.
//!
//! The names under which it is told are given elsewhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Counts of one file. A clone counts the same.
#[derive(Clone, Debug, Default)]
pub struct Reloads(Arc<Counters>);

#[derive(Debug, Default)]
struct Counters {
    succeeded: AtomicU64,
    failed: AtomicU64,
    last_success: AtomicU64,
    last_failure: AtomicU64,
}

/// What was counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReloadCounts {
    /// `success` or `failure`.
    pub status: &'static str,
    /// How often.
    pub count: u64,
    /// When last, in seconds since 1970; 0 is never.
    pub last: u64,
}

impl Reloads {
    /// Counts one.
    pub(crate) fn note(&self, succeeded: bool, now: SystemTime) {
        let now = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let Counters { succeeded: good, failed, last_success, last_failure } = &*self.0;
        let (count, last) = if succeeded { (good, last_success) } else { (failed, last_failure) };
        count.fetch_add(1, Ordering::Relaxed);
        last.store(now, Ordering::Relaxed);
    }

    /// What was counted.
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
