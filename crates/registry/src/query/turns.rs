//! Cooperative scans: a query yields to other tasks about every millisecond.
//!
//! An object that takes long is evaluated on another thread, so that it does not block a thread that requests share.

use std::sync::Arc;
use std::time::{Duration, Instant};

use keelson_cache::Entry;
use keelson_supervision::turns;
use tokio::task::yield_now;

use super::wanted::QueryEvaluator;

/// A scan yields after it has read this many bytes of objects: about a millisecond.
pub(super) const TURN_BYTES: u64 = 256 << 10;

/// This limit as a duration.
const TURN: Duration = Duration::from_millis(1);

/// Measures the work of a scan.
pub(super) struct Turns {
    wanted: Arc<QueryEvaluator>,
    /// The work since the last yield.
    work: u64,
    /// The time of the last yield, for work that only a clock measures.
    begun: Instant,
}

impl Turns {
    pub(super) fn new(wanted: &Arc<QueryEvaluator>) -> Self {
        Self { wanted: wanted.clone(), work: 0, begun: Instant::now() }
    }

    /// Counts the evaluation of an object, and yields to other tasks when it is time.
    pub(super) async fn count(&mut self, entry: &Entry) {
        self.work += self.wanted.weight(entry);
        if self.work < TURN_BYTES {
            return;
        }
        self.work = 0;
        // A condition takes some microseconds for most objects, and may take some milliseconds.
        if self.wanted.is_slow() && self.begun.elapsed() < TURN {
            return;
        }
        yield_now().await;
        self.begun = Instant::now();
    }

    /// Evaluates the object of an entry.
    pub(super) async fn look<T: Send + 'static>(
        &mut self,
        entry: &Arc<Entry>,
        look: impl FnOnce(&QueryEvaluator, &Entry) -> T + Send + 'static,
    ) -> T {
        if self.wanted.is_heavy(entry) {
            return look_elsewhere(&self.wanted, entry, look).await;
        }
        let found = look(&self.wanted, entry);
        self.count(entry).await;
        found
    }
}

/// Evaluates the object of an entry on another thread.
pub(super) async fn look_elsewhere<T: Send + 'static>(
    wanted: &Arc<QueryEvaluator>,
    entry: &Arc<Entry>,
    look: impl FnOnce(&QueryEvaluator, &Entry) -> T + Send + 'static,
) -> T {
    let (wanted, entry) = (wanted.clone(), entry.clone());
    turns::blocking(move || look(&wanted, &entry)).await
}
