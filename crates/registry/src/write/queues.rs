//! Queues for writes that keep losing the race for an object. A turn is given back when its holder is dropped, so a caller
//! that goes away holds up nobody.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use keelson_storage::StoreKey;
use tokio::sync::{Mutex, MutexGuard};

/// How many queues there are. Objects that share one wait for each other, which is harmless and rare.
const QUEUES: usize = 64;

/// The queues, each for the objects whose keys lead to it.
pub(crate) struct Queues([Mutex<()>; QUEUES]);

impl Default for Queues {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Mutex::new(())))
    }
}

impl Queues {
    /// Waits for a turn at an object.
    pub(super) async fn turn(&self, key: &StoreKey) -> MutexGuard<'_, ()> {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        self.0[hasher.finish() as usize % QUEUES].lock().await
    }
}
