//! Metrics of admission, under upstream's names.
//!
//! The registry counts what plugins take; a plugin that is not asked has no series.

use keelson_http::metrics::HistogramSample;
use keelson_registry::{ADMISSION_BUCKETS, AdmissionChain};

/// How long plugins took: each, and all of them together.
pub(crate) fn admission_times(admission: &AdmissionChain) -> Vec<HistogramSample> {
    let all = admission.stats().all().into_iter();
    all.map(|(key, times)| {
        let mut labels = vec![
            ("operation", key.operation.as_str().to_owned()),
            ("rejected", key.rejected.to_string()),
            ("type", key.stage.as_str().to_owned()),
        ];
        let (name, help) = if key.plugin.is_empty() {
            let help = "How long admission took, in seconds, by what the request does and whether it was refused";
            ("apiserver_admission_step_admission_duration_seconds", help)
        } else {
            labels.insert(0, ("name", key.plugin.to_owned()));
            let help =
                "How long a plugin of admission took, in seconds, by what the request does and whether it was refused";
            ("apiserver_admission_controller_admission_duration_seconds", help)
        };
        let buckets = ADMISSION_BUCKETS.into_iter().zip(times.counts).collect();
        HistogramSample { name, help, labels, sum: times.sum, count: times.count, buckets }
    })
    .collect()
}
