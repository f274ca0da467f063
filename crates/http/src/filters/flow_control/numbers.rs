//! Histograms and counts of the requests of one flow schema, kept under the lock of their level.
//!
//! Buckets are those of kube-apiserver.

use std::time::Duration;

/// Upper ends of the buckets of times, in seconds: those of kube-apiserver.
const TIME_BUCKETS: [f64; TIME_ENDS] = [0., 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1., 2., 5., 10., 15., 30.];
const TIME_ENDS: usize = 13;
/// Upper ends of the buckets of seats, and their number: those of kube-apiserver.
const COST_BUCKETS: [f64; COST_ENDS] = [1., 2., 4., 8., 16., 32., 64., 100.];
const COST_ENDS: usize = 8;
/// Upper ends of the buckets of lengths of queues, and their number: those of kube-apiserver.
const LENGTH_BUCKETS: [f64; LENGTH_ENDS] = [0., 10., 25., 50., 100., 250., 500., 1000.];
const LENGTH_ENDS: usize = 8;

/// A histogram.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers<const N: usize> {
    ends: [f64; N],
    counts: [u64; N],
    pub(super) count: u64,
    pub(super) sum: f64,
}

impl<const N: usize> Numbers<N> {
    const fn new(ends: [f64; N]) -> Self {
        Self { ends, counts: [0; N], count: 0, sum: 0. }
    }

    pub(super) fn note(&mut self, number: f64) {
        if let Some(bucket) = self.ends.iter().position(|end| number <= *end) {
            self.counts[bucket] += 1;
        }
        self.count += 1;
        self.sum += number;
    }

    /// The upper end of each bucket, and the number of values in that bucket alone.
    pub(super) fn buckets(&self) -> Vec<(f64, u64)> {
        self.ends.into_iter().zip(self.counts).collect()
    }
}

/// The reason why a request got no seats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rejection {
    NoSeat,
    QueueFull,
    TimedOut,
    Cancelled,
}

impl Rejection {
    /// All reasons, with their names in metrics.
    pub(super) const ALL: [(Self, &'static str); 4] = [
        (Self::NoSeat, "concurrency-limit"),
        (Self::QueueFull, "queue-full"),
        (Self::TimedOut, "time-out"),
        (Self::Cancelled, "cancelled"),
    ];
}

/// The requests of one flow schema in a level.
#[derive(Clone, Debug)]
pub(super) struct FlowNumbers {
    pub(super) dispatched: u64,
    pub(super) executing: u64,
    pub(super) executing_seats: u64,
    pub(super) waiting: u64,
    pub(super) waiting_seats: u64,
    /// The attempts to dispatch a request that needs more seats than are free.
    pub(super) blocked: u64,
    rejected: [u64; Rejection::ALL.len()],
    /// The times that requests waited for seats, waited without getting any, and held seats. Watches are counted
    /// separately.
    pub(super) waits: Numbers<TIME_ENDS>,
    pub(super) vain_waits: Numbers<TIME_ENDS>,
    pub(super) executions: Numbers<TIME_ENDS>,
    pub(super) watches: Numbers<TIME_ENDS>,
    /// The seats of requests that got some, and the length of the queue at each arrival that waits.
    pub(super) costs: Numbers<COST_ENDS>,
    pub(super) queue_lengths: Numbers<LENGTH_ENDS>,
}

impl FlowNumbers {
    pub(super) const fn new() -> Self {
        Self {
            dispatched: 0,
            executing: 0,
            executing_seats: 0,
            waiting: 0,
            waiting_seats: 0,
            blocked: 0,
            rejected: [0; Rejection::ALL.len()],
            waits: Numbers::new(TIME_BUCKETS),
            vain_waits: Numbers::new(TIME_BUCKETS),
            executions: Numbers::new(TIME_BUCKETS),
            watches: Numbers::new(TIME_BUCKETS),
            costs: Numbers::new(COST_BUCKETS),
            queue_lengths: Numbers::new(LENGTH_BUCKETS),
        }
    }

    pub(super) fn is_unused(&self) -> bool {
        self.executing == 0 && self.waiting == 0
    }

    pub(super) fn reject(&mut self, why: Rejection, waited: Duration) {
        self.rejected[why as usize] += 1;
        self.vain_waits.note(waited.as_secs_f64());
    }

    pub(super) fn rejected(&self, why: Rejection) -> u64 {
        self.rejected[why as usize]
    }
}
