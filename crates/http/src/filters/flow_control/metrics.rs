//! The metrics of flow control, in upstream's names: seats and requests of each level, and the times of waiting and holding.
//!
//! Reads, writes and deletions of a level have seats of their own, which the label `request_kind` separates.

use super::FlowControl;
use super::gate::{Counts, Times};
use crate::metrics::{HistogramSample, MetricKind, Sample};

/// A family: its name, its help, how it behaves, and its value.
type Family = (&'static str, &'static str, MetricKind, fn(&Counts) -> u64);

/// Families by level, flow schema and kind of request.
const FAMILIES: [Family; 9] = [
    (
        "apiserver_flowcontrol_dispatched_requests_total",
        "Requests that were given seats",
        MetricKind::Counter,
        |counts| counts.dispatched,
    ),
    ("apiserver_flowcontrol_current_inqueue_requests", "Requests that wait for a seat", MetricKind::Gauge, |counts| {
        counts.waiting
    }),
    ("apiserver_flowcontrol_current_inqueue_seats", "Seats that requests wait for", MetricKind::Gauge, |counts| {
        counts.waiting_seats
    }),
    ("apiserver_flowcontrol_current_executing_requests", "Requests that have seats", MetricKind::Gauge, |counts| {
        counts.executing
    }),
    ("apiserver_flowcontrol_current_executing_seats", "Seats that are taken", MetricKind::Gauge, |counts| counts.taken),
    // Levels lend no seats to each other, so their limits are those that they were given.
    (LIMITS[0], "Seats that there are", MetricKind::Gauge, |counts| counts.seats),
    (LIMITS[1], "Seats that there are at this moment", MetricKind::Gauge, |counts| counts.seats),
    (LIMITS[2], "Seats that there are at the least", MetricKind::Gauge, |counts| counts.seats),
    (LIMITS[3], "Seats that there are at the most", MetricKind::Gauge, |counts| counts.seats),
];
/// The names of the families of limits, which belong to no flow schema.
const LIMITS: [&str; 4] = [
    "apiserver_flowcontrol_nominal_limit_seats",
    "apiserver_flowcontrol_current_limit_seats",
    "apiserver_flowcontrol_lower_limit_seats",
    "apiserver_flowcontrol_upper_limit_seats",
];

/// The level, the flow schema, and the kind of request of a gate.
struct Place {
    level: &'static str,
    schema: &'static str,
    kind: &'static str,
}

impl Place {
    fn labels(&self) -> Vec<(&'static str, String)> {
        let labels = [("priority_level", self.level), ("flow_schema", self.schema), ("request_kind", self.kind)];
        labels.map(|(name, value)| (name, value.to_owned())).to_vec()
    }
}

/// The gates of all levels with their counts.
fn gates(control: &FlowControl) -> Vec<(Place, Counts)> {
    let kinds = control.levels().into_iter().flat_map(|level| {
        [("readOnly", &level.reads), ("mutating", &level.writes), ("deleting", &level.deletes)]
            .map(|(kind, gate)| (Place { level: level.name, schema: level.schema, kind }, gate.counts()))
    });
    kinds.collect()
}

/// The seats and requests of each level.
pub(in crate::filters) fn samples(control: &FlowControl) -> Vec<Sample> {
    let gates = gates(control);
    let mut samples = Vec::new();
    for (name, help, kind, value) in FAMILIES {
        samples.extend(gates.iter().map(|(place, counts)| {
            let mut labels = place.labels();
            labels.retain(|(label, _)| !LIMITS.contains(&name) || *label != "flow_schema");
            Sample { name, help, kind, labels, value: value(counts) as f64 }
        }));
    }
    samples.extend(gates.iter().flat_map(|(place, counts)| {
        [("queue-full", counts.queue_full), ("time-out", counts.timed_out)].map(|(reason, count)| {
            let mut labels = place.labels();
            labels.push(("reason", reason.to_owned()));
            Sample {
                name: "apiserver_flowcontrol_rejected_requests_total",
                help: "Requests that found no seat in time",
                kind: MetricKind::Counter,
                labels,
                value: count as f64,
            }
        })
    }));
    for request_kind in ["mutating", "readOnly"] {
        let is_read = request_kind == "readOnly";
        let of_kind = gates.iter().filter(|(place, _)| (place.kind == "readOnly") == is_read);
        let waiting = of_kind.map(|(_, counts)| counts.waiting);
        samples.push(Sample {
            name: "apiserver_current_inqueue_requests",
            help: "Requests that wait for a seat, in all levels",
            kind: MetricKind::Gauge,
            labels: vec![("request_kind", request_kind.to_owned())],
            value: waiting.sum::<u64>() as f64,
        });
    }
    samples
}

/// The times for which requests wait for their seats and hold them.
pub(in crate::filters) fn histograms(control: &FlowControl) -> Vec<HistogramSample> {
    let gates = gates(control);
    let one = |name, help, mut labels: Vec<(&'static str, String)>, label: (&'static str, &str), times: &Times| {
        labels.push((label.0, label.1.to_owned()));
        HistogramSample { name, help, labels, sum: times.sum, count: times.count, buckets: times.buckets() }
    };
    let waits = gates.iter().flat_map(|(place, counts)| {
        [("true", &counts.waits), ("false", &counts.vain_waits)].map(|(execute, times)| {
            let help = "How long requests waited for seats, by whether they got some, in seconds";
            let name = "apiserver_flowcontrol_request_wait_duration_seconds";
            one(name, help, place.labels(), ("execute", execute), times)
        })
    });
    let executions = gates.iter().map(|(place, counts)| {
        let help = "How long requests held their seats, in seconds";
        let name = "apiserver_flowcontrol_request_execution_seconds";
        one(name, help, place.labels(), ("type", "regular"), &counts.executions)
    });
    let numbers = |name, help, (labels, sum, count, buckets): (_, f64, u64, Vec<(f64, u64)>)| HistogramSample {
        name,
        help,
        labels,
        sum,
        count,
        buckets,
    };
    let costs = gates.iter().map(|(place, Counts { costs, .. })| {
        let (name, help) = ("apiserver_flowcontrol_work_estimated_seats", "Seats that requests were given");
        numbers(name, help, (place.labels(), costs.sum, costs.count, costs.buckets()))
    });
    let lengths = gates.iter().map(|(place, Counts { queue_lengths, .. })| {
        let name = "apiserver_flowcontrol_request_queue_length_after_enqueue";
        let help = "Requests in the queue once a request has joined it";
        numbers(name, help, (place.labels(), queue_lengths.sum, queue_lengths.count, queue_lengths.buckets()))
    });
    waits.chain(executions).chain(costs).chain(lengths).collect()
}
