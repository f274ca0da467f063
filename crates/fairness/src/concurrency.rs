//! Concurrency limits: the seats of each level by its shares, and the seats that levels lend to each other.
//!
//! A level has nominal seats by its shares. It may lend a part of them, and borrow up to a limit. In every period,
//! seats are divided in proportion to the demand of the levels, within the limits of each (KEP-1040, "Dispatching").

use crate::config::{LevelKind, PriorityLevel};

/// The weight of the earlier smoothed demand in the next value.
const SMOOTHING: f64 = 0.977;
/// The number of steps of the search for the fair fraction.
const STEPS: u32 = 64;

/// The seats of a level by its spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LevelSeats {
    /// The seats by its shares.
    pub nominal: usize,
    /// The nominal seats without those that other levels may borrow.
    pub lower: usize,
    /// The nominal seats with those that it may borrow.
    pub upper: usize,
}

/// The past demand of a level.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LevelDemand {
    /// The highest demand of the last period.
    pub high: f64,
    /// The smoothed demand.
    pub smoothed: f64,
}

impl LevelDemand {
    /// Adds a period. The smoothed demand rises at once and falls slowly.
    pub fn add(&mut self, average: f64, deviation: f64, high: f64) {
        let envelope = average + deviation;
        self.high = high;
        self.smoothed = envelope.max(SMOOTHING * self.smoothed + (1.0 - SMOOTHING) * envelope);
    }
}

/// Divides the seats of a server among levels by their shares, each rounded up.
pub fn nominal_seats(server: usize, levels: &[PriorityLevel]) -> Vec<LevelSeats> {
    let sum: f64 = levels.iter().map(|level| f64::from(level.shares)).sum();
    let of = |level: &PriorityLevel| {
        let nominal = if sum > 0.0 { (server as f64 * f64::from(level.shares) / sum).ceil() } else { 0.0 };
        let part = |percent: u32| (nominal * f64::from(percent) / 100.0).round();
        let upper = level.borrowing_percent.map_or(nominal + server as f64, |percent| nominal + part(percent));
        LevelSeats {
            nominal: nominal as usize,
            lower: (nominal - part(level.lendable_percent)).max(0.0) as usize,
            upper: upper as usize,
        }
    };
    levels.iter().map(of).collect()
}

/// Returns the seats of each level for the next period, and the fair fraction of its demand.
///
/// A level gets at least its lower limit and at most its upper limit. Up to the nominal number, it keeps the seats that
/// it used.
pub fn allocate(levels: &[(LevelKind, LevelSeats, LevelDemand)]) -> (Vec<usize>, f64) {
    let all: usize = levels.iter().map(|(_, seats, _)| seats.nominal).sum();
    let exempt = |(kind, ..): &&(LevelKind, LevelSeats, LevelDemand)| *kind == LevelKind::Exempt;
    let of_exempt = |(_, seats, demand): &(_, LevelSeats, LevelDemand)| seats.lower.max(demand.high.ceil() as usize);
    let left = all.saturating_sub(levels.iter().filter(exempt).map(of_exempt).sum());
    let limited = || levels.iter().filter(|level| !exempt(level));
    let least: usize = limited().map(|(_, seats, _)| seats.lower).sum();
    let wanted: usize = limited().map(|(_, seats, demand)| used(seats, demand)).sum();
    let fraction = if left > wanted { fair_fraction(left, limited().map(bounds)) } else { 0.0 };
    let of = |level: &(LevelKind, LevelSeats, LevelDemand)| {
        let (kind, seats, demand) = level;
        let least_used = used(seats, demand);
        if *kind == LevelKind::Exempt {
            of_exempt(level)
        } else if left <= least {
            seats.lower
        } else if left <= wanted {
            let part = (left - least) as f64 / (wanted - least) as f64;
            seats.lower + ((least_used - seats.lower) as f64 * part).round() as usize
        } else {
            bounds(level).seats(fraction).round() as usize
        }
    };
    (levels.iter().map(of).collect(), fraction)
}

/// The target of a level, and the limits of its seats.
#[derive(Clone, Copy)]
struct Bounds {
    target: f64,
    lower: f64,
    upper: f64,
}

impl Bounds {
    fn seats(self, fraction: f64) -> f64 {
        (self.target * fraction).clamp(self.lower, self.upper.max(self.lower))
    }
}

/// The seats that a level used, between its lower limit and its nominal number.
fn used(seats: &LevelSeats, demand: &LevelDemand) -> usize {
    seats.lower.max(seats.nominal.min(demand.high.ceil() as usize))
}

fn bounds((_, seats, demand): &(LevelKind, LevelSeats, LevelDemand)) -> Bounds {
    let lower = used(seats, demand) as f64;
    Bounds { target: demand.smoothed.max(lower).max(0.001), lower, upper: seats.upper as f64 }
}

/// The fraction of their targets at which the levels together have `left` seats, as close as possible.
fn fair_fraction(left: usize, levels: impl Iterator<Item = Bounds>) -> f64 {
    let levels: Vec<_> = levels.collect();
    let sum = |fraction: f64| levels.iter().map(|level| level.seats(fraction)).sum::<f64>();
    let (mut low, mut high) = (0.0, 1.0);
    while sum(high) < left as f64 && high < 1e9 {
        low = high;
        high *= 2.0;
    }
    for _ in 0..STEPS {
        let middle = (low + high) / 2.0;
        if sum(middle) < left as f64 { low = middle } else { high = middle }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::defaults;
    use proptest::prelude::*;

    #[test]
    fn levels_have_the_seats_of_the_reference_server() {
        let levels = defaults::priority_levels();
        let seats = nominal_seats(600, &levels);
        let found: Vec<_> =
            levels.iter().zip(&seats).map(|(level, seats)| (level.name.as_str(), seats.nominal)).collect();
        let expect = [
            ("catch-all", 13),
            ("exempt", 0),
            ("global-default", 49),
            ("leader-election", 25),
            ("node-high", 98),
            ("system", 74),
            ("workload-high", 98),
            ("workload-low", 245),
        ];
        for (name, nominal) in expect {
            assert!(found.contains(&(name, nominal)), "{name}: {found:?}");
        }
    }

    #[test]
    fn an_idle_level_lends_and_a_busy_one_borrows() {
        let levels = defaults::priority_levels();
        let seats = nominal_seats(600, &levels);
        let demands = levels.iter().zip(&seats).map(|(level, seats)| {
            let demand = if level.name == "global-default" { 400.0 } else { 0.0 };
            (level.kind, *seats, LevelDemand { high: demand, smoothed: demand })
        });
        let (allocated, _) = allocate(&demands.collect::<Vec<_>>());
        let of = |name: &str| allocated[levels.iter().position(|level| level.name == name).unwrap()];
        assert!(of("global-default") > 300, "{allocated:?}");
        assert_eq!(of("workload-low"), 24, "245 without the 221 that it may lend");
        assert_eq!(of("leader-election"), 25, "it lends none");
    }

    fn level() -> impl Strategy<Value = (LevelKind, LevelSeats, LevelDemand)> {
        let kind = prop_oneof![1 => Just(LevelKind::Exempt), 5 => Just(LevelKind::Reject)];
        (kind, 0_usize..200, 0_usize..200, 0_usize..900, 0_u32..400, 0_u32..400).prop_map(
            |(kind, nominal, lent, borrowed, high, smoothed)| {
                let seats = LevelSeats { nominal, lower: nominal.saturating_sub(lent), upper: nominal + borrowed };
                (kind, seats, LevelDemand { high: f64::from(high), smoothed: f64::from(smoothed) })
            },
        )
    }

    proptest! {
        #[test]
        fn levels_stay_within_their_limits_and_together_within_the_servers(levels in prop::collection::vec(level(), 1..12)) {
            let (allocated, _) = allocate(&levels);
            let all: usize = levels.iter().map(|(_, seats, _)| seats.nominal).sum();
            let mut together = 0;
            let mut lowest = 0;
            for ((kind, seats, _), allocated) in levels.iter().zip(&allocated) {
                if *kind != LevelKind::Exempt {
                    prop_assert!(*allocated >= seats.lower && *allocated <= seats.upper.max(seats.lower));
                    together += allocated;
                    lowest += seats.lower;
                }
            }
            // Each number is rounded.
            prop_assert!(together <= all.max(lowest) + levels.len());
        }
    }
}
