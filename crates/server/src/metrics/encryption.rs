//! Metrics of encryption at rest, with upstream's names.
//!
//! As upstream, labels are names of keys and providers, and hashes of key ids and of the configuration.

use std::sync::atomic::Ordering;
use std::time::SystemTime;

use keelson_encryption::{EncryptionMetrics, sha256_of};
use keelson_http::metrics::{HistogramSample, MetricKind, Sample};

/// The counters and gauges of a server.
pub(crate) fn encryption_samples(metrics: &EncryptionMetrics, server_id: &str) -> Vec<Sample> {
    let server = sha256_of(server_id.as_bytes());
    let mut samples = Vec::new();
    let mut add = |name, help, kind, labels: Vec<(&'static str, String)>, value| {
        samples.push(Sample { name, help, kind, labels, value });
    };
    for ((resource, used, prefix, status), count) in metrics.operations.all() {
        add(
            "apiserver_storage_transformation_operations_total",
            "Values that were encrypted or decrypted, by resource, direction, provider and outcome",
            MetricKind::Counter,
            vec![
                ("resource", resource),
                ("transformation_type", used.as_str().to_owned()),
                ("transformer_prefix", prefix),
                ("status", status.to_owned()),
            ],
            count.get() as f64,
        );
    }
    let misses = metrics.cache_misses.get() as f64;
    add(
        "apiserver_storage_envelope_transformation_cache_misses_total",
        "Data keys that a key service had to decrypt",
        MetricKind::Counter,
        Vec::new(),
        misses,
    );
    add(
        "apiserver_storage_data_key_generation_failures_total",
        "Data keys that could not be made",
        MetricKind::Counter,
        Vec::new(),
        0.,
    );
    add(
        "apiserver_envelope_encryption_dek_cache_fill_percent",
        "Used part of the cache of data keys, for KMS v1",
        MetricKind::Gauge,
        Vec::new(),
        metrics.fill.load(Ordering::Relaxed) as f64 / 1e6,
    );
    samples.extend(key_samples(metrics, &server));
    samples.extend(reload_samples(metrics, &server));
    samples
}

/// The metrics of key services.
fn key_samples(metrics: &EncryptionMetrics, server: &str) -> Vec<Sample> {
    let (mut totals, mut times) = (Vec::new(), Vec::new());
    for (used, provider, key, count, last) in metrics.key_ids() {
        let labels = vec![
            ("transformation_type", used.as_str().to_owned()),
            ("provider_name", provider),
            ("key_id_hash", key),
            ("apiserver_id_hash", server.to_owned()),
        ];
        totals.push(Sample {
            name: "apiserver_envelope_encryption_key_id_hash_total",
            help: "Uses of a key of a key service, by direction",
            kind: MetricKind::Counter,
            labels: labels.clone(),
            value: count as f64,
        });
        times.push(Sample {
            name: "apiserver_envelope_encryption_key_id_hash_last_timestamp_seconds",
            help: "Time of the last use of a key of a key service, in seconds since 1970",
            kind: MetricKind::Gauge,
            labels,
            value: seconds(last),
        });
    }
    totals.extend(times);
    totals.extend(metrics.status_ids().into_iter().map(|(provider, key, last)| Sample {
        name: "apiserver_envelope_encryption_key_id_hash_status_last_timestamp_seconds",
        help: "Time at which a key service last stated a key ID, in seconds since 1970",
        kind: MetricKind::Gauge,
        labels: vec![("provider_name", provider), ("key_id_hash", key), ("apiserver_id_hash", server.to_owned())],
        value: seconds(last),
    }));
    totals.extend(metrics.invalid_key_ids.all().into_iter().map(|((provider, error), count)| Sample {
        name: "apiserver_envelope_encryption_invalid_key_id_from_status_total",
        help: "Key IDs of a key service that break a rule, by the rule",
        kind: MetricKind::Counter,
        labels: vec![("provider_name", provider), ("error", error.to_owned())],
        value: count.get() as f64,
    }));
    totals.extend(metrics.data_keys.all().into_iter().map(|(provider, size)| Sample {
        name: "apiserver_envelope_encryption_dek_source_cache_size",
        help: "Data keys in memory: about the calls that a start makes to decrypt them",
        kind: MetricKind::Gauge,
        labels: vec![("provider_name", provider)],
        value: size.load(Ordering::Relaxed) as f64,
    }));
    totals
}

/// The metrics of the configuration file.
fn reload_samples(metrics: &EncryptionMetrics, server: &str) -> Vec<Sample> {
    let labels = |status: &str| vec![("status", status.to_owned()), ("apiserver_id_hash", server.to_owned())];
    let (mut totals, mut times) = (Vec::new(), Vec::new());
    for (status, count, last) in metrics.reloads() {
        totals.push(Sample {
            name: "apiserver_encryption_config_controller_automatic_reloads_total",
            help: "Reloads of the encryption configuration, by outcome",
            kind: MetricKind::Counter,
            labels: labels(status),
            value: count as f64,
        });
        times.push(Sample {
            name: "apiserver_encryption_config_controller_automatic_reload_last_timestamp_seconds",
            help: "Time of the last reload of the encryption configuration, in seconds since 1970",
            kind: MetricKind::Gauge,
            labels: labels(status),
            value: seconds(last),
        });
    }
    totals.extend(times);
    totals.extend(metrics.hash().map(|hash| Sample {
        name: "apiserver_encryption_config_controller_last_config_info",
        help: "Hash of the encryption configuration that is used",
        kind: MetricKind::Gauge,
        labels: vec![("apiserver_id_hash", server.to_owned()), ("hash", hash)],
        value: 1.,
    }));
    totals
}

/// The durations of encryption and decryption.
pub(crate) fn encryption_times(metrics: &EncryptionMetrics) -> Vec<HistogramSample> {
    let mut samples = Vec::new();
    for ((used, prefix), times) in metrics.durations.all() {
        let sample = HistogramSample::sum(
            &[&times],
            "apiserver_storage_transformation_duration_seconds",
            "Duration of the encryption or decryption of a value, in seconds",
        );
        let labels = vec![("transformation_type", used.as_str().to_owned()), ("transformer_prefix", prefix)];
        samples.extend(sample.map(|sample| sample.with(labels)));
    }
    samples.extend(HistogramSample::sum(
        &[&metrics.key_generation],
        "apiserver_storage_data_key_generation_duration_seconds",
        "Duration of the generation of a data key, in seconds",
    ));
    for ((provider, method, code), times) in metrics.calls.all() {
        let sample = HistogramSample::sum(
            &[&times],
            "apiserver_envelope_encryption_kms_operations_latency_seconds",
            "Duration of calls to key services, in seconds",
        );
        let labels = vec![
            ("provider_name", provider),
            ("method_name", method.to_owned()),
            ("grpc_status_code", code.to_owned()),
        ];
        samples.extend(sample.map(|sample| sample.with(labels)));
    }
    samples
}

fn seconds(time: SystemTime) -> f64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0., |since| since.as_secs_f64())
}
