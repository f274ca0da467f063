//! Counts of pod security decisions, for metrics.
//!
//! Pods of namespaces without a standard are not checked and not counted.

use std::collections::BTreeMap;

use parking_lot::Mutex;

/// The largest number of series. The limit is needed because users choose the standards and versions in labels.
const SERIES: usize = 5_000;

/// A decision, with the label values of kube-apiserver's metrics.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodSecurityDecision {
    /// `allow` or `deny`.
    pub decision: &'static str,
    /// The level that was checked.
    pub level: &'static str,
    /// The version of the level.
    pub version: String,
    /// `enforce`, `audit` or `warn`.
    pub mode: &'static str,
    /// `create` or `update`.
    pub operation: &'static str,
    /// `pod` or `controller`.
    pub resource: &'static str,
    /// The written subresource, or an empty text.
    pub subresource: String,
}

/// The operation, resource and subresource of an exempt write.
type Exemption = (&'static str, &'static str, String);

/// The counts of decisions.
#[derive(Debug, Default)]
pub struct PodSecurityStats {
    decisions: Mutex<BTreeMap<PodSecurityDecision, u64>>,
    exemptions: Mutex<BTreeMap<Exemption, u64>>,
}

impl PodSecurityStats {
    pub(super) fn decided(&self, decision: PodSecurityDecision) {
        let mut decisions = self.decisions.lock();
        if decisions.len() < SERIES || decisions.contains_key(&decision) {
            *decisions.entry(decision).or_default() += 1;
        }
    }

    pub(super) fn exempted(&self, operation: &'static str, resource: &'static str, subresource: String) {
        *self.exemptions.lock().entry((operation, resource, subresource)).or_default() += 1;
    }

    /// The decisions and their counts.
    pub fn decisions(&self) -> Vec<(PodSecurityDecision, u64)> {
        self.decisions.lock().iter().map(|(decision, count)| (decision.clone(), *count)).collect()
    }

    /// The exempt writes by operation, resource and subresource, with their counts.
    pub fn exemptions(&self) -> Vec<(Exemption, u64)> {
        self.exemptions.lock().iter().map(|(exemption, count)| (exemption.clone(), *count)).collect()
    }
}
