//! Counts of the token webhook's cache, for the metrics of this process.
//!
//! Metrics and labels are those of kube-apiserver's token cache.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use keelson_meta::metering::{AtomicHistogram, Buckets, Count};

/// Upper bounds of the buckets, in microseconds.
static BUCKETS: Buckets = Buckets::of_durations(&[
    5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 5_000_000, 10_000_000,
]);

/// The counts of this process.
pub static TOKEN_CACHE: LazyLock<TokenCacheCounts> = LazyLock::new(|| TokenCacheCounts {
    hits: AtomicHistogram::new(&BUCKETS),
    misses: AtomicHistogram::new(&BUCKETS),
    fetched: Count::new(),
    failed: Count::new(),
    fetching: AtomicI64::new(0),
});

/// The counts of cached answers.
#[derive(Debug)]
pub struct TokenCacheCounts {
    /// The durations of authentications with a cached response.
    pub hits: AtomicHistogram,
    /// The durations of authentications that needed a call.
    pub misses: AtomicHistogram,
    /// The number of calls with a response.
    pub fetched: Count,
    /// The number of failed calls.
    pub failed: Count,
    fetching: AtomicI64,
}

/// A running call.
pub(super) struct Fetch;

impl TokenCacheCounts {
    pub(super) fn begin(&self) -> Fetch {
        self.fetching.fetch_add(1, Ordering::Relaxed);
        Fetch
    }

    pub(super) fn answered(&self, is_ok: bool) {
        if is_ok { self.fetched.increment() } else { self.failed.increment() }
    }

    pub(super) fn note(&self, was_kept: bool, took: Duration) {
        let times = if was_kept { &self.hits } else { &self.misses };
        times.observe_duration(took);
    }

    /// The number of running calls.
    pub fn in_flight(&self) -> u64 {
        u64::try_from(self.fetching.load(Ordering::Relaxed)).unwrap_or_default()
    }
}

impl Drop for Fetch {
    fn drop(&mut self) {
        TOKEN_CACHE.fetching.fetch_sub(1, Ordering::Relaxed);
    }
}
