//! Waits between the attempts of a failed call, as in upstream's webhook clients.
//!
//! A call has at most five attempts. Each wait is 1.5 times the previous one, plus up to 20 % at random, so that many
//! failed callers do not retry together. The caller decides whether another attempt may help.

use std::sync::Arc;
use std::time::Duration;

use keelson_meta::Random;

/// The most attempts of a call.
const TRIES: u32 = 5;
/// The factor from one wait to the next.
const LONGER: f64 = 1.5;
/// The largest random addition, as a part of the wait.
const CHANCE: f64 = 0.2;

/// The waits of one call.
pub struct RetryWaits {
    wait: Duration,
    left: u32,
    random: Arc<dyn Random>,
}

impl RetryWaits {
    /// Creates the waits after a failed first attempt. The first wait is about as long as `first`.
    pub fn new(first: Duration, random: Arc<dyn Random>) -> Self {
        Self { wait: first, left: TRIES - 1, random }
    }
}

impl Iterator for RetryWaits {
    type Item = Duration;

    /// The wait before the next attempt; `None` after the last.
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

    /// A random source that always returns the same number.
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
