//! Metrics of other components, read at each scrape.
//!
//! A component implements `MetricSource` and does not depend on Prometheus. This module encodes the samples.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use super::renamed::deprecated_name;

/// The kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// A counter, which only grows. Its name ends in `_total`.
    Counter,
    /// A gauge, which rises and falls.
    Gauge,
}

/// One number.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The name, exactly as in the exposition format.
    pub name: &'static str,
    /// The help text, without a full stop.
    pub help: &'static str,
    /// The kind.
    pub kind: MetricKind,
    /// Labels. The set of their values must be bounded.
    pub labels: Vec<(&'static str, String)>,
    /// The number.
    pub value: f64,
}

/// A component with metrics. Closures implement this.
pub trait MetricSource: Send + Sync + 'static {
    /// All samples. Samples with the same name must be consecutive.
    fn samples(&self) -> Vec<Sample>;
}

impl<F: Fn() -> Vec<Sample> + Send + Sync + 'static> MetricSource for F {
    fn samples(&self) -> Vec<Sample> {
        self()
    }
}

/// One histogram.
#[derive(Clone, Debug, PartialEq)]
pub struct HistogramSample {
    /// The name, exactly as in the exposition format.
    pub name: &'static str,
    /// The help text, without a full stop.
    pub help: &'static str,
    /// Labels. The set of their values must be bounded.
    pub labels: Vec<(&'static str, String)>,
    /// The sum of all observations.
    pub sum: f64,
    /// The number of observations.
    pub count: u64,
    /// The upper end of each bucket, with the number of observations in that bucket alone.
    pub buckets: Vec<(f64, u64)>,
}

/// Registers a source of histograms.
pub(super) struct HistogramCollector<F>(F);

impl<F> HistogramCollector<F> {
    pub(super) fn new(source: F) -> Self {
        Self(source)
    }
}

impl<F> fmt::Debug for HistogramCollector<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HistogramCollector")
    }
}

impl<F: Fn() -> Vec<HistogramSample> + Send + Sync + 'static> Collector for HistogramCollector<F> {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for family in (self.0)().chunk_by(|one, other| one.name == other.name) {
            let [HistogramSample { name, help, .. }, ..] = family else { continue };
            let mut descriptor = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
            for HistogramSample { labels, sum, count, buckets, .. } in family {
                // The number of observations above the last bucket.
                let beyond = count - buckets.iter().map(|(_, count)| count).sum::<u64>();
                let mut buckets = buckets.clone();
                buckets.push((f64::INFINITY, beyond));
                descriptor.encode_family(labels)?.encode_histogram::<NoLabelSet>(*sum, *count, &buckets, None)?;
            }
        }
        Ok(())
    }
}

/// Registers a source of samples.
pub(super) struct SourceCollector(Box<dyn MetricSource>);

impl SourceCollector {
    pub(super) fn new(source: impl MetricSource) -> Self {
        Self(Box::new(source))
    }
}

impl fmt::Debug for SourceCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SourceCollector")
    }
}

impl Collector for SourceCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for family in self.0.samples().chunk_by(|one, other| one.name == other.name) {
            let [Sample { name, help, .. }, ..] = family else { continue };
            encode_family(&mut encoder, name, help, family)?;
            if let Some(deprecated) = deprecated_name(name) {
                encode_family(&mut encoder, deprecated, &format!("Deprecated name of {name}"), family)?;
            }
        }
        Ok(())
    }
}

/// Encodes the samples of a family under a name.
fn encode_family(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, family: &[Sample]) -> fmt::Result {
    let Some(Sample { kind, .. }) = family.first() else { return Ok(()) };
    let (name, metric_type) = match kind {
        // The encoder appends `_total` again.
        MetricKind::Counter => (name.strip_suffix("_total").unwrap_or(name), MetricType::Counter),
        MetricKind::Gauge => (name, MetricType::Gauge),
    };
    let mut descriptor = encoder.encode_descriptor(name, help, None, metric_type)?;
    for Sample { labels, value, .. } in family {
        if labels.is_empty() {
            write(&mut descriptor, *kind, *value)?;
        } else {
            write(&mut descriptor.encode_family(labels)?, *kind, *value)?;
        }
    }
    Ok(())
}

fn write(encoder: &mut MetricEncoder<'_>, kind: MetricKind, value: f64) -> fmt::Result {
    match kind {
        MetricKind::Counter => encoder.encode_counter::<NoLabelSet, _, f64>(&value, None),
        MetricKind::Gauge => encoder.encode_gauge(&value),
    }
}
