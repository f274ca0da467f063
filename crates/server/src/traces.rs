//! The export of spans to a collector by OTLP over gRPC.
//!
//! A task empties the queue of ended spans in batches. A collector that is away or hangs costs the task its time and
//! nothing else: the queue then drops spans. The log reports it at most once a minute, and metrics count lost spans.

mod collector;
mod otlp;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use keelson_access_config::{CollectorEndpoint, TracingConfiguration};
use keelson_http::metrics::{MetricKind, Sample};
use keelson_meta::Random;
use keelson_outbound::Egress;
use keelson_supervision::warn_repeated;
use keelson_telemetry::{Counts, FinishedSpan, FinishedSpans, SpanLayer};
use parking_lot::Mutex;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use self::collector::Collector;
use self::otlp::{ExportRequest, Resource};

/// The service in the attributes of spans, as upstream.
const SERVICE: &str = "apiserver";
/// The most spans of a call, as upstream.
const BATCH: usize = 512;
/// The time that a span waits for others.
const DELAY: Duration = Duration::from_secs(1);
/// The time limit of a call.
const CALL_TIME: Duration = Duration::from_secs(10);
/// The waits before a batch is sent again.
const RETRIES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];
/// The time limit for the last spans at a shutdown.
const LAST_TIME: Duration = Duration::from_secs(2);

/// The ended spans of the process, and their collector. The first server of the process exports them.
#[derive(Clone)]
pub struct Traces {
    endpoint: CollectorEndpoint,
    spans: Arc<Mutex<Option<FinishedSpans>>>,
    counts: Arc<Counts>,
}

impl std::fmt::Debug for Traces {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Traces").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

impl Traces {
    /// Creates the layer that records spans by this configuration. The caller adds it to the subscriber of the process.
    pub fn new(configuration: TracingConfiguration, random: Arc<dyn Random>) -> (SpanLayer, Self) {
        let (layer, spans, counts) = SpanLayer::new(configuration.sampling_rate_per_million, random);
        (layer, Self { endpoint: configuration.endpoint, spans: Arc::new(Mutex::new(Some(spans))), counts })
    }

    /// Exports spans until `stopping`, and then those that are left. A further server of the process only waits.
    pub(crate) async fn export(self, egress: Arc<Egress>, server_id: String, stopping: CancellationToken) {
        let taken = self.spans.lock().take();
        let Some(mut spans) = taken else { return stopping.cancelled().await };
        let collector = Collector::new(self.endpoint.clone(), egress);
        let resource = Resource::new(SERVICE, crate::KUBERNETES_VERSION, &server_id);
        let export = Export { collector, resource, counts: self.counts };
        let mut batch = Vec::new();
        while stopping.run_until_cancelled(fill(&mut batch, &mut spans)).await.is_some() {
            let mut sending = pin!(export.send(std::mem::take(&mut batch)));
            if stopping.run_until_cancelled(sending.as_mut()).await.is_none() {
                let _: Result<(), Elapsed> = timeout(LAST_TIME, sending).await;
                break;
            }
        }
        // A cancelled wait leaves its spans in the batch.
        while let Ok(span) = spans.try_recv() {
            batch.push(span);
        }
        let until = Instant::now() + LAST_TIME;
        for batch in batch.chunks(BATCH) {
            let sent = timeout_at(until, export.collector.export(ExportRequest::new(&export.resource, batch.to_vec())));
            match sent.await {
                Ok(Ok(refused)) => export.count_taken(batch.len(), refused),
                Ok(Err(_)) | Err(_) => export.count(batch.len(), false),
            }
        }
    }

    /// The metrics of spans.
    pub(crate) fn samples(&self) -> Vec<Sample> {
        let sample = |name, help, labels: Vec<(&'static str, String)>, value: u64| Sample {
            name,
            help,
            kind: MetricKind::Counter,
            labels,
            value: value as f64,
        };
        let Counts { exported, overflowed, failed } = &*self.counts;
        let [exported, overflowed, failed] = [exported, overflowed, failed].map(|count| count.load(Ordering::Relaxed));
        let dropped = |reason: &str, value| {
            let help = "Spans that the collector has not got, by the reason";
            sample("keelson_trace_spans_dropped_total", help, vec![("reason", reason.to_owned())], value)
        };
        vec![
            sample("keelson_trace_spans_exported_total", "Spans that the collector has", Vec::new(), exported),
            dropped("queue_full", overflowed),
            dropped("export_failed", failed),
        ]
    }
}

/// Receives the next spans, after the first of them has waited for others. Pends for ever if no more spans can come.
async fn fill(batch: &mut Vec<FinishedSpan>, spans: &mut FinishedSpans) {
    if spans.recv_many(batch, BATCH).await == 0 {
        std::future::pending::<()>().await;
    }
    let until = Instant::now() + DELAY;
    while batch.len() < BATCH {
        let left = BATCH - batch.len();
        match timeout_at(until, spans.recv_many(batch, left)).await {
            Ok(1..) => {}
            Ok(0) | Err(_) => break,
        }
    }
}

/// The connection to the collector.
struct Export {
    collector: Collector,
    resource: Resource,
    counts: Arc<Counts>,
}

impl Export {
    /// Sends a batch, again if it fails. Dropping the future drops the batch.
    async fn send(&self, batch: Vec<FinishedSpan>) {
        let spans = batch.len();
        let request = ExportRequest::new(&self.resource, batch);
        let mut retries = RETRIES.into_iter();
        loop {
            let sent = timeout(CALL_TIME, self.collector.export(request.clone())).await;
            let why = match sent {
                Ok(Ok(refused)) => return self.count_taken(spans, refused),
                Ok(Err(why)) => why,
                Err(_) => format!("no answer in {CALL_TIME:?}"),
            };
            let lost = self.counts.overflowed.load(Ordering::Relaxed) + self.counts.failed.load(Ordering::Relaxed);
            warn_repeated!(""; error = why, lost, "spans can't be exported to the collector of --tracing-config-file");
            match retries.next() {
                Some(wait) => tokio::time::sleep(wait).await,
                None => return self.count(spans, false),
            }
        }
    }

    /// Counts a batch of which the collector has refused some spans.
    fn count_taken(&self, spans: usize, refused: u64) {
        let refused = usize::try_from(refused).unwrap_or(usize::MAX).min(spans);
        self.count(spans - refused, true);
        self.count(refused, false);
    }

    fn count(&self, spans: usize, is_sent: bool) {
        let count = if is_sent { &self.counts.exported } else { &self.counts.failed };
        count.fetch_add(spans as u64, Ordering::Relaxed);
    }
}
