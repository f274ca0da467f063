//! The use of a level's seats and queues over time, as histograms whose unit is one nanosecond.
//!
//! The use changes only under the level's lock, so each lock adds the time since the last one.

use std::time::Duration;

use keelson_fairness::{Limits, Totals};

/// Upper ends of the buckets of seats: those of kube-apiserver.
const SEAT_BUCKETS: [f64; 13] = [0., 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.];
/// Upper ends of the buckets of requests: those of kube-apiserver.
const REQUEST_BUCKETS: [f64; 10] = [0., 0.001, 0.003, 0.01, 0.03, 0.1, 0.25, 0.5, 0.75, 1.];

/// A histogram of a fraction over time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fractions<const N: usize> {
    ends: [f64; N],
    nanoseconds: [u64; N],
    pub(super) count: u64,
    pub(super) sum: f64,
}

impl<const N: usize> Fractions<N> {
    const fn new(ends: [f64; N]) -> Self {
        Self { ends, nanoseconds: [0; N], count: 0, sum: 0. }
    }

    fn add(&mut self, part: usize, whole: usize, nanoseconds: u64) {
        let fraction = part as f64 / whole.max(1) as f64;
        if let Some(bucket) = self.ends.iter().position(|end| fraction <= *end) {
            self.nanoseconds[bucket] = self.nanoseconds[bucket].saturating_add(nanoseconds);
        }
        self.count = self.count.saturating_add(nanoseconds);
        self.sum += fraction * nanoseconds as f64;
    }

    /// The upper end of each bucket, and the nanoseconds in that bucket alone.
    pub(super) fn buckets(&self) -> Vec<(f64, u64)> {
        self.ends.into_iter().zip(self.nanoseconds).collect()
    }
}

/// The use of a level.
#[derive(Clone, Copy, Debug)]
pub(super) struct Utilization {
    until: Duration,
    /// Seats in use, as a fraction of the level's seats.
    pub(super) seats: Fractions<13>,
    /// Requests with seats, as a fraction of the level's seats.
    pub(super) executing: Fractions<10>,
    /// Waiting requests, as a fraction of the places in the level's queues.
    pub(super) waiting: Fractions<10>,
}

impl Utilization {
    /// No use so far.
    pub(super) const fn new(now: Duration) -> Self {
        Self {
            until: now,
            seats: Fractions::new(SEAT_BUCKETS),
            executing: Fractions::new(REQUEST_BUCKETS),
            waiting: Fractions::new(REQUEST_BUCKETS),
        }
    }

    /// The time up to which the use is added.
    pub(super) const fn until(&self) -> Duration {
        self.until
    }

    /// Adds the time up to `now`, in which nothing has changed. A level without a limit is measured by `nominal` seats.
    pub(super) fn pass(&mut self, now: Duration, totals: Totals, limits: Limits, nominal: usize) {
        let Some(passed) = now.checked_sub(self.until).filter(|passed| !passed.is_zero()) else { return };
        self.until = now;
        let passed = u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX);
        let seats = limits.seats.unwrap_or(nominal);
        self.seats.add(totals.seats_in_use, seats, passed);
        self.executing.add(totals.executing, seats, passed);
        self.waiting.add(totals.waiting, limits.queues as usize * limits.queue_length, passed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn utilization_is_weighted_by_time() {
        let mut used = Utilization::new(Duration::from_nanos(100));
        let limits = Limits { seats: Some(10), queues: 2, hand_size: 1, queue_length: 50 };
        let totals = Totals { executing: 2, seats_in_use: 5, waiting: 1, waiting_seats: 1 };
        used.pass(Duration::from_nanos(130), Totals::default(), limits, 1);
        used.pass(Duration::from_nanos(200), totals, limits, 1);
        used.pass(Duration::from_nanos(150), totals, limits, 1);
        assert_eq!((used.seats.count, used.seats.sum), (100, 35.));
        let of = |buckets: Vec<(f64, u64)>| buckets.into_iter().filter(|(_, time)| *time > 0).collect::<Vec<_>>();
        assert_eq!(of(used.seats.buckets()), [(0., 30), (0.5, 70)]);
        assert_eq!(of(used.executing.buckets()), [(0., 30), (0.25, 70)]);
        assert_eq!(of(used.waiting.buckets()), [(0., 30), (0.01, 70)]);
        // A level without a limit may use more than its nominal seats.
        used.pass(Duration::from_nanos(210), totals, Limits { seats: None, ..limits }, 1);
        assert_eq!((used.seats.count, used.seats.sum), (110, 85.));
        assert_eq!(of(used.seats.buckets()), [(0., 30), (0.5, 70)]);
    }
}
