//! Keeps the store's history as long as configured and no longer, and lets expired objects go.
//!
//! A revision may be compacted once it has been seen to be older than the window. After a restart nothing is known of
//! ages, so the window starts anew: history is kept for at least the window. It is kept for less only where the store says that it takes
//! too much room.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use keelson_meta::{Clock, Revision};
use keelson_storage::Store;
use keelson_supervision::warn_repeated;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::cache::Cache;

/// How many times in a window its end is moved on.
const STEPS_PER_WINDOW: u32 = 10;
/// The shortest time between two steps.
const SHORTEST_STEP: Duration = Duration::from_millis(100);
/// The longest time between two steps, which is also how late an expired object may go.
const LONGEST_STEP: Duration = Duration::from_secs(10);

/// When it is tried again to cut history that takes too much room.
const CUT_RETRY: Duration = Duration::from_secs(5);
/// The shortest time between two cuts of history that takes too much room.
const CUT_INTERVAL: Duration = Duration::from_millis(100);
/// The shortest time between two lines of the log that say that history was cut before its time.
const CUT_LOG_INTERVAL: Duration = Duration::from_mins(1);

/// Moves the end of history on.
pub struct Compactor {
    store: Arc<dyn Store>,
    cache: Arc<Cache>,
    clock: Arc<dyn Clock>,
    window: Duration,
    /// The newest revision at each step, oldest first.
    seen: VecDeque<(Instant, Revision)>,
    /// When it was last logged that history was cut before its time.
    cut_logged: Option<Instant>,
}

impl Compactor {
    /// Keeps history for at least `window`.
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
                warn_repeated!(""; %error, "history could not be moved on; the next step tries again");
            }
        }
    }

    /// Lets expired objects go, and history that is older than the window.
    async fn step(&mut self) -> Result<(), keelson_storage::StoreError> {
        // What goes wrong with one of the two does not keep the other: history that is never cut fills the disk.
        let expired = self.store.expire(self.clock.now()).await;
        self.cut().await?;
        expired.map(|_| ())
    }

    /// Gives up history that is younger than the window, since it takes too much room.
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
                "history is cut before its time, since it takes too much room; older watches and continue tokens get 410"
            );
        }
        if let Err(error) = self.store.compact(oldest).await {
            // The store would ask for it again at once.
            let _: Option<()> = stopping.run_until_cancelled(tokio::time::sleep(CUT_RETRY)).await;
            return Err(error);
        }
        self.cache.compacted(oldest);
        // What else is given up meanwhile is cut together.
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
