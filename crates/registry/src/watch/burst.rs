//! Few steps after a silence, which need no rest between them, and a stream, which does.
//!
//! Whoever follows events rests between looks, so that he is not woken for each event of a stream. Of the few events that come by
//! themselves a rest would gather nothing, and end with being woken for nothing.

use std::time::Duration;

use tokio::time::Instant;

/// What is left of the steps that need no rest.
#[derive(Clone, Copy, Debug)]
pub struct Burst {
    /// How many there are after a silence, and how long that is.
    steps: u32,
    silence: Duration,
    left: u32,
    last: Instant,
}

impl Burst {
    /// So many steps after a silence so long, which it is now.
    pub fn new(steps: u32, silence: Duration) -> Self {
        Self { steps, silence, left: steps, last: Instant::now() }
    }

    /// Notes a step. Whether it needs no rest behind it.
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
