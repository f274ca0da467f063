//! The lists that are being sent, and the memory that they alone keep.
//!
//! A list is sent from a snapshot, which shares all that has not changed since with the live collection. What was replaced since the
//! oldest of these snapshots was taken is therefore the most that all of them together can keep from being freed. When that is more
//! than the server has for them, the oldest list is cut: only a slow client has one that old.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use keelson_supervision::warn_repeated;
use parking_lot::Mutex;

use super::sending::Sending;
use crate::metrics::Edge;

/// How often what they keep is looked at, while there are any.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How many bytes of objects were replaced so far, ever growing.
pub type ReplacedBytes = Arc<dyn Fn() -> u64 + Send + Sync>;

/// All lists that are being sent.
pub(super) struct PinnedLists {
    lists: Mutex<Lists>,
    limit: u64,
    replaced: ReplacedBytes,
    metrics: Arc<Edge>,
}

#[derive(Default)]
struct Lists {
    next: u64,
    /// By the order in which they began: how much had been replaced by then, and the answer.
    sent: BTreeMap<u64, (u64, Sending)>,
}

/// One list that is being sent.
pub(super) struct PinnedList {
    lists: Arc<PinnedLists>,
    number: u64,
}

impl PinnedLists {
    /// They may keep `limit` bytes that `replaced` has counted.
    pub(super) fn new(limit: u64, replaced: ReplacedBytes, metrics: Arc<Edge>) -> Self {
        Self { lists: Mutex::default(), limit, replaced, metrics }
    }

    /// Counts a list for as long as the result lives.
    pub(super) fn begin(self: &Arc<Self>, sending: Sending) -> PinnedList {
        let replaced = (self.replaced)();
        let mut lists = self.lists.lock();
        let number = lists.next;
        lists.next += 1;
        lists.sent.insert(number, (replaced, sending));
        PinnedList { lists: self.clone(), number }
    }

    /// Cuts the oldest lists until the others keep no more than they may.
    pub(super) fn enforce(&self) {
        let now = (self.replaced)();
        loop {
            let oldest = {
                let mut lists = self.lists.lock();
                let Some(oldest) = lists.sent.first_entry() else { return };
                if now.saturating_sub(oldest.get().0) <= self.limit {
                    return;
                }
                oldest.remove().1
            };
            warn_repeated!(""; "a list was cut: its client is slow, and its snapshot keeps memory that others need");
            self.metrics.count_cut_list();
            oldest.cut();
        }
    }
}

impl Drop for PinnedList {
    fn drop(&mut self) {
        self.lists.lists.lock().sent.remove(&self.number);
    }
}

impl fmt::Debug for PinnedLists {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinnedLists").field("limit", &self.limit).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn the_oldest_lists_give_way_when_much_was_replaced_since() {
        let replaced = Arc::new(AtomicU64::new(0));
        let counter = replaced.clone();
        let metrics = Arc::new(Edge::default());
        let count: ReplacedBytes = Arc::new(move || counter.load(Ordering::Relaxed));
        let lists = Arc::new(PinnedLists::new(100, count, metrics));
        let sent = || lists.lists.lock().sent.keys().copied().collect::<Vec<_>>();
        let first = lists.begin(Sending::current());
        replaced.store(60, Ordering::Relaxed);
        let _second = lists.begin(Sending::current());
        lists.enforce();
        assert_eq!(sent(), [0, 1]);
        replaced.store(101, Ordering::Relaxed);
        lists.enforce();
        assert_eq!(sent(), [1]);
        drop(first);
        replaced.store(161, Ordering::Relaxed);
        lists.enforce();
        assert_eq!(sent(), [0; 0]);
    }
}
