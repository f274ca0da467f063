//! The demand of a level for seats over a period: the seats in use, and the seats that waiting requests need.
//!
//! Each value is weighted by its duration.

use std::time::Duration;

/// The demand since the end of the last period.
#[derive(Debug)]
pub struct Demand {
    begun: Duration,
    last: Duration,
    value: f64,
    high: f64,
    sum: f64,
    squares: f64,
}

/// The demand of one period, in seats.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DemandPeriod {
    /// The time-weighted average.
    pub average: f64,
    /// The time-weighted standard deviation.
    pub deviation: f64,
    /// The highest value.
    pub high: f64,
}

impl Demand {
    /// Starts a period without demand at `now`.
    pub fn new(now: Duration) -> Self {
        Self { begun: now, last: now, value: 0.0, high: 0.0, sum: 0.0, squares: 0.0 }
    }

    /// Sets the demand from `now` on.
    pub fn set(&mut self, now: Duration, seats: f64) {
        self.pass(now);
        self.value = seats;
        self.high = self.high.max(seats);
    }

    /// Ends the period, returns its demand, and starts the next period.
    pub fn end_period(&mut self, now: Duration) -> DemandPeriod {
        self.pass(now);
        let length = now.saturating_sub(self.begun).as_secs_f64();
        let period = if length > 0.0 {
            let average = self.sum / length;
            let deviation = (self.squares / length - average * average).max(0.0).sqrt();
            DemandPeriod { average, deviation, high: self.high }
        } else {
            DemandPeriod { average: self.value, deviation: 0.0, high: self.high }
        };
        *self = Self { value: self.value, high: self.value, ..Self::new(now) };
        period
    }

    fn pass(&mut self, now: Duration) {
        let length = now.saturating_sub(self.last).as_secs_f64();
        self.sum += self.value * length;
        self.squares += self.value * self.value * length;
        self.last = self.last.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_has_its_average_deviation_and_highest_value() {
        let second = Duration::from_secs;
        let mut demand = Demand::new(second(10));
        demand.set(second(12), 4.0);
        let period = demand.end_period(second(14));
        assert_eq!(period, DemandPeriod { average: 2.0, deviation: 2.0, high: 4.0 });
        let period = demand.end_period(second(20));
        assert_eq!(period, DemandPeriod { average: 4.0, deviation: 0.0, high: 4.0 });
        assert_eq!(demand.end_period(second(20)).average, 4.0, "a period without a length");
    }
}
