//! Queues for writes that keep losing the race for an object, one queue for each object. Dropping a turn releases it,
//! so a cancelled caller blocks no other.
//!
//! The owner of a turn may call plugins and converters, which take long. Writes of other objects therefore never wait
//! for it.

use std::sync::{Arc, Weak};

use hashbrown::HashMap;
use keelson_storage::StoreKey;
use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

/// The number of queues above which empty ones are removed.
const FORGET_ABOVE: usize = 64;

/// The queues of contended objects.
#[derive(Default)]
pub(crate) struct Queues(Mutex<QueueTable>);

struct QueueTable {
    queues: HashMap<StoreKey, Weak<Queue>>,
    /// The number of queues at which empty ones are removed: twice the number of queues in use at the last removal.
    most: usize,
}

type Queue = tokio::sync::Mutex<()>;

impl Default for QueueTable {
    fn default() -> Self {
        Self { queues: HashMap::new(), most: FORGET_ABOVE }
    }
}

impl Queues {
    /// Waits for a turn at an object.
    pub(super) async fn turn(&self, key: &StoreKey) -> OwnedMutexGuard<()> {
        let queue = self.0.lock().queue(key);
        queue.lock_owned().await
    }
}

impl QueueTable {
    fn queue(&mut self, key: &StoreKey) -> Arc<Queue> {
        if let Some(queue) = self.queues.get(key).and_then(Weak::upgrade) {
            return queue;
        }
        if self.queues.len() >= self.most {
            self.queues.retain(|_, queue| queue.strong_count() > 0);
            self.most = FORGET_ABOVE.max(2 * self.queues.len());
        }
        let queue = Arc::new(Queue::default());
        self.queues.insert(key.clone(), Arc::downgrade(&queue));
        queue
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn writes_of_one_object_take_turns_and_wait_for_no_other() {
        let queues = Queues::default();
        let (one, other) = (StoreKey::new("/r/a"), StoreKey::new("/r/b"));
        let held = queues.turn(&one).await;
        assert!(queues.turn(&one).now_or_never().is_none());
        assert!(queues.turn(&other).now_or_never().is_some());
        drop(held);
        assert!(queues.turn(&one).now_or_never().is_some());
    }

    #[tokio::test]
    async fn empty_queues_are_removed() {
        let queues = Queues::default();
        let held = queues.turn(&StoreKey::new("/held")).await;
        for number in 0..10 * FORGET_ABOVE {
            drop(queues.turn(&StoreKey::new(format!("/r/{number}"))).await);
        }
        assert!(queues.0.lock().queues.len() <= FORGET_ABOVE);
        assert!(queues.turn(&StoreKey::new("/held")).now_or_never().is_none());
        drop(held);
    }
}
