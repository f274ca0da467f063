//! The queues of controllers, with the metric names of Kubernetes' work queues.
//!
//! Queues with the same name are one series.

use keelson_controllers::QueueMeter;
use keelson_http::metrics::{HistogramSample, MetricKind, Sample};
use keelson_meta::metering::AtomicHistogram;

/// A family by queue: its name, help text, metric kind, and value.
type Family = (&'static str, &'static str, MetricKind, fn(&QueueMeter) -> f64);

const FAMILIES: [Family; 5] = [
    ("workqueue_depth", "Keys that wait for a worker, by queue", MetricKind::Gauge, |meter| meter.depth() as f64),
    ("workqueue_adds_total", "Keys added to the queue, by queue", MetricKind::Counter, |meter| meter.adds.get() as f64),
    ("workqueue_retries_total", "Keys added again after a failure, by queue", MetricKind::Counter, |meter| {
        meter.retries.get() as f64
    }),
    (
        "workqueue_unfinished_work_seconds",
        "Duration so far of all unfinished turns together, in seconds, by queue",
        MetricKind::Gauge,
        |meter| meter.unfinished().0.as_secs_f64(),
    ),
    (
        "workqueue_longest_running_processor_seconds",
        "Duration so far of the longest unfinished turn, in seconds, by queue",
        MetricKind::Gauge,
        |meter| meter.unfinished().1.as_secs_f64(),
    ),
];

type Histograms = (&'static str, &'static str, fn(&QueueMeter) -> &AtomicHistogram);

const HISTOGRAMS: [Histograms; 2] = [
    ("workqueue_queue_duration_seconds", "Time that keys waited for a worker, in seconds, by queue", |meter| {
        &meter.waits
    }),
    ("workqueue_work_duration_seconds", "Duration of turns, in seconds, by queue", |meter| &meter.turns),
];

/// The counts and gauges of all queues.
pub(crate) fn queue_samples() -> Vec<Sample> {
    let queues = QueueMeter::all();
    let mut samples = Vec::new();
    for (name, help, kind, value) in FAMILIES {
        samples.extend(queues.iter().map(|(queue, meter)| Sample {
            name,
            help,
            kind,
            labels: vec![("name", (*queue).to_owned())],
            value: value(meter),
        }));
    }
    samples
}

/// The durations of all queues.
pub(crate) fn queue_times() -> Vec<HistogramSample> {
    let queues = QueueMeter::all();
    let mut samples = Vec::new();
    for (name, help, histogram) in HISTOGRAMS {
        samples.extend(queues.iter().filter_map(|(queue, meter)| {
            let labels = vec![("name", (*queue).to_owned())];
            Some(HistogramSample::sum(&[histogram(meter)], name, help)?.with(labels))
        }));
    }
    samples
}
