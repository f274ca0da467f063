//! Waits between the tries of a call that failed, as upstream's clients of webhooks have them.
//!
//! A call is made five times at the most. Each wait is half as long again as the one before, and up to a fifth longer by chance, so that
//! many who failed together do not come back together. Whether another try may help is for who calls.

use std::sync::Arc;
use std::time::Duration;

use keelson_meta::Random;

/// How often a call is made at the most.
const TRIES: u32 = 5;
/// How much longer each wait is.
const LONGER: f64 = 1.5;
/// How much of a wait is added to it at the most, by chance.
const CHANCE: f64 = 0.2;

/// The waits of one call.
pub struct RetryWaits {
    wait: Duration,
    left: u32,
    random: Arc<dyn Random>,
}

impl RetryWaits {
    /// The waits behind a first try, the first of which is about this long.
    pub fn new(first: Duration, random: Arc<dyn Random>) -> Self {
        Self { wait: first, left: TRIES - 1, random }
    }
}

impl Iterator for RetryWaits {
    type Item = Duration;

    /// How long to wait before the next try; `None` when there have been enough.
    fn next(&mut self) -> Option<Duration> {
        self.left = self.left.checked_sub(1)?;
        let drawn = u32::try_from(self.random.u64() >> u32::BITS).unwrap_or_default();
        let wait = self.wait.mul_f64(1.0 + CHANCE * f64::from(drawn) / f64::from(u32::MAX));
        self.wait = self.wait.mul_f64(LONGER);
        Some(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Draws the same number each time.
    struct Always(u8);

    impl Random for Always {
        fn fill(&self, bytes: &mut [u8]) {
            bytes.fill(self.0);
        }
    }

    #[test]
    fn four_waits_grow_by_half_and_by_chance() {
        for (drawn, milliseconds) in [(0, [500, 750, 1125, 1687]), (u8::MAX, [600, 900, 1350, 2025])] {
            let waits = RetryWaits::new(Duration::from_millis(500), Arc::new(Always(drawn)));
            let waits: Vec<u128> = waits.map(|wait| wait.as_millis()).collect();
            assert_eq!(waits, milliseconds);
        }
    }
}
