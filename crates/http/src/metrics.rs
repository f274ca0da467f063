//! What operators measure, in the field's own names.
//!
//! Labels are bounded: verbs and scopes are fixed words, and a resource is named only if it is served. Numbers that
//! other parts keep (objects stored, cache counters) are asked for at each scrape through [`MetricSource`].

mod classic;
mod observation;
mod process;
mod source;

use std::fmt;

use parking_lot::RwLock;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

pub use observation::{Observation, ServedResource};
pub use source::{MetricKind, MetricSource, Sample};

use source::SourceCollector;

/// Upper ends of the duration buckets, in seconds: those of the reference, so that its dashboards fit.
const DURATION_BUCKETS: [f64; 23] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0,
    45.0, 60.0,
];

/// The media type of the classic text format.
pub const CLASSIC_CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
/// The media type of the OpenMetrics text format.
pub const OPEN_METRICS_CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    verb: &'static str,
    group: &'static str,
    version: &'static str,
    resource: &'static str,
    subresource: &'static str,
    scope: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CodeLabels {
    verb: &'static str,
    group: &'static str,
    version: &'static str,
    resource: &'static str,
    subresource: &'static str,
    scope: &'static str,
    code: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    request_kind: &'static str,
}

/// All metrics of a server.
pub struct Metrics {
    registry: RwLock<Registry>,
    requests: Family<CodeLabels, Counter>,
    durations: Family<RequestLabels, Histogram, fn() -> Histogram>,
    in_flight: Family<KindLabels, Gauge>,
    long_running: Family<RequestLabels, Gauge>,
}

impl Metrics {
    /// The metrics of requests and of the process.
    pub fn new() -> Self {
        let metrics = Self {
            registry: RwLock::new(Registry::default()),
            requests: Family::default(),
            durations: Family::new_with_constructor(|| Histogram::new(DURATION_BUCKETS)),
            in_flight: Family::default(),
            long_running: Family::default(),
        };
        // The registry puts `_total` behind counters and a full stop behind help texts.
        let mut registry = metrics.registry.write();
        registry.register("apiserver_request", "Requests, by what they asked and the code", metrics.requests.clone());
        registry.register(
            "apiserver_request_duration_seconds",
            "Time from the head of a request to the end of its answer",
            metrics.durations.clone(),
        );
        registry.register(
            "apiserver_current_inflight_requests",
            "Requests being answered, watches apart",
            metrics.in_flight.clone(),
        );
        registry.register("apiserver_longrunning_requests", "Watches being served", metrics.long_running.clone());
        drop(registry);
        metrics.add_source(process::ProcessSource::new());
        metrics
    }

    /// Asks `source` at each scrape.
    pub fn add_source(&self, source: impl MetricSource) {
        self.registry.write().register_collector(Box::new(SourceCollector::new(source)));
    }

    /// All metrics in the OpenMetrics text format.
    ///
    /// # Errors
    /// When a source gives what the format cannot hold.
    pub fn open_metrics(&self) -> Result<String, fmt::Error> {
        let mut out = String::new();
        text::encode(&mut out, &self.registry.read())?;
        Ok(out)
    }

    /// All metrics in the classic text format.
    ///
    /// # Errors
    /// When a source gives what the format cannot hold.
    pub fn classic(&self) -> Result<String, fmt::Error> {
        self.open_metrics().map(|text| classic::from_open_metrics(&text))
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}
