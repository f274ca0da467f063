//! The durations of changes of the node authorizer's graph, for the metric of kube-apiserver.
//!
//! The durations include the decoding of the object, which takes most of the time.

use std::sync::LazyLock;
use std::time::Duration;

use keelson_meta::metering::{AtomicHistogram, Buckets};

use super::graph::Source;

/// Upper ends of the buckets, in microseconds.
static BUCKETS: Buckets =
    Buckets::of_durations(&[100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 51_200, 102_400, 204_800]);
/// The changes with their labels.
const OPERATIONS: [&str; 10] = [
    "AddPod",
    "DeletePod",
    "AddPV",
    "DeletePV",
    "AddVolumeAttachment",
    "DeleteVolumeAttachment",
    "AddResourceSlice",
    "DeleteResourceSlice",
    "AddPodCertificateRequest",
    "DeletePodCertificateRequest",
];

/// The durations of all graphs of the process.
pub static GRAPH_CHANGES: LazyLock<GraphChanges> =
    LazyLock::new(|| GraphChanges(OPERATIONS.map(|_| AtomicHistogram::new(&BUCKETS))));

/// The durations of changes, by kind of change.
#[derive(Debug)]
pub struct GraphChanges([AtomicHistogram; OPERATIONS.len()]);

impl GraphChanges {
    /// Records the time of a change that adds or deletes an object.
    pub(super) fn note(&self, source: Source, deletes: bool, took: Duration) {
        let first = match source {
            Source::Pods => 0,
            Source::Volumes => 2,
            Source::Attachments => 4,
            Source::Slices => 6,
            Source::PodCertificateRequests => 8,
        };
        self.0[first + usize::from(deletes)].observe_duration(took);
    }

    /// The histograms with their labels.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, &AtomicHistogram)> {
        OPERATIONS.into_iter().zip(&self.0)
    }
}
