//! The requests of this server to webhooks and aggregated servers, with the metric names of Kubernetes' client-go.
//!
//! A host has series while a configuration contains it.

use std::sync::atomic::{AtomicU64, Ordering};

use keelson_http::metrics::{HistogramSample, MetricKind, Sample};
use keelson_meta::metering::AtomicHistogram;
use keelson_outbound::{CertificateFaults, Egress, EgressStats, MethodMeter, NO_RESPONSE, OutboundStats};

use super::counter;

/// The code label of requests without a response.
const ERROR: &str = "<error>";

/// A family of histograms by host and verb.
type Histograms = (&'static str, &'static str, fn(&MethodMeter) -> &AtomicHistogram);

const HISTOGRAMS: [Histograms; 3] = [
    (
        "rest_client_request_duration_seconds",
        "Duration of requests of this server to others, in seconds, by verb and host",
        |meter| &meter.times,
    ),
    (
        "rest_client_request_size_bytes",
        "Sizes of requests of this server to others, in bytes, by verb and host",
        |meter| &meter.request_sizes,
    ),
    (
        "rest_client_response_size_bytes",
        "Sizes of responses of others to this server, in bytes, by verb and host",
        |meter| &meter.response_sizes,
    ),
];

/// The numbers of requests, retries and rejected certificates.
pub(crate) fn client_samples(stats: &OutboundStats) -> Vec<Sample> {
    let hosts = stats.hosts();
    let by_code = |name, help, label: &'static str, counts: fn(&MethodMeter) -> Vec<(u16, u64)>| {
        let mut samples = Vec::new();
        for (host, meter) in &hosts {
            for (method, meter) in meter.methods() {
                samples.extend(counts(&meter).into_iter().map(|(code, count)| Sample {
                    name,
                    help,
                    kind: MetricKind::Counter,
                    labels: vec![("code", code_text(code)), (label, method.to_string()), ("host", host.clone())],
                    value: count as f64,
                }));
            }
        }
        samples
    };
    let help = "Requests of this server to others, by code, method and host";
    let mut samples = by_code("rest_client_requests_total", help, "method", MethodMeter::codes);
    let help = "Repeats of requests of this server to others, by the code of the response before them, verb and host";
    samples.extend(by_code("rest_client_request_retries_total", help, "verb", MethodMeter::repeats));
    samples.extend(certificate_samples(
        stats.webhook_certificates(),
        ["apiserver_webhooks_x509_insecure_sha1_total", "apiserver_webhooks_x509_missing_san_total"],
        [
            "Certificates of webhooks that were refused and are signed with SHA-1",
            "Certificates of webhooks that were refused for having no subject alternative name",
        ],
    ));
    samples.extend(certificate_samples(
        stats.aggregated_certificates(),
        ["apiserver_kube_aggregator_x509_insecure_sha1_total", "apiserver_kube_aggregator_x509_missing_san_total"],
        [
            "Certificates of aggregated servers that were refused and are signed with SHA-1",
            "Certificates of aggregated servers that were refused for having no subject alternative name",
        ],
    ));
    samples
}

fn certificate_samples(faults: &CertificateFaults, names: [&'static str; 2], helps: [&'static str; 2]) -> [Sample; 2] {
    [counter(names[0], helps[0], faults.insecure_sha1.get()), counter(names[1], helps[1], faults.missing_san.get())]
}

/// The numbers of connections through egress proxies.
pub(crate) fn egress_samples(egress: &Egress) -> Vec<Sample> {
    let sample = |stats: &EgressStats, name, help, stage: Option<&str>, count: &AtomicU64| Sample {
        name,
        help,
        // The exposition gives each counter the suffix `_total`, which upstream's name of the failures lacks.
        kind: if stage.is_some() { MetricKind::Gauge } else { MetricKind::Counter },
        labels: egress_labels(stats).into_iter().chain(stage.map(|stage| ("stage", stage.to_owned()))).collect(),
        value: count.load(Ordering::Relaxed) as f64,
    };
    let (starts, starts_help) = (
        "apiserver_egress_dialer_dial_start_total",
        "Connections begun through egress proxies, by protocol and transport",
    );
    let (failures, failures_help) = (
        "apiserver_egress_dialer_dial_failure_count",
        "Connections that egress proxies did not open, by protocol, transport and stage",
    );
    let all = egress.stats();
    let begun = all.iter().map(|stats| sample(stats, starts, starts_help, None, &stats.starts));
    let failed = all.iter().flat_map(|stats| {
        [("connect", &stats.failed_connects), ("proxy", &stats.failed_tunnels)]
            .map(|(stage, count)| sample(stats, failures, failures_help, Some(stage), count))
    });
    begun.chain(failed).collect()
}

/// The durations of connections through egress proxies.
pub(crate) fn egress_times(egress: &Egress) -> Vec<HistogramSample> {
    let help = "Time until an egress proxy has opened a connection, in seconds, by protocol and transport";
    let all = egress.stats().iter().filter_map(|stats| {
        let name = "apiserver_egress_dialer_dial_duration_seconds";
        Some(HistogramSample::sum(&[&stats.durations], name, help)?.with(egress_labels(stats)))
    });
    all.collect()
}

fn egress_labels(stats: &EgressStats) -> Vec<(&'static str, String)> {
    vec![("protocol", stats.protocol.to_owned()), ("transport", stats.transport.to_owned())]
}

fn code_text(code: u16) -> String {
    if code == NO_RESPONSE { ERROR.to_owned() } else { code.to_string() }
}

/// The durations and sizes of requests.
pub(crate) fn client_histograms(stats: &OutboundStats) -> Vec<HistogramSample> {
    let hosts = stats.hosts();
    let mut samples = Vec::new();
    for (name, help, histogram) in HISTOGRAMS {
        for (host, meter) in &hosts {
            samples.extend(meter.methods().into_iter().filter_map(|(method, meter)| {
                let labels = vec![("verb", method.to_string()), ("host", host.clone())];
                Some(HistogramSample::sum(&[histogram(&meter)], name, help)?.with(labels))
            }));
        }
    }
    samples
}
