//! Encodes the histograms that every request updates.
//!
//! `keelson_meta::metering` counts them.

use std::fmt;

use keelson_meta::metering::AtomicHistogram;
use prometheus_client::encoding::{MetricEncoder, NoLabelSet};

use super::source::HistogramSample;

/// Encodes the sum of histograms with the same buckets.
pub(super) fn encode(all: &[&AtomicHistogram], encoder: &mut MetricEncoder<'_>) -> fmt::Result {
    let Some((sum, buckets)) = AtomicHistogram::total(all) else { return Ok(()) };
    let count = buckets.iter().map(|(_, count)| count).sum();
    encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
}

impl HistogramSample {
    /// The sum of histograms with the same buckets, without labels. `None` for an empty slice.
    pub fn sum(all: &[&AtomicHistogram], name: &'static str, help: &'static str) -> Option<Self> {
        let (sum, mut buckets) = AtomicHistogram::total(all)?;
        let count = buckets.iter().map(|(_, count)| count).sum();
        // The last bucket has no upper end.
        buckets.pop();
        Some(Self { name, help, labels: Vec::new(), sum, count, buckets })
    }

    /// The histogram with labels.
    #[must_use]
    pub fn with(self, labels: Vec<(&'static str, String)>) -> Self {
        Self { labels, ..self }
    }
}
