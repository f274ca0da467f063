//! A budget of requests a second to one source, with a burst.
//!
//! Only the gateway's own requests count. Callers' requests are limited by the source itself.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

/// The requests a second.
const A_SECOND: u32 = 400;
/// The number of requests that need not wait after a pause.
const BURST: u32 = 400;

/// A leaky bucket: each request takes a slot, and slots are `1 / A_SECOND` apart after the burst.
#[derive(Debug)]
pub(crate) struct Budget {
    /// The time at which all taken slots have passed.
    taken_to: Mutex<Instant>,
}

impl Budget {
    pub(crate) fn new() -> Self {
        Self { taken_to: Mutex::new(Instant::now()) }
    }

    /// Waits for the next free slot.
    pub(crate) async fn slot(&self) {
        let slot = Duration::from_secs(1) / A_SECOND;
        let due = {
            let mut taken_to = self.taken_to.lock();
            let now = Instant::now();
            *taken_to = (*taken_to).max(now) + slot;
            *taken_to - slot * BURST
        };
        sleep_until(due).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_passes_and_the_rest_waits() {
        let budget = Budget::new();
        let begun = Instant::now();
        for _ in 0..BURST {
            budget.slot().await;
        }
        assert_eq!(begun.elapsed(), Duration::ZERO);
        for _ in 0..A_SECOND {
            budget.slot().await;
        }
        assert!((0.9..1.1).contains(&begun.elapsed().as_secs_f64()), "{:?}", begun.elapsed());
    }
}
