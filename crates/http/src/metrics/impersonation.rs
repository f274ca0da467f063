//! Metrics of impersonation: attempts, and the authorization checks that they need, by mode and decision.
//!
//! Names, labels and buckets are kube-apiserver's. A failed attempt has no mode.

use std::time::Duration;

use keelson_meta::metering::{AtomicHistogram, Buckets};

use super::source::{HistogramSample, MetricKind, Sample};

/// From a millisecond, each bucket twice as large as the one before.
static BUCKETS: Buckets = Buckets::of_durations(&[
    1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 128_000, 256_000, 512_000, 1_024_000, 2_048_000, 4_096_000,
    8_192_000, 16_384_000,
]);
/// The modes, and none.
const MODES: [&str; 6] = ["", "legacy", "associated-node", "arbitrary-node", "serviceaccount", "user-info"];
const DECISIONS: [&str; 2] = ["allowed", "denied"];

/// Durations by mode and decision.
#[derive(Debug)]
struct Times([[AtomicHistogram; DECISIONS.len()]; MODES.len()]);

impl Default for Times {
    fn default() -> Self {
        Self(MODES.map(|_| DECISIONS.map(|_| AtomicHistogram::new(&BUCKETS))))
    }
}

impl Times {
    fn note(&self, mode: &str, is_allowed: bool, took: Duration) {
        if let Some(place) = MODES.iter().position(|known| *known == mode) {
            self.0[place][usize::from(!is_allowed)].observe_duration(took);
        }
    }

    /// The histograms that have observations, with their labels.
    fn all(&self) -> impl Iterator<Item = (Vec<(&'static str, String)>, &AtomicHistogram)> {
        MODES.into_iter().zip(&self.0).flat_map(|(mode, by_decision)| {
            let of_mode = DECISIONS.into_iter().zip(by_decision).filter(|(_, times)| times.count() > 0);
            of_mode.map(move |(decision, times)| {
                (vec![("mode", mode.to_owned()), ("decision", decision.to_owned())], times)
            })
        })
    }

    fn counts(&self, name: &'static str, help: &'static str) -> Vec<Sample> {
        let count = |(labels, times): (_, &AtomicHistogram)| {
            let (kind, value) = (MetricKind::Counter, times.count() as f64);
            Sample { name, help, kind, labels, value }
        };
        self.all().map(count).collect()
    }

    fn histograms(&self, name: &'static str, help: &'static str) -> Vec<HistogramSample> {
        let one = |(labels, times): (_, &AtomicHistogram)| {
            let sample = HistogramSample::sum(&[times], name, help)?;
            Some(HistogramSample { labels, ..sample })
        };
        self.all().filter_map(one).collect()
    }
}

/// The metrics of a server.
#[derive(Debug, Default)]
pub(crate) struct ImpersonationMetrics {
    attempts: Times,
    checks: Times,
}

impl ImpersonationMetrics {
    /// Records an attempt, with the mode that permitted it.
    pub(crate) fn note_attempt(&self, mode: Option<&str>, took: Duration) {
        self.attempts.note(mode.unwrap_or_default(), mode.is_some(), took);
    }

    /// Records an authorization check.
    pub(crate) fn note_check(&self, mode: &str, is_allowed: bool, took: Duration) {
        self.checks.note(mode, is_allowed, took);
    }

    pub(crate) fn samples(&self) -> Vec<Sample> {
        let help = "Attempts to impersonate, by mode and decision";
        let mut samples = self.attempts.counts("apiserver_impersonation_attempts_total", help);
        let help = "Checks of rights to impersonate, by mode and decision";
        samples.extend(self.checks.counts("apiserver_impersonation_authorization_attempts_total", help));
        samples
    }

    pub(crate) fn histograms(&self) -> Vec<HistogramSample> {
        let help = "Duration of attempts to impersonate, in seconds";
        let mut samples = self.attempts.histograms("apiserver_impersonation_attempts_duration_seconds", help);
        let help = "Duration of checks of the right to impersonate, in seconds";
        let name = "apiserver_impersonation_authorization_attempts_duration_seconds";
        samples.extend(self.checks.histograms(name, help));
        samples
    }
}
