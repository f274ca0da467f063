//! Rates with something over those without it, in turn.
//!
//! Machines are shared and noisy, and one load of a few seconds differs from the next by more than what is looked for. So there are many
//! short rounds of each side, and medians are compared. Of two servers that are alike the one that was started first may write a tenth
//! slower: a side that is a server is two of them, the first and the last that were started, and the two between.

use std::time::Duration;

use anyhow::Result;

use crate::figure::{Quantity, Seen};
use crate::load::Done;

/// Pairs of rounds for each run that a row has.
const PAIRS: usize = 5;

/// Whose round it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Without what is looked at.
    Plain,
    /// With it.
    With,
}

impl Turn {
    /// Whose turn a server is for, in the order in which they are started.
    pub(super) const SERVERS: [Self; 4] = [Self::Plain, Self::With, Self::With, Self::Plain];

    /// Which of those servers has a round.
    pub(super) const fn server(self, round: usize) -> usize {
        match (self, round.is_multiple_of(2)) {
            (Self::Plain, true) => 0,
            (Self::With, true) => 1,
            (Self::With, false) => 2,
            (Self::Plain, false) => 3,
        }
    }
}

/// What the rounds of one side came to.
#[derive(Default)]
struct Side {
    rates: Vec<f64>,
    requests: usize,
    cpu: Duration,
}

/// How many rounds a side has.
pub(super) fn rounds(runs: usize) -> usize {
    PAIRS * runs
}

/// The median rate of the rounds with something over that of the rounds without it. `round` is told whose turn it is and the number of the
/// side's round, from 0 to [`rounds`].
pub(super) async fn ratio(
    runs: usize,
    mut round: impl AsyncFnMut(Turn, usize) -> Result<(Done, Seen)>,
) -> Result<(Quantity, Seen)> {
    let (mut plain, mut with) = (Side::default(), Side::default());
    let mut last = Seen::default();
    for number in 0..rounds(runs) {
        // Two rounds each with the same order, since servers take turns, too.
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
    Ok((Quantity::Ratio(rate / before), Seen { note: Some(note), cpu: Some(with.cpu), ..last }))
}

impl Side {
    fn add(&mut self, done: &Done, seen: &Seen) {
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
