//! An index over stored objects that is updated from the cache, so that decisions need not wait.
//!
//! A [`Follower`] keeps some collections in an [`Index`]. A reader sees all writes up to the cache's watermark, so a
//! write takes effect once the cache has it. Updates run in bounded steps, and readers can run between them.

use std::sync::Arc;
use std::time::Duration;

use keelson_cache::{Cache, Collection, Entry, Scope, WatchCursor};
use keelson_meta::{Object, Revision};
use parking_lot::{RwLock, RwLockWriteGuard};

/// The largest number of events in an update step. An event takes about 30 us.
const EVENTS_AT_ONCE: usize = 64;
/// The size of the objects in an update step in bytes, without the last object. This is a few milliseconds of work.
const BYTES_AT_ONCE: usize = 256 * 1024;
/// The pause between two updates. Most writes are not for these collections.
const REST: Duration = Duration::from_millis(100);
/// The longest wait for a write before the next update.
const QUIET: Duration = Duration::from_secs(60);

/// An index of some collections.
pub trait Index: Default {
    /// The kind of a collection.
    type Kind: Copy;

    /// Removes all objects of a kind.
    fn clear(&mut self, kind: Self::Kind);

    /// Adds or replaces an object.
    fn put(&mut self, kind: Self::Kind, entry: &Entry);

    /// Removes an object by its key in the cache.
    fn remove(&mut self, kind: Self::Kind, key: &str);

    /// Returns true if a change does not affect the index, so that the object need not be decoded.
    fn is_same(_kind: Self::Kind, _before: &Entry, _after: &Entry) -> bool {
        false
    }
}

/// The error that the cache has no collection for a prefix.
#[derive(Debug, thiserror::Error)]
#[error("the cache does not hold {0}")]
pub struct NotCached(String);

/// Keeps an index at the cache's watermark.
pub struct Follower<I: Index> {
    cache: Arc<Cache>,
    followed: RwLock<FollowedIndex<I>>,
}

struct FollowedIndex<I: Index> {
    collections: Vec<(I::Kind, Arc<Collection>, WatchCursor)>,
    index: I,
    /// The watermark that the index covers.
    seen: Revision,
}

impl<I: Index> Follower<I> {
    /// Follows the collections with these key prefixes. Takes about 30 us for each object.
    ///
    /// # Errors
    /// The cache has no collection for a prefix.
    pub fn new<'p>(
        cache: Arc<Cache>,
        prefixes: impl IntoIterator<Item = (I::Kind, &'p str)>,
    ) -> Result<Self, NotCached> {
        let mut index = I::default();
        let mut collections = Vec::new();
        for (kind, prefix) in prefixes {
            let collection = cache.collection(prefix).ok_or_else(|| NotCached(prefix.to_owned()))?;
            collections.push(follow(kind, collection, &mut index));
        }
        Ok(Self { cache, followed: RwLock::new(FollowedIndex { collections, index, seen: Revision::ZERO }) })
    }

    /// Updates the index continuously, so that a reader never has many events to apply. Never returns.
    pub async fn keep_up(&self) {
        loop {
            self.changed().await;
            self.current(|_| ());
            tokio::time::sleep(REST).await;
        }
    }

    /// Waits until the cache has events that the index lacks, at most a minute.
    pub async fn changed(&self) {
        let seen = self.followed.read().seen;
        // After a timeout there is nothing to apply.
        let _waited = self.cache.wait_for(seen.next(), QUIET).await;
    }

    /// Reads the index at the cache's current revision. Returns `None` if that needs more than one update step. The
    /// caller must then use [`Self::current`] on another thread.
    pub fn try_current<T>(&self, ask: impl FnOnce(&I) -> T) -> Option<T> {
        let watermark = self.cache.watermark();
        {
            let followed = self.followed.read();
            if followed.seen >= watermark {
                return Some(ask(&followed.index));
            }
        }
        let mut followed = self.followed.write();
        let is_all = followed.seen >= watermark || followed.take_up(watermark);
        is_all.then(|| ask(&RwLockWriteGuard::downgrade(followed).index))
    }

    /// Reads the index at the cache's current revision.
    ///
    /// Cost: one comparison if there are no new writes, else a check of each collection.
    pub fn current<T>(&self, ask: impl FnOnce(&I) -> T) -> T {
        let watermark = self.cache.watermark();
        {
            let followed = self.followed.read();
            if followed.seen >= watermark {
                return ask(&followed.index);
            }
        }
        let mut followed = self.followed.write();
        while !followed.take_up(watermark) {
            RwLockWriteGuard::bump(&mut followed);
        }
        ask(&RwLockWriteGuard::downgrade(followed).index)
    }
}

/// Decodes the object of an entry.
pub fn decoded(entry: &Entry) -> Object {
    entry.object().decode(entry.revision)
}

fn follow<I: Index>(
    kind: I::Kind,
    collection: Arc<Collection>,
    index: &mut I,
) -> (I::Kind, Arc<Collection>, WatchCursor) {
    loop {
        let snapshot = collection.snapshot();
        // If the history no longer reaches back to the snapshot, the next attempt takes a newer snapshot.
        if let Ok(cursor) = collection.watch(snapshot.revision, Scope::All) {
            index.clear(kind);
            for entry in snapshot.range("", None) {
                index.put(kind, entry);
            }
            return (kind, collection, cursor);
        }
    }
}

impl<I: Index> FollowedIndex<I> {
    /// Applies a batch of events. Returns true once the index has reached the watermark.
    fn take_up(&mut self, watermark: Revision) -> bool {
        let (mut is_all, mut bytes) = (true, 0);
        for (kind, collection, cursor) in &mut self.collections {
            let mut events = 0;
            loop {
                if events >= EVENTS_AT_ONCE || bytes >= BYTES_AT_ONCE {
                    is_all = false;
                    break;
                }
                match cursor.try_next(1) {
                    Ok(batch) => {
                        let Some(event) = batch.events.first() else { break };
                        events += 1;
                        let objects = event.current.iter().chain(&event.previous);
                        bytes += objects.map(|entry| entry.size()).sum::<usize>();
                        match (&event.current, &event.previous) {
                            (Some(after), Some(before)) if I::is_same(*kind, before, after) => {}
                            (Some(entry), _) => self.index.put(*kind, entry),
                            (None, Some(entry)) => self.index.remove(*kind, &entry.key),
                            (None, None) => {}
                        }
                    }
                    Err(_) => {
                        (_, _, *cursor) = follow(*kind, collection.clone(), &mut self.index);
                        break;
                    }
                }
            }
        }
        if is_all {
            self.seen = self.seen.max(watermark);
        }
        is_all
    }
}
