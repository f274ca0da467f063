//! Metrics of admission, under upstream's names.
//!
//! The registry measures the durations of plugins. A disabled plugin has no series.

use keelson_admission::{ManifestSet, Manifests, PodSecurityStats, WebhookKey, WebhookStats};
use keelson_encryption::sha256_of;
use keelson_http::metrics::{HistogramSample, Sample};
use keelson_registry::{ADMISSION_BUCKETS, AdmissionChain};

use super::{counter, gauge};

/// The durations of each plugin, and of all together.
pub(crate) fn admission_times(admission: &AdmissionChain) -> Vec<HistogramSample> {
    let all = admission.stats().all().into_iter();
    all.map(|(key, times)| {
        let mut labels = vec![
            ("operation", key.operation.as_str().to_owned()),
            ("rejected", key.rejected.to_string()),
            ("type", key.stage.as_str().to_owned()),
        ];
        let (name, help) = if key.plugin.is_empty() {
            let help = "Duration of admission, in seconds, by operation and rejection";
            ("apiserver_admission_step_admission_duration_seconds", help)
        } else {
            labels.insert(0, ("name", key.plugin.to_owned()));
            let help = "Duration of an admission plugin, in seconds, by operation and rejection";
            ("apiserver_admission_controller_admission_duration_seconds", help)
        };
        let buckets = ADMISSION_BUCKETS.into_iter().zip(times.counts).collect();
        HistogramSample { name, help, labels, sum: times.sum, count: times.count, buckets }
    })
    .collect()
}

/// The durations of webhooks.
pub(crate) fn webhook_times(stats: &WebhookStats) -> Vec<HistogramSample> {
    let all = stats.times().into_iter();
    all.map(|(key, times)| HistogramSample {
        name: "apiserver_admission_webhook_admission_duration_seconds",
        help: "Duration of an admission webhook, in seconds, by type, operation and rejection",
        buckets: times.buckets(),
        sum: times.sum,
        count: times.count,
        labels: labels(key),
    })
    .collect()
}

/// The numbers of webhook calls, refusals, failures and fail-open results. Upstream's names of these counters lack
/// `_total`, so they are exposed as gauges.
pub(crate) fn webhook_samples(stats: &WebhookStats) -> Vec<Sample> {
    let help = "Calls of a webhook, by the code of its response (0 if there was none) and by refusal of the request";
    let requests = stats.requests().into_iter().map(|((key, code), count)| {
        let mut labels = labels(key);
        labels.insert(0, ("code", code.to_string()));
        Sample { labels, ..counter("apiserver_admission_webhook_request_total", help, count) }
    });
    let help = "Requests refused by a webhook, by the kind of the failure and the code of the refusal";
    let rejections = stats.rejections().into_iter().map(|(rejection, count)| {
        let labels = vec![
            ("error_type", rejection.error.to_owned()),
            ("name", rejection.name),
            ("operation", rejection.operation.as_str().to_owned()),
            ("rejection_code", rejection.code.to_string()),
            ("type", rejection.kind.as_str().to_owned()),
        ];
        Sample { labels, ..gauge("apiserver_admission_webhook_rejection_count", help, count) }
    });
    let help = "Requests that went on without a webhook that failed";
    let open = stats.failures_open().into_iter().map(|((name, kind), count)| {
        let labels = vec![("name", name), ("type", kind.as_str().to_owned())];
        Sample { labels, ..gauge("apiserver_admission_webhook_fail_open_count", help, count) }
    });
    let help = "Requests that the match conditions of a webhook excluded";
    let excluded = stats.exclusions().into_iter().map(|((name, kind, operation), count)| {
        let operation = operation.as_str().to_owned();
        let labels = vec![
            ("kind", "webhook".to_owned()),
            ("name", name),
            ("operation", operation),
            ("type", kind.as_str().to_owned()),
        ];
        Sample { labels, ..counter("apiserver_admission_match_condition_exclusions_total", help, count) }
    });
    requests.chain(rejections).chain(open).chain(excluded).collect()
}

/// The decisions of pod security for pods in namespaces with a standard, and the number of exempt writes.
pub(crate) fn pod_security_samples(stats: &PodSecurityStats) -> Vec<Sample> {
    let help = "Decisions of pod security, by standard and mode";
    let decisions = stats.decisions().into_iter().map(|(decision, count)| {
        let labels = vec![
            ("decision", decision.decision.to_owned()),
            ("mode", decision.mode.to_owned()),
            ("policy_level", decision.level.to_owned()),
            ("policy_version", decision.version),
            ("request_operation", decision.operation.to_owned()),
            ("resource", decision.resource.to_owned()),
            ("subresource", decision.subresource),
        ];
        Sample { labels, ..counter("pod_security_evaluations_total", help, count) }
    });
    let help = "Writes that are exempt from pod security";
    let exemptions = stats.exemptions().into_iter().map(|((operation, resource, subresource), count)| {
        let labels = vec![
            ("request_operation", operation.to_owned()),
            ("resource", resource.to_owned()),
            ("subresource", subresource),
        ];
        Sample { labels, ..counter("pod_security_exemptions_total", help, count) }
    });
    decisions.chain(exemptions).collect()
}

/// The reloads of manifests of webhooks and policies.
pub(crate) fn manifest_samples(manifests: &ManifestSet, server_id: &str) -> Vec<Sample> {
    let server = sha256_of(server_id.as_bytes());
    let labels = |of: &Manifests, more: (&'static str, String)| {
        vec![("plugin", of.plugin().name().to_owned()), ("apiserver_id_hash", server.clone()), more]
    };
    let (mut totals, mut times, mut hashes) = (Vec::new(), Vec::new(), Vec::new());
    for of in manifests.values() {
        for reloads in of.reloads().counts().into_iter().filter(|reloads| reloads.count > 0) {
            let labels = labels(of, ("status", reloads.status.to_owned()));
            let name = "apiserver_manifest_admission_config_controller_automatic_reloads_total";
            let help = "Readings of manifests of admission that changed something or failed, by plugin and result";
            totals.push(Sample { labels: labels.clone(), ..counter(name, help, reloads.count) });
            let name = "apiserver_manifest_admission_config_controller_automatic_reload_last_timestamp_seconds";
            let help = "When manifests of admission were read last, in seconds since 1970, by plugin and result";
            times.push(Sample { labels, ..gauge(name, help, reloads.last) });
        }
        let name = "apiserver_manifest_admission_config_controller_last_config_info";
        let help = "1 for the hash of the manifests of admission in force";
        hashes.push(Sample { labels: labels(of, ("hash", of.hash())), ..gauge(name, help, 1) });
    }
    totals.extend(times);
    totals.extend(hashes);
    totals
}

fn labels(key: WebhookKey) -> Vec<(&'static str, String)> {
    vec![
        ("name", key.name),
        ("operation", key.operation.as_str().to_owned()),
        ("rejected", key.rejected.to_string()),
        ("type", key.kind.as_str().to_owned()),
    ]
}
