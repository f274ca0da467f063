//! The metrics of flow control, with upstream's names: seats and requests of each level, and the times that requests
//! wait for seats and hold them.
//!
//! A flow schema without requests has no samples.

use http::Method;

use super::FlowControl;
use super::level::State;
use super::numbers::{FlowNumbers, Rejection};
use crate::metrics::{HistogramSample, MetricKind, Sample};

/// A family of gauges by level: its name, its help, and its value.
type LevelFamily = (&'static str, &'static str, fn(&State) -> f64);
/// A family by flow schema: its name, help text, metric kind, and value.
type FlowFamily = (&'static str, &'static str, MetricKind, fn(&FlowNumbers) -> u64);

/// The current seats of a level. For a level without a limit, the seats in use.
fn current(state: &State) -> f64 {
    state.queues.limits().seats.unwrap_or_else(|| state.queues.totals().seats_in_use) as f64
}

const OF_LEVELS: [LevelFamily; 12] = [
    ("apiserver_flowcontrol_nominal_limit_seats", "Seats of the level by its share", |state| {
        state.seats.nominal as f64
    }),
    (
        "apiserver_flowcontrol_current_limit_seats",
        "Seats of the level with those borrowed and without those lent",
        current,
    ),
    ("apiserver_flowcontrol_lower_limit_seats", "Seats of the level that it never lends", |state| {
        state.seats.lower as f64
    }),
    ("apiserver_flowcontrol_upper_limit_seats", "Seats of the level with all that it may borrow", |state| {
        state.seats.upper as f64
    }),
    (
        "apiserver_flowcontrol_demand_seats_high_watermark",
        "Highest number of seats in use or waited for in the last period",
        |state| state.period.high,
    ),
    (
        "apiserver_flowcontrol_demand_seats_average",
        "Average number of seats in use or waited for in the last period",
        |state| state.period.average,
    ),
    (
        "apiserver_flowcontrol_demand_seats_stdev",
        "Standard deviation of the seats in use or waited for in the last period",
        |state| state.period.deviation,
    ),
    ("apiserver_flowcontrol_demand_seats_smoothed", "Smoothed number of seats in use or waited for", |state| {
        state.demand.smoothed
    }),
    ("apiserver_flowcontrol_target_seats", "Seats that the level should have by its demand", |state| {
        state.demand.smoothed.max(state.demand.high.min(state.seats.nominal as f64)).max(state.seats.lower as f64)
    }),
    ("apiserver_flowcontrol_current_r", "Virtual time of the level, in seconds of seats for each queue", |state| {
        state.queues.progress()
    }),
    ("apiserver_flowcontrol_dispatch_r", "Virtual time of the level at its last dispatch", |state| {
        state.queues.last_dispatch().0
    }),
    ("apiserver_flowcontrol_latest_s", "Virtual start of the request that was dispatched last", |state| {
        state.queues.last_dispatch().1
    }),
];

const OF_FLOWS: [FlowFamily; 6] = [
    (
        "apiserver_flowcontrol_dispatched_requests_total",
        "Requests that were given seats",
        MetricKind::Counter,
        |numbers| numbers.dispatched,
    ),
    ("apiserver_flowcontrol_current_inqueue_requests", "Requests that wait for a seat", MetricKind::Gauge, |numbers| {
        numbers.waiting
    }),
    ("apiserver_flowcontrol_current_inqueue_seats", "Seats that requests wait for", MetricKind::Gauge, |numbers| {
        numbers.waiting_seats
    }),
    ("apiserver_flowcontrol_current_executing_requests", "Requests that have seats", MetricKind::Gauge, |numbers| {
        numbers.executing
    }),
    ("apiserver_flowcontrol_current_executing_seats", "Seats that are taken", MetricKind::Gauge, |numbers| {
        numbers.executing_seats
    }),
    (
        "apiserver_flowcontrol_request_dispatch_no_accommodation_total",
        "Attempts to dispatch a request that needs more seats than are free",
        MetricKind::Counter,
        |numbers| numbers.blocked,
    ),
];

/// The metrics of the flow schemas that had requests, by level and flow schema.
fn flows(control: &FlowControl) -> Vec<(String, String, FlowNumbers)> {
    let mut flows = Vec::new();
    for level in control.levels() {
        let state = level.lock();
        let numbers = state.flows().map(|(flow, numbers)| (level.name.clone(), flow.to_owned(), numbers.clone()));
        flows.extend(numbers);
    }
    flows
}

fn labels(level: &str, flow: &str) -> Vec<(&'static str, String)> {
    vec![("priority_level", level.to_owned()), ("flow_schema", flow.to_owned())]
}

/// The seats and requests of each level.
pub(in crate::filters) fn samples(control: &FlowControl) -> Vec<Sample> {
    let levels = control.levels();
    let flows = flows(control);
    let mut samples = Vec::new();
    for (name, help, value) in OF_LEVELS {
        samples.extend(levels.iter().map(|level| {
            let labels = vec![("priority_level", level.name.clone())];
            Sample { name, help, kind: MetricKind::Gauge, labels, value: value(&level.lock()) }
        }));
    }
    for (name, help, kind, value) in OF_FLOWS {
        samples.extend(flows.iter().map(|(level, flow, numbers)| Sample {
            name,
            help,
            kind,
            labels: labels(level, flow),
            value: value(numbers) as f64,
        }));
    }
    for (level, flow, numbers) in &flows {
        for (why, reason) in Rejection::ALL {
            let mut labels = labels(level, flow);
            labels.push(("reason", reason.to_owned()));
            let (name, help) = ("apiserver_flowcontrol_rejected_requests_total", "Requests that found no seat");
            let value = numbers.rejected(why) as f64;
            samples.push(Sample { name, help, kind: MetricKind::Counter, labels, value });
        }
    }
    samples.push(Sample {
        name: "apiserver_flowcontrol_seat_fair_frac",
        help: "Part of its target that each level could have at the last adjustment",
        kind: MetricKind::Gauge,
        labels: Vec::new(),
        value: control.fair_fraction(),
    });
    samples.extend(waiting(control));
    samples.extend(levels.iter().flat_map(|level| bounds(&level.name, &level.lock())));
    samples
}

/// The bounds of the virtual starts of the requests that wait in a level.
fn bounds(level: &str, state: &State) -> Vec<Sample> {
    let families = [
        ("apiserver_flowcontrol_next_s_bounds", "Least and most virtual start of waiting requests, over queues", false),
        (
            "apiserver_flowcontrol_next_discounted_s_bounds",
            "Least and most virtual start of waiting requests, over queues, less the work in progress",
            true,
        ),
    ];
    let of = |(name, help, discounted)| {
        let (least, most) = state.queues.start_bounds(discounted)?;
        Some([("min", least), ("max", most)].map(|(bound, value)| {
            let labels = vec![("priority_level", level.to_owned()), ("bound", bound.to_owned())];
            Sample { name, help, kind: MetricKind::Gauge, labels, value }
        }))
    };
    families.into_iter().filter_map(of).flatten().collect()
}

/// The number of waiting requests, read-only and mutating.
fn waiting(control: &FlowControl) -> [Sample; 2] {
    let (mut reads, mut writes) = (0_u64, 0_u64);
    for level in control.levels() {
        for (_, _, _, waiting) in level.lock().queues.waiting() {
            let is_read = [Method::GET, Method::HEAD, Method::OPTIONS].contains(&waiting.asked.about.method);
            *(if is_read { &mut reads } else { &mut writes }) += 1;
        }
    }
    [("mutating", writes), ("readOnly", reads)].map(|(kind, count)| Sample {
        name: "apiserver_current_inqueue_requests",
        help: "Requests that wait for a seat, in all levels",
        kind: MetricKind::Gauge,
        labels: vec![("request_kind", kind.to_owned())],
        value: count as f64,
    })
}

/// The times for which requests wait for their seats and hold them.
pub(in crate::filters) fn histograms(control: &FlowControl) -> Vec<HistogramSample> {
    let flows = flows(control);
    let sample =
        |name, help, labels, (sum, count, buckets)| HistogramSample { name, help, labels, sum, count, buckets };
    macro_rules! family {
        ($name:expr, $help:expr, $label:expr, $($value:expr => $field:ident),+) => {
            flows.iter().flat_map(|(level, flow, numbers)| {
                [$(($value, (numbers.$field.sum, numbers.$field.count, numbers.$field.buckets()))),+].map(|(value, histogram)| {
                    let mut labels = labels(level, flow);
                    if !$label.is_empty() {
                        labels.push(($label, value.to_owned()));
                    }
                    sample($name, $help, labels, histogram)
                })
            })
        };
    }
    let waits = family!(
        "apiserver_flowcontrol_request_wait_duration_seconds",
        "Time that requests waited for seats, in seconds, by success",
        "execute", "true" => waits, "false" => vain_waits
    );
    let executions = family!(
        "apiserver_flowcontrol_request_execution_seconds",
        "Time that requests held their seats, in seconds",
        "type", "regular" => executions, "watch" => watches
    );
    let costs = family!(
        "apiserver_flowcontrol_work_estimated_seats", "Seats that requests were given", "", "" => costs
    );
    let lengths = family!(
        "apiserver_flowcontrol_request_queue_length_after_enqueue",
        "Requests in the queue once a request has joined it",
        "", "" => queue_lengths
    );
    let all = waits.chain(executions).chain(costs).chain(lengths);
    let all = all.filter(|histogram| histogram.count > 0);
    all.chain(control.levels().iter().flat_map(|level| utilization(&level.name, &level.lock()))).collect()
}

/// The use of a level over time. One observation is one nanosecond.
fn utilization(level: &str, state: &State) -> [HistogramSample; 3] {
    let used = state.utilization;
    let sample = |name, help, phase: &str, (sum, count, buckets)| {
        let labels = vec![("priority_level", level.to_owned()), ("phase", phase.to_owned())];
        HistogramSample { name, help, labels, sum, count, buckets }
    };
    let seats = "Part of the seats of a level that is in use, observed each nanosecond";
    let requests = "Requests as a part of the seats of a level, or of its places in queues, observed each nanosecond";
    let (name, more) = (
        "apiserver_flowcontrol_priority_level_seat_utilization",
        "apiserver_flowcontrol_priority_level_request_utilization",
    );
    [
        sample(name, seats, "executing", (used.seats.sum, used.seats.count, used.seats.buckets())),
        sample(more, requests, "executing", (used.executing.sum, used.executing.count, used.executing.buckets())),
        sample(more, requests, "waiting", (used.waiting.sum, used.waiting.count, used.waiting.buckets())),
    ]
}
