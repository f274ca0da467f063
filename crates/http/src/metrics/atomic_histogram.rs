//! Histograms for the measurements of every request: an observation costs two atomic additions and no lock.
//!
//! Values are whole numbers in a small unit, such as microseconds or bytes. The scale leads from there to the unit of the metric.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::encoding::{MetricEncoder, NoLabelSet};

use super::source::HistogramSample;

/// Microseconds in a second: the scale of durations.
const MICROS: f64 = 1e6;

/// The upper ends of buckets, and the scale of the values.
#[derive(Debug)]
pub struct Buckets {
    /// In the small unit.
    pub(crate) ends: &'static [u64],
    /// The number of small units in the unit of the metric.
    pub(crate) scale: f64,
}

/// A histogram.
#[derive(Debug)]
pub struct AtomicHistogram {
    buckets: &'static Buckets,
    /// The observations in each bucket, and above all of them.
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

impl Buckets {
    /// Buckets of durations, which end after these numbers of microseconds.
    pub const fn of_durations(ends: &'static [u64]) -> Self {
        Self { ends, scale: MICROS }
    }

    /// Buckets of sizes in bytes.
    pub const fn of_sizes(ends: &'static [u64]) -> Self {
        Self { ends, scale: 1. }
    }
}

impl AtomicHistogram {
    /// Without observations.
    pub fn new(buckets: &'static Buckets) -> Self {
        let counts = (0..=buckets.ends.len()).map(|_| AtomicU64::new(0)).collect();
        Self { buckets, counts, sum: AtomicU64::new(0) }
    }

    /// Adds a value in the small unit.
    pub fn observe(&self, value: u64) {
        let bucket = self.buckets.ends.partition_point(|end| *end < value);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// Adds a duration, where the small unit is the microsecond.
    pub fn observe_duration(&self, duration: Duration) {
        self.observe(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX));
    }

    /// The number of observations.
    pub fn count(&self) -> u64 {
        self.counts.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Writes some histograms of the same buckets as one.
    pub(crate) fn encode(all: &[&Self], encoder: &mut MetricEncoder<'_>) -> fmt::Result {
        let Some((sum, buckets)) = Self::total(all) else { return Ok(()) };
        let count = buckets.iter().map(|(_, count)| count).sum();
        encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
    }

    /// Some histograms of the same buckets as one, without labels; `None` for no histograms.
    pub fn sample(all: &[&Self], name: &'static str, help: &'static str) -> Option<HistogramSample> {
        let (sum, mut buckets) = Self::total(all)?;
        let count = buckets.iter().map(|(_, count)| count).sum();
        // The last bucket has no end.
        buckets.pop();
        Some(HistogramSample { name, help, labels: Vec::new(), sum, count, buckets })
    }

    /// The sum of all observations, and the ends of the buckets with how many observations each has that those before have not.
    fn total(all: &[&Self]) -> Option<(f64, Vec<(f64, u64)>)> {
        let Buckets { ends, scale } = all.first()?.buckets;
        let mut buckets: Vec<(f64, u64)> = ends.iter().map(|end| (*end as f64 / scale, 0)).collect();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_falls_into_the_first_bucket_that_does_not_end_before_it() {
        static SIZES: Buckets = Buckets::of_sizes(&[10, 100]);
        let histogram = AtomicHistogram::new(&SIZES);
        for value in [0, 10, 11, 100, 101, 5_000] {
            histogram.observe(value);
        }
        let counts: Vec<u64> = histogram.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        assert_eq!((counts, histogram.count()), (vec![2, 2, 2], 6));
        assert_eq!(histogram.sum.load(Ordering::Relaxed), 5_222);
    }
}
