//! Histograms for the measurements of every request, as they are written out.
//!
//! They are counted in `keelson_meta::metering`.

use std::fmt;

use keelson_meta::metering::AtomicHistogram;
use prometheus_client::encoding::{MetricEncoder, NoLabelSet};

use super::source::HistogramSample;

/// Writes some histograms of the same buckets as one.
pub(super) fn encode(all: &[&AtomicHistogram], encoder: &mut MetricEncoder<'_>) -> fmt::Result {
    let Some((sum, buckets)) = AtomicHistogram::total(all) else { return Ok(()) };
    let count = buckets.iter().map(|(_, count)| count).sum();
    encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
}

impl HistogramSample {
    /// Some histograms of the same buckets as one, without labels; `None` for no histograms.
    pub fn of(all: &[&AtomicHistogram], name: &'static str, help: &'static str) -> Option<Self> {
        let (sum, mut buckets) = AtomicHistogram::total(all)?;
        let count = buckets.iter().map(|(_, count)| count).sum();
        // The last bucket has no end.
        buckets.pop();
        Some(Self { name, help, labels: Vec::new(), sum, count, buckets })
    }

    /// The histogram with labels.
    #[must_use]
    pub fn with(self, labels: Vec<(&'static str, String)>) -> Self {
        Self { labels, ..self }
    }
}
