//! Backoff of failed or self-triggered work.
//!
//! Without waits, a background task would take a runtime thread from requests. Queues and loops compute their waits
//! here, from a first wait, a longest wait, and a random part.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::time::Duration;

use tokio::time::{Instant, sleep};

/// The divisor for the largest random part of a wait.
const SPREAD: u32 = 8;

/// Waits that double from the first to the longest.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    /// The wait before the second attempt.
    pub first: Duration,
    /// The longest wait, without its random part.
    pub longest: Duration,
}

impl Backoff {
    /// Returns the wait after the last failed attempt, without a random part. `attempts` is the number of failed
    /// attempts before it.
    pub fn after(self, attempts: u32) -> Duration {
        self.first.saturating_mul(2_u32.saturating_pow(attempts)).min(self.longest)
    }
}

/// The random parts of waits. They desynchronize work that failed together, and need no secret.
#[derive(Debug, Default)]
pub struct Jitter {
    seed: RandomState,
    given: u64,
}

impl Jitter {
    /// The wait plus a random part of up to an eighth.
    pub fn spread(&mut self, wait: Duration) -> Duration {
        self.given += 1;
        let part = u32::try_from(self.seed.hash_one(self.given) % 1024).unwrap_or_default();
        wait + wait / SPREAD * part / 1024
    }
}

/// Delays the turns of a loop, with growing intervals while turns end early.
///
/// ```no_run
/// # use std::time::Duration;
/// # use keelson_supervision::{Backoff, Pace};
/// # async fn follow() {}
/// # async fn run() {
/// let mut pace = Pace::new(Backoff { first: Duration::from_millis(50), longest: Duration::from_secs(5) });
/// loop {
///     pace.turn().await;
///     follow().await;
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct Pace {
    backoff: Backoff,
    jitter: Jitter,
    /// The start of the last turn, and the number of short turns before it.
    last: Option<(Instant, u32)>,
}

impl Pace {
    /// Creates the pace of a loop before its first turn.
    pub fn new(backoff: Backoff) -> Self {
        Self { backoff, jitter: Jitter::default(), last: None }
    }

    /// Waits for the next turn. The first turn starts at once, and so does one after a turn that was longer than the
    /// longest wait.
    pub async fn turn(&mut self) {
        let now = Instant::now();
        let attempts = match self.last {
            None => None,
            Some((begun, _)) if now.saturating_duration_since(begun) > self.backoff.longest => Some(0),
            Some((_, attempts)) => Some(attempts),
        };
        if let Some(attempts) = attempts {
            sleep(self.jitter.spread(self.backoff.after(attempts))).await;
        }
        self.last = Some((Instant::now(), attempts.map_or(0, |attempts| attempts.saturating_add(1))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF: Backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(4) };

    #[tokio::test(start_paused = true)]
    async fn turns_that_end_at_once_begin_at_growing_intervals() {
        let (mut pace, start) = (Pace::new(BACKOFF), Instant::now());
        for earliest in [0, 1, 3, 7, 11] {
            pace.turn().await;
            let begun = start.elapsed().as_secs_f64();
            assert!((f64::from(earliest)..=f64::from(earliest) * 1.125).contains(&begun), "{earliest} {begun}");
        }
        sleep(Duration::from_secs(5)).await;
        let ended = Instant::now();
        pace.turn().await;
        assert!(ended.elapsed() < Duration::from_secs(2), "a turn that lasted is followed soon: {:?}", ended.elapsed());
    }

    #[test]
    fn random_parts_differ_and_are_small() {
        let (mut jitter, second) = (Jitter::default(), Duration::from_secs(1));
        let waits: Vec<Duration> = (0..100).map(|_| jitter.spread(second)).collect();
        assert!(waits.iter().all(|wait| *wait >= second && *wait <= second + second / 8), "{waits:?}");
        assert!(waits.iter().any(|wait| *wait != waits[0]));
    }
}
