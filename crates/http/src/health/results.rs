//! Results of health checks as metrics, for `/metrics/slis`.
//!
//! Names and labels are kube-apiserver's. A check is counted when its whole endpoint is requested. The checks of single
//! tasks are not counted, since they come and go.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::metrics::{MetricKind, Sample};

/// The results of one check: the last one, and the number of each.
#[derive(Debug, Default)]
struct Counts {
    is_well: bool,
    passed: u64,
    failed: u64,
}

/// The results of all checks, by endpoint and check name. Both sets are fixed.
#[derive(Clone, Debug, Default)]
pub(crate) struct HealthResults(Arc<Mutex<BTreeMap<(String, String), Counts>>>);

impl HealthResults {
    /// Counts the results of an endpoint: check names, and true for each check that passed.
    pub(super) fn note<'n>(&self, endpoint: &str, results: impl Iterator<Item = (&'n str, bool)>) {
        let mut known = self.0.lock();
        for (name, is_well) in results {
            let counts = known.entry((name.to_owned(), endpoint.to_owned())).or_default();
            counts.is_well = is_well;
            counts.passed += u64::from(is_well);
            counts.failed += u64::from(!is_well);
        }
    }

    /// The metrics of all checks that have run.
    pub(crate) fn samples(&self) -> Vec<Sample> {
        let known = self.0.lock();
        let labels = |(name, endpoint): &(String, String)| vec![("name", name.clone()), ("type", endpoint.clone())];
        let last = known.iter().map(|(check, counts)| Sample {
            name: "kubernetes_healthcheck",
            help: "Last result of a health check (1 if it passed), by its name and endpoint",
            kind: MetricKind::Gauge,
            labels: labels(check),
            value: f64::from(u8::from(counts.is_well)),
        });
        let all = known.iter().flat_map(|(check, counts)| {
            let by_status = [("error", counts.failed), ("success", counts.passed)];
            by_status.into_iter().filter(|(_, count)| *count > 0).map(move |(status, count)| {
                let mut labels = labels(check);
                labels.insert(1, ("status", status.to_owned()));
                Sample {
                    name: "kubernetes_healthchecks_total",
                    help: "Results of health checks, by name, endpoint and result",
                    kind: MetricKind::Counter,
                    labels,
                    value: count as f64,
                }
            })
        });
        last.chain(all).collect()
    }
}
