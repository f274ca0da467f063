//! Durations of compilations and evaluations in this process, for metrics.
//!
//! An observation reads the clock twice and adds to two atomic counters.

use std::sync::LazyLock;
use std::time::Instant;

use keelson_meta::metering::{AtomicHistogram, Buckets};

/// The upper bounds of the buckets, in microseconds. They are kube-apiserver's.
static BUCKETS: Buckets = Buckets::of_durations(&[
    5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 5_000_000, 10_000_000,
]);

/// The durations of compilations, with one observation for each expression.
pub static COMPILATIONS: LazyLock<AtomicHistogram> = LazyLock::new(|| AtomicHistogram::new(&BUCKETS));
/// The durations of evaluations, with one observation for all rules of an object, and one for each expression of a
/// policy.
pub static EVALUATIONS: LazyLock<AtomicHistogram> = LazyLock::new(|| AtomicHistogram::new(&BUCKETS));

/// Runs `work` and records its duration.
pub fn timed<T>(times: &AtomicHistogram, work: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let done = work();
    times.observe_duration(begun.elapsed());
    done
}
