//! Counts and durations of calls, for metrics.
//!
//! The names of the metrics are defined elsewhere. The counts of a definition are dropped when the definition is
//! removed.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use crate::host_meter::{CertificateFaults, HostMeter};

/// Upper bounds of the buckets for conversions of one definition, in seconds: from 1 ms, each twice the one before.
pub const LATENCY_BUCKETS: [f64; 15] =
    [0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384];
/// Upper bounds of the buckets for all conversions, in seconds.
const REQUEST_BUCKETS: [f64; 15] = [0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1., 2., 5., 10., 20., 30., 45., 60.];

/// The labels of a conversion by a webhook.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConversionKey {
    /// The source version.
    pub from: String,
    /// The target version.
    pub to: String,
    /// True if there was a valid response.
    pub succeeded: bool,
}

/// The reason of a failed conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureKind {
    Call,
    MalformedResponse,
}

/// A histogram of durations.
#[derive(Clone, Debug)]
pub struct Durations {
    /// The number in each bucket (not cumulative).
    pub counts: [u64; 15],
    /// The total number.
    pub count: u64,
    /// The sum in seconds.
    pub sum: f64,
    /// The upper bounds of the buckets, in seconds.
    pub ends: &'static [f64; 15],
}

impl Durations {
    fn new(ends: &'static [f64; 15]) -> Self {
        Self { counts: [0; 15], count: 0, sum: 0., ends }
    }

    fn note(&mut self, took: Duration) {
        let took = took.as_secs_f64();
        if let Some(bucket) = self.ends.iter().position(|end| took <= *end) {
            self.counts[bucket] += 1;
        }
        self.count += 1;
        self.sum += took;
    }
}

/// The counts of one definition, while it is served.
#[derive(Debug, Default)]
pub(crate) struct DefinitionStats(Mutex<BTreeMap<ConversionKey, Durations>>);

impl DefinitionStats {
    pub(crate) fn note(&self, key: ConversionKey, took: Duration) {
        self.0.lock().entry(key).or_insert_with(|| Durations::new(&LATENCY_BUCKETS)).note(took);
    }
}

/// All counts.
#[derive(Debug, Default)]
pub struct OutboundStats {
    /// By the name of the definition.
    definitions: Mutex<HashMap<String, Weak<DefinitionStats>>>,
    /// Durations of conversions by result and kind of failure.
    conversions: Mutex<BTreeMap<(&'static str, &'static str), Durations>>,
    /// By host and port.
    hosts: Mutex<HashMap<String, Weak<HostMeter>>>,
    webhook_certificates: Arc<CertificateFaults>,
    aggregated_certificates: Arc<CertificateFaults>,
}

impl OutboundStats {
    pub(crate) fn of_definition(&self, name: &str) -> Arc<DefinitionStats> {
        let mut definitions = self.definitions.lock();
        if let Some(known) = definitions.get(name).and_then(Weak::upgrade) {
            return known;
        }
        let stats = Arc::default();
        definitions.insert(name.to_owned(), Arc::downgrade(&stats));
        stats
    }

    /// The meter of a host, which lives while a caller holds it.
    pub(crate) fn of_host(&self, name: &str) -> Arc<HostMeter> {
        let mut hosts = self.hosts.lock();
        if let Some(known) = hosts.get(name).and_then(Weak::upgrade) {
            return known;
        }
        let meter = Arc::default();
        hosts.insert(name.to_owned(), Arc::downgrade(&meter));
        meter
    }

    /// The meters of all current hosts, sorted by name.
    pub fn hosts(&self) -> Vec<(String, Arc<HostMeter>)> {
        let mut hosts = self.hosts.lock();
        hosts.retain(|_, meter| meter.strong_count() > 0);
        let mut all: Vec<_> = hosts.iter().filter_map(|(name, meter)| Some((name.clone(), meter.upgrade()?))).collect();
        all.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        all
    }

    /// Faults of certificates of webhooks.
    pub fn webhook_certificates(&self) -> &Arc<CertificateFaults> {
        &self.webhook_certificates
    }

    /// Faults of certificates of aggregated servers and peers.
    pub fn aggregated_certificates(&self) -> &Arc<CertificateFaults> {
        &self.aggregated_certificates
    }

    pub(crate) fn note_conversion(&self, failure: Option<FailureKind>, took: Duration) {
        let labels = match failure {
            None => ("success", ""),
            Some(FailureKind::Call) => ("failure", "conversion_webhook_call_failure"),
            Some(FailureKind::MalformedResponse) => ("failure", "conversion_webhook_malformed_response_failure"),
        };
        self.conversions.lock().entry(labels).or_insert_with(|| Durations::new(&REQUEST_BUCKETS)).note(took);
    }

    /// The durations of conversions by definition and kind, without those of removed definitions.
    pub fn by_definition(&self) -> Vec<(String, ConversionKey, Durations)> {
        let mut definitions = self.definitions.lock();
        definitions.retain(|_, stats| stats.strong_count() > 0);
        let mut found = Vec::new();
        for (name, stats) in &*definitions {
            let Some(stats) = stats.upgrade() else { continue };
            found.extend(stats.0.lock().iter().map(|(key, took)| (name.clone(), key.clone(), took.clone())));
        }
        found.sort_by(|left, right| (&left.0, &left.1).cmp(&(&right.0, &right.1)));
        found
    }

    /// The durations of conversions by result and kind of failure, as upstream names them.
    pub fn by_result(&self) -> Vec<((&'static str, &'static str), Durations)> {
        self.conversions.lock().iter().map(|(labels, took)| (*labels, took.clone())).collect()
    }
}
