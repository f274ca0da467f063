//! The server's metrics, with upstream's names where upstream has the same metric.
//!
//! Label values are bounded: verbs and scopes come from fixed lists, and a resource has series only while it is served.
//! Values that other components keep (stored objects, cache counters) are read at each scrape through [`MetricSource`].

mod access;
mod atomic_histogram;
mod build_info;
mod classic;
mod edge;
mod filter_times;
mod further;
mod impersonation;
mod marks;
mod observation;
mod process;
mod renamed;
mod requests;
mod source;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tokio::sync::watch;

pub(crate) use access::{AccessMetrics, Authentication};

pub use edge::Edge;
pub(crate) use filter_times::Filter;
use filter_times::FilterTimes;
pub(crate) use further::{WatchMeter, removed_release};
pub(crate) use impersonation::ImpersonationMetrics;
pub(crate) use marks::marked;
pub use observation::{Observation, ResourceNames};
pub use source::{HistogramSample, MetricKind, MetricSource, Sample};

use crate::negotiation::Serving;
use edge::PollsCollector;
use requests::Requests;
use source::{HistogramCollector, SourceCollector};

/// The media type of the classic text format.
pub const CLASSIC_CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
/// The media type of the OpenMetrics text format.
pub const OPEN_METRICS_CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    request_kind: &'static str,
}

/// The time after a change of the served resources until series are dropped.
const CHANGES_PAUSE: Duration = Duration::from_secs(5);

/// All metrics of a server.
pub struct Metrics {
    registry: RwLock<Registry>,
    requests: Requests,
    access: Arc<AccessMetrics>,
    filter_times: Arc<FilterTimes>,
    /// The numbers of mutating and of read-only requests in flight.
    writing: Gauge,
    reading: Gauge,
    edge: Arc<Edge>,
    /// The number of times that the aggregated discovery document was built, and the durations in seconds.
    aggregations: Counter,
    aggregation_times: Histogram,
    /// The numbers of requests for this server's own discovery document, and for that of all servers on the store.
    own_discovery: Counter,
    shared_discovery_kept: Counter,
    shared_discovery_made: Counter,
}

/// Upper ends of the buckets of [`Metrics::note_discovery`], in seconds.
const AGGREGATION_BUCKETS: [f64; 8] = [0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 1.];

impl Metrics {
    /// The metrics of requests and of the process.
    pub fn new() -> Self {
        let mut registry = Registry::default();
        let requests = Requests::default();
        registry.register_collector(Box::new(requests.clone()));
        let in_flight = Family::<KindLabels, Gauge>::default();
        let [writing, reading] =
            ["mutating", "readOnly"].map(|request_kind| in_flight.get_or_create_owned(&KindLabels { request_kind }));
        // The registry appends a full stop to help texts.
        let help = "Requests being answered, watches apart";
        registry.register("apiserver_current_inflight_requests", help, in_flight);
        let (aggregations, aggregation_times) = (Counter::default(), Histogram::new(AGGREGATION_BUCKETS));
        let help = "Builds of the aggregated document of discovery";
        registry.register("aggregator_discovery_aggregation_count", help, aggregations.clone());
        let help = "Duration of a build of the aggregated document of discovery, in seconds";
        registry.register("aggregator_discovery_aggregation_duration", help, aggregation_times.clone());
        let [own_discovery, shared_discovery_kept, shared_discovery_made] = [
            ("nopeer_requests", "Requests for the document of discovery of this server alone"),
            (
                "peer_aggregated_cache_hits",
                "Requests for the discovery document of all servers that were served from the cache",
            ),
            ("peer_aggregated_cache_misses", "Requests for the discovery document of all servers that built it"),
        ]
        .map(|(name, help)| {
            let counter = Counter::default();
            registry.register(format!("aggregator_discovery_{name}"), help, counter.clone());
            counter
        });
        let filter_times = Arc::new(FilterTimes::default());
        let access = Arc::new(AccessMetrics::new(&mut registry, filter_times.clone()));
        let edge = Arc::new(Edge::default());
        registry.register_collector(Box::new(PollsCollector(edge.clone())));
        let metrics = Self {
            registry: RwLock::new(registry),
            requests,
            access: access.clone(),
            filter_times: filter_times.clone(),
            writing,
            reading,
            edge: edge.clone(),
            aggregations,
            aggregation_times,
            own_discovery,
            shared_discovery_kept,
            shared_discovery_made,
        };
        metrics.add_source(move || edge.samples());
        metrics.add_source(move || access.samples());
        metrics.add_histograms(move || filter_times.histograms());
        metrics.add_source(process::ProcessSource::new());
        metrics.add_source(build_info::samples);
        metrics
    }

    /// The metrics of the listener.
    pub fn edge(&self) -> &Arc<Edge> {
        &self.edge
    }

    /// The times of the filters.
    pub(crate) fn filter_times(&self) -> &Arc<FilterTimes> {
        &self.filter_times
    }

    /// The metrics of authentication and authorization.
    pub(crate) fn access(&self) -> &AccessMetrics {
        &self.access
    }

    /// Counts a request for an aggregated discovery document, with the time to build the document if it was not cached.
    pub fn note_discovery(&self, serving: Serving, made: Option<Duration>) {
        if let Some(took) = made {
            self.aggregations.inc();
            self.aggregation_times.observe(took.as_secs_f64());
        }
        match (serving, made) {
            (Serving::Own, _) => self.own_discovery.inc(),
            (Serving::Any, None) => self.shared_discovery_kept.inc(),
            (Serving::Any, Some(_)) => self.shared_discovery_made.inc(),
        };
    }

    /// Sets the function that returns true if a version of a resource (group, version, plural) is served. Series of
    /// other versions are dropped.
    pub fn serve(&self, serves: impl Fn(&str, &str, &str) -> bool + Send + Sync + 'static) {
        self.requests.serve(Box::new(serves));
    }

    /// Drops the series of versions that are no longer served after each of `changes`. Ends with their sender.
    pub async fn follow(self: Arc<Self>, mut changes: watch::Receiver<u64>) {
        while changes.changed().await.is_ok() {
            // Definitions are often removed one after the other, and each time all series are read.
            tokio::time::sleep(CHANGES_PAUSE).await;
            changes.mark_unchanged();
            let requests = self.requests.clone();
            keelson_supervision::outcome(keelson_supervision::spawn_blocking(move || requests.forget_past())).await;
        }
    }

    /// Sets the function that returns the deprecation warning of a version of a resource (group, version, plural).
    pub fn deprecate(&self, warning: impl Fn(&str, &str, &str) -> Option<String> + Send + Sync + 'static) {
        self.requests.deprecate(Box::new(warning));
    }

    /// Reads `source` at each scrape.
    pub fn add_source(&self, source: impl MetricSource) {
        self.registry.write().register_collector(Box::new(SourceCollector::new(source)));
    }

    /// Calls `source` at each scrape for histograms. It must return histograms of one name consecutively.
    pub fn add_histograms(&self, source: impl Fn() -> Vec<HistogramSample> + Send + Sync + 'static) {
        self.registry.write().register_collector(Box::new(HistogramCollector::new(source)));
    }

    /// All metrics in the OpenMetrics text format.
    ///
    /// # Errors
    /// When a source returns a sample that the format cannot represent.
    pub fn open_metrics(&self) -> Result<String, fmt::Error> {
        let mut out = String::new();
        text::encode(&mut out, &self.registry.read())?;
        Ok(out)
    }

    /// All metrics in the classic text format.
    ///
    /// # Errors
    /// When a source returns a sample that the format cannot represent.
    pub fn classic(&self) -> Result<String, fmt::Error> {
        self.open_metrics().map(|text| classic::from_open_metrics(&text))
    }
}

/// The samples of one source as a page, in the OpenMetrics text format or the classic one.
///
/// # Errors
/// When the source returns a sample that the format cannot represent.
pub(crate) fn page_of(source: impl MetricSource, is_open: bool) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(SourceCollector::new(source)));
    let mut out = String::new();
    text::encode(&mut out, &registry)?;
    Ok(if is_open { out } else { classic::from_open_metrics(&out) })
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
