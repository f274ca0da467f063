//! Rates with a feature relative to those without, in alternating rounds.
//!
//! Machines are shared and noisy, and loads of a few seconds differ more than the measured effect. So each side has
//! many short rounds, and medians are compared. Of two equal servers the one started first may write a tenth slower. So
//! a side with its own server has two of them: the first and the last started, or the two between.

use std::time::Duration;

use anyhow::Result;

use crate::figure::{Observed, Quantity};
use crate::load::Done;

/// Pairs of rounds for each run of a row.
const PAIRS: usize = 5;

/// The side of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Without the feature.
    Plain,
    /// With the feature.
    With,
}

impl Turn {
    /// The sides of the servers, in the order of their starts.
    pub(super) const SERVERS: [Self; 4] = [Self::Plain, Self::With, Self::With, Self::Plain];

    /// The server of a round.
    pub(super) const fn server(self, round: usize) -> usize {
        match (self, round.is_multiple_of(2)) {
            (Self::Plain, true) => 0,
            (Self::With, true) => 1,
            (Self::With, false) => 2,
            (Self::Plain, false) => 3,
        }
    }
}

/// The results of one side.
#[derive(Default)]
struct Side {
    rates: Vec<f64>,
    requests: usize,
    cpu: Duration,
}

/// The number of rounds of a side.
pub(super) fn rounds(runs: usize) -> usize {
    PAIRS * runs
}

/// The median rate with the feature relative to that without. `round` receives the side and the number of its round,
/// from 0 to [`rounds`].
pub(super) async fn ratio(
    runs: usize,
    mut round: impl AsyncFnMut(Turn, usize) -> Result<(Done, Observed)>,
) -> Result<(Quantity, Observed)> {
    let (mut plain, mut with) = (Side::default(), Side::default());
    let mut last = Observed::default();
    for number in 0..rounds(runs) {
        // Two rounds each in the same order, since servers alternate too.
        let pair = if number % 4 < 2 { [Turn::Plain, Turn::With] } else { [Turn::With, Turn::Plain] };
        for turn in pair {
            let (done, seen) = round(turn, number).await?;
            match turn {
                Turn::Plain => plain.add(&done, &seen),
                Turn::With => {
                    with.add(&done, &seen);
                    last = seen;
                }
            }
        }
    }
    let mut ratios: Vec<f64> = with.rates.iter().zip(&plain.rates).map(|(with, plain)| with / plain).collect();
    ratios.sort_by(f64::total_cmp);
    let [low, high] = [ratios[ratios.len() / 4], ratios[ratios.len() * 3 / 4]];
    let (rate, before) = (with.median(), plain.median());
    let note = format!(
        "{rate:.0} /s, {:.0} us of server CPU each; without {before:.0} /s, {:.0} us; half of {} pairs from {low:.2} to {high:.2}",
        with.cpu_each(),
        plain.cpu_each(),
        ratios.len(),
    );
    Ok((Quantity::Ratio(rate / before), Observed { note: Some(note), cpu: Some(with.cpu), ..last }))
}

impl Side {
    fn add(&mut self, done: &Done, seen: &Observed) {
        self.rates.push(done.rate());
        self.requests += done.requests;
        self.cpu += seen.cpu.unwrap_or_default();
    }

    fn median(&self) -> f64 {
        let mut rates = self.rates.clone();
        rates.sort_by(f64::total_cmp);
        rates[rates.len() / 2]
    }

    /// Microseconds.
    fn cpu_each(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.requests as f64
    }
}
