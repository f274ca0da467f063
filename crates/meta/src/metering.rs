//! The types with which code counts metrics: histograms, counters, and the series of a family by labels.
//!
//! An observation costs two atomic additions and no lock. Callers look a series up once and keep it if possible. The
//! code that writes metrics has the names and help texts of families.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

/// The maximum number of series in a family. Requests that would need another series are not counted.
pub const MOST_SERIES: usize = 5_000;
/// Nanoseconds in a second: the scale of durations.
const NANOS: f64 = 1e9;
/// Nanoseconds in a microsecond.
const MICRO: u64 = 1_000;

/// The upper bounds of a histogram's buckets, and the scale of its values. Values are integers in a small unit:
/// nanoseconds or bytes.
#[derive(Debug)]
pub struct Buckets {
    /// The upper bounds, in the unit that the constructor states.
    ends: &'static [u64],
    /// The number of small units in one unit of `ends`.
    factor: u64,
    /// The number of small units in one unit of the metric.
    scale: f64,
}

impl Buckets {
    /// Buckets of durations whose upper bounds are in microseconds.
    pub const fn of_durations(ends: &'static [u64]) -> Self {
        Self { ends, factor: MICRO, scale: NANOS }
    }

    /// Buckets of durations whose upper bounds are in nanoseconds.
    pub const fn of_short_durations(ends: &'static [u64]) -> Self {
        Self { ends, factor: 1, scale: NANOS }
    }

    /// Buckets of sizes in bytes, or of counts.
    pub const fn of_sizes(ends: &'static [u64]) -> Self {
        Self { ends, factor: 1, scale: 1. }
    }
}

/// A histogram.
#[derive(Debug)]
pub struct AtomicHistogram {
    buckets: &'static Buckets,
    /// The number of observations in each bucket, and above the last one.
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

impl AtomicHistogram {
    /// A histogram without observations.
    pub fn new(buckets: &'static Buckets) -> Self {
        let counts = (0..=buckets.ends.len()).map(|_| AtomicU64::new(0)).collect();
        Self { buckets, counts, sum: AtomicU64::new(0) }
    }

    /// Adds a value in the small unit.
    pub fn observe(&self, value: u64) {
        let factor = self.buckets.factor;
        let bucket = self.buckets.ends.partition_point(|end| end * factor < value);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// Adds a duration.
    pub fn observe_duration(&self, duration: Duration) {
        self.observe(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
    }

    /// The number of observations.
    pub fn count(&self) -> u64 {
        self.counts.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Adds up histograms with equal buckets. Returns the sum of all observations in the unit of the metric, and the
    /// upper bound and count of each bucket. Counts are not cumulative, and the last bucket is unbounded. `None` if
    /// there are no histograms.
    pub fn total(all: &[&Self]) -> Option<(f64, Vec<(f64, u64)>)> {
        let Buckets { ends, factor, scale } = all.first()?.buckets;
        let end = |end: &u64| (*end * factor) as f64 / scale;
        let mut buckets: Vec<(f64, u64)> = ends.iter().map(|it| (end(it), 0)).collect();
        buckets.push((f64::INFINITY, 0));
        let mut sum = 0.;
        for one in all {
            for ((_, total), count) in buckets.iter_mut().zip(&one.counts) {
                *total += count.load(Ordering::Relaxed);
            }
            sum += one.sum.load(Ordering::Relaxed) as f64 / scale;
        }
        Some((sum, buckets))
    }
}

/// A counter.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// A counter at zero.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Adds one.
    pub fn increment(&self) {
        self.add(1);
    }

    /// Adds to it.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// The current count.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The series of a family by labels, at most [`MOST_SERIES`].
pub struct Series<K, M> {
    series: RwLock<HashMap<K, Arc<M>>>,
    new: fn() -> M,
}

impl<K: Eq + Hash + Ord + Clone, M> Series<K, M> {
    /// A family without series. `new` creates one.
    pub fn new(new: fn() -> M) -> Self {
        Self { series: RwLock::default(), new }
    }

    /// Returns the series with these labels. Creates it if it is new; `own` then returns the labels to store. `None` if
    /// the family has too many series.
    pub fn get_or_create<Q: Eq + Hash + ?Sized>(&self, labels: &Q, own: impl FnOnce() -> K) -> Option<Arc<M>>
    where
        K: Borrow<Q>,
    {
        if let Some(known) = self.series.read().unwrap_or_else(PoisonError::into_inner).get(labels) {
            return Some(known.clone());
        }
        let mut series = self.series.write().unwrap_or_else(PoisonError::into_inner);
        if series.len() >= MOST_SERIES && !series.contains_key(labels) {
            return None;
        }
        Some(series.entry(own()).or_insert_with(|| Arc::new((self.new)())).clone())
    }

    /// All series, sorted by labels.
    pub fn all(&self) -> Vec<(K, Arc<M>)> {
        let series = self.series.read().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = series.iter().map(|(labels, series)| (labels.clone(), series.clone())).collect();
        drop(series);
        all.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        all
    }
}

impl<K, M> fmt::Debug for Series<K, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Series").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_counts_in_the_first_bucket_that_contains_it() {
        static SIZES: Buckets = Buckets::of_sizes(&[10, 100]);
        let histogram = AtomicHistogram::new(&SIZES);
        for value in [0, 10, 11, 100, 101, 5_000] {
            histogram.observe(value);
        }
        let buckets = vec![(10., 2), (100., 2), (f64::INFINITY, 2)];
        assert_eq!(AtomicHistogram::total(&[&histogram]), Some((5_222., buckets)));
        assert_eq!(histogram.count(), 6);
        static TIMES: Buckets = Buckets::of_durations(&[1_000, 1_000_000]);
        let histogram = AtomicHistogram::new(&TIMES);
        histogram.observe_duration(Duration::from_millis(1));
        histogram.observe_duration(Duration::from_nanos(1_000_001));
        let buckets = vec![(0.001, 1), (1., 1), (f64::INFINITY, 0)];
        assert_eq!(AtomicHistogram::total(&[&histogram]), Some((0.002_000_001, buckets)));
    }

    #[test]
    fn a_family_has_a_bounded_number_of_series() {
        let series: Series<usize, Count> = Series::new(Count::new);
        for number in 0..2 * MOST_SERIES {
            let counted = series.get_or_create(&number, || number).map(|series| series.increment());
            assert_eq!(counted.is_some(), number < MOST_SERIES);
        }
        series.get_or_create(&0, || 0).unwrap().increment();
        let all = series.all();
        assert_eq!((all.len(), all[0].1.get(), all[1].1.get()), (MOST_SERIES, 2, 1));
    }
}
