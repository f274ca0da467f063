//! A burst: a few steps after silence, which need no pause between them.
//!
//! A follower of events pauses between steps, so that it does not wake up for each event of a stream. A pause after a
//! few single events would collect nothing.

use std::time::Duration;

use tokio::time::Instant;

/// Counts the remaining steps without a pause.
#[derive(Clone, Copy, Debug)]
pub struct Burst {
    /// The number of steps after silence, and the length of the silence.
    steps: u32,
    silence: Duration,
    left: u32,
    last: Instant,
}

impl Burst {
    /// Allows this number of steps after this long a silence. The first steps need no pause.
    pub fn new(steps: u32, silence: Duration) -> Self {
        Self { steps, silence, left: steps, last: Instant::now() }
    }

    /// Records a step. Returns true if it needs no pause.
    pub fn takes(&mut self, now: Instant) -> bool {
        if now >= self.last + self.silence {
            self.left = self.steps;
        }
        self.last = now;
        let takes = self.left > 0;
        self.left = self.left.saturating_sub(1);
        takes
    }
}
