//! Durations of admission, for metrics: of each plugin by stage, operation and result, and of all plugins together.
//!
//! Only calls are counted, so a write that interests no plugin costs nothing here.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::Operation;

/// Upper bounds of the buckets in seconds, as in kube-apiserver.
pub const ADMISSION_BUCKETS: [f64; 6] = [0.005, 0.025, 0.1, 0.5, 1.0, 2.5];

/// The stage of admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AdmissionStage {
    /// Mutation.
    Admit,
    /// Validation.
    Validate,
}

impl AdmissionStage {
    /// The name of the stage in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Admit => "admit",
            Self::Validate => "validate",
        }
    }
}

/// The labels of a histogram of durations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PluginKey {
    /// The plugin; empty for all plugins together.
    pub plugin: &'static str,
    /// The stage.
    pub stage: AdmissionStage,
    /// The operation of the request.
    pub operation: Operation,
    /// True if the request was refused.
    pub rejected: bool,
}

/// A histogram of durations.
#[derive(Clone, Debug, Default)]
pub struct AdmissionTimes {
    /// The number of durations in each of [`ADMISSION_BUCKETS`].
    pub counts: [u64; ADMISSION_BUCKETS.len()],
    /// The number of durations.
    pub count: u64,
    /// The sum of durations, in seconds.
    pub sum: f64,
}

/// The counts.
#[derive(Debug, Default)]
pub struct AdmissionStats(Mutex<BTreeMap<PluginKey, AdmissionTimes>>);

impl AdmissionStats {
    pub(crate) fn note(&self, key: PluginKey, took: Duration) {
        let took = took.as_secs_f64();
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let times = noted.entry(key).or_default();
        if let Some(bucket) = ADMISSION_BUCKETS.iter().position(|end| took <= *end) {
            times.counts[bucket] += 1;
        }
        times.count += 1;
        times.sum += took;
    }

    /// All histograms.
    pub fn all(&self) -> Vec<(PluginKey, AdmissionTimes)> {
        let noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        noted.iter().map(|(key, times)| (*key, times.clone())).collect()
    }
}
