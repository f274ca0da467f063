//! Compacts the store's history below the retention window, and expires objects.
//!
//! The compactor compacts a revision only after it has seen that the revision is older than the window. After a
//! restart, the ages of revisions are unknown, so the window starts again. The history is shorter than the window only
//! if the store reports that it takes too much space.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use keelson_meta::{Clock, Revision};
use keelson_storage::Store;
use keelson_supervision::warn_repeated;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::cache::Cache;

/// The number of compactions in the time of one window.
const STEPS_PER_WINDOW: u32 = 10;
/// The minimum interval between compactions.
const SHORTEST_STEP: Duration = Duration::from_millis(100);
/// The maximum interval between compactions. Expired objects wait at most this long.
const LONGEST_STEP: Duration = Duration::from_secs(10);

/// The wait before another attempt to compact history that takes too much space.
const CUT_RETRY: Duration = Duration::from_secs(5);
/// The minimum interval between such early compactions.
const CUT_INTERVAL: Duration = Duration::from_millis(100);
/// The minimum interval between log lines about early compactions.
const CUT_LOG_INTERVAL: Duration = Duration::from_mins(1);

/// Compacts the history of the store and of the cache.
pub struct Compactor {
    store: Arc<dyn Store>,
    cache: Arc<Cache>,
    clock: Arc<dyn Clock>,
    window: Duration,
    /// The newest revision at each step, oldest first.
    seen: VecDeque<(Instant, Revision)>,
    /// The time of the last log line about an early compaction.
    cut_logged: Option<Instant>,
}

impl Compactor {
    /// Creates a compactor that keeps history for at least `window`.
    pub fn new(store: Arc<dyn Store>, cache: Arc<Cache>, clock: Arc<dyn Clock>, window: Duration) -> Self {
        Self { store, cache, clock, window, seen: VecDeque::new(), cut_logged: None }
    }

    /// Runs until the server stops.
    pub async fn run(mut self, stopping: CancellationToken) {
        let step = (self.window / STEPS_PER_WINDOW).clamp(SHORTEST_STEP, LONGEST_STEP);
        let mut ticks = tokio::time::interval(step);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let done = tokio::select! {
                () = stopping.cancelled() => return,
                _ = ticks.tick() => self.step().await,
                oldest = self.store.crowded() => self.cut_early(oldest, &stopping).await,
            };
            if let Err(error) = done {
                warn_repeated!(""; %error, "compacting history failed; retrying at the next step");
            }
        }
    }

    /// Expires objects and compacts history older than the window.
    async fn step(&mut self) -> Result<(), keelson_storage::StoreError> {
        // A failure of expiry must not prevent compaction. Without compaction, history fills the disk.
        let expired = self.store.expire(self.clock.now()).await;
        self.cut().await?;
        expired.map(|_| ())
    }

    /// Compacts history younger than the window, because it takes too much space.
    async fn cut_early(
        &mut self,
        oldest: Revision,
        stopping: &CancellationToken,
    ) -> Result<(), keelson_storage::StoreError> {
        let now = Instant::now();
        if self.cut_logged.is_none_or(|when| now.duration_since(when) >= CUT_LOG_INTERVAL) {
            self.cut_logged = Some(now);
            tracing::warn!(
                %oldest,
                window = ?self.window,
                "history was compacted early because it takes too much space; older watches and continue tokens get 410"
            );
        }
        if let Err(error) = self.store.compact(oldest).await {
            // Without this wait, the store would report the excess again at once.
            let _: Option<()> = stopping.run_until_cancelled(tokio::time::sleep(CUT_RETRY)).await;
            return Err(error);
        }
        self.cache.compacted(oldest);
        // Further reports of the store during this wait are handled together.
        let _: Option<()> = stopping.run_until_cancelled(tokio::time::sleep(CUT_INTERVAL)).await;
        Ok(())
    }

    async fn cut(&mut self) -> Result<(), keelson_storage::StoreError> {
        let now = Instant::now();
        self.seen.push_back((now, self.store.current_revision().await?));
        let mut oldest = None;
        while let Some((when, revision)) = self.seen.front().copied() {
            if now.duration_since(when) < self.window {
                break;
            }
            oldest = Some(revision);
            self.seen.pop_front();
        }
        if let Some(oldest) = oldest {
            self.store.compact(oldest).await?;
            self.cache.compacted(oldest);
        }
        Ok(())
    }
}

impl std::fmt::Debug for Compactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Compactor").field("window", &self.window).finish_non_exhaustive()
    }
}
