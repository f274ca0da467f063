//! One collection: its newest state, its history, and who watches it.
//!
//! Only the server's tail writes, through [`Collection::apply`]. Readers take the newest state with one short lock.
//! ORDER: where both locks are needed, `history` is taken before `live`. Wakers are called after both are released.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;

use keelson_codec::{Checked, DecodeError, FieldPath, StoredObject};
use keelson_meta::Revision;
use keelson_storage::KeyValue;
use parking_lot::{Mutex, MutexGuard, RwLock};

use crate::entry::Entry;
use crate::event::Event;
use crate::history::{Budget, History};
use crate::labels::LabelInterner;
use crate::snapshot::{Snapshot, SnapshotError};
use crate::trees::Trees;
use crate::watch::{Dispatch, Scope, TooOld, WatchCursor};
use crate::watermark::Watermark;
use crate::written::Written;

/// About how many events are applied under one lock: readers wait for no more than these.
const APPLY_EVENTS: usize = 64;
/// How many events are dropped under one lock.
const TRIM_EVENTS: usize = 1024;

/// What is stored together under one prefix, and what of it is looked at.
#[derive(Clone, Debug)]
pub struct CollectionSpec {
    /// The prefix of all its keys in the store, ending in `/`: `/registry/pods/`. No prefix of a cache starts another.
    pub prefix: String,
    /// The fields by which objects are selected or found, beyond name and namespace.
    pub fields: Vec<FieldPath>,
    /// The place in `fields` of the field by which events are dispatched and objects are indexed, such as
    /// `spec.nodeName` of pods.
    pub dispatch: Option<usize>,
    /// Whether its keys are `<namespace>/<name>`.
    pub namespaced: bool,
    /// What an object is completed by when it is read.
    pub complete: Option<Complete>,
}

/// What an object that was stored becomes where it lacks something that all objects have today; `None` where it lacks
/// nothing. Runs for every object that is read, so the latter must be cheap.
pub type Complete = fn(&Checked) -> Option<StoredObject>;

/// One collection of the cache.
pub struct Collection {
    spec: CollectionSpec,
    live: RwLock<Live>,
    history: Mutex<History>,
    labels: LabelInterner,
    written: Arc<Written>,
    watermark: Arc<Watermark>,
    /// How often a state of the past was not at hand.
    rebuilt: AtomicU64,
}

/// The newest state.
struct Live {
    trees: Trees,
    /// The revision of the newest event, or at which the collection was loaded.
    revision: Revision,
    /// The keys whose values can't be read, and why not.
    unreadable: Unreadable,
}

/// Keys, relative to their collection, whose values are no objects, and why not.
pub(crate) type Unreadable = BTreeMap<Arc<str>, DecodeError>;

/// A change to apply. The key is relative.
pub(crate) struct Change {
    pub(crate) key: Arc<str>,
    pub(crate) revision: Revision,
    pub(crate) content: Content,
}

/// What a key holds after a change.
pub(crate) enum Content {
    Entry(Arc<Entry>),
    Gone,
    /// A value that is no object. It is not shown, since the old content would be wrong.
    Unreadable(DecodeError),
}

/// What a collection holds, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CollectionStats {
    /// How many objects.
    pub objects: usize,
    /// Their size in a list, in bytes.
    pub bytes: u64,
    /// How many events the history has.
    pub events: usize,
    /// How many watches there are.
    pub watchers: usize,
    /// How many states of old revisions are remembered for lists.
    pub remembered: usize,
}

impl Collection {
    /// An empty collection, before it is loaded.
    pub(crate) fn new(
        spec: CollectionSpec,
        watermark: Arc<Watermark>,
        budget: Arc<Budget>,
        written: Arc<Written>,
    ) -> Self {
        let trees = Trees::empty(spec.dispatch);
        let history = History::new(Revision::ZERO, trees.clone(), Dispatch::new(spec.dispatch), budget);
        Self {
            live: RwLock::new(Live { trees, revision: Revision::ZERO, unreadable: Unreadable::new() }),
            history: Mutex::new(history),
            labels: LabelInterner::default(),
            written,
            spec,
            watermark,
            rebuilt: AtomicU64::new(0),
        }
    }

    /// What the collection was declared as.
    pub const fn spec(&self) -> &CollectionSpec {
        &self.spec
    }

    /// The prefix of all its keys in the store.
    pub fn prefix(&self) -> &str {
        &self.spec.prefix
    }

    /// Reads what the store holds under one of the collection's keys, and completes it.
    ///
    /// # Errors
    /// When the value is not an object.
    pub fn decode(&self, stored: &KeyValue) -> Result<Arc<Entry>, DecodeError> {
        let key = stored.key.as_str();
        let key = key.strip_prefix(&self.spec.prefix).unwrap_or(key).into();
        let entry = match self.written.take(&stored.value) {
            Some(object) => Entry::written(key, &object, stored.revision, &self.spec, &self.labels),
            None => Entry::decode(key, &stored.value, stored.revision, &self.spec, &self.labels),
        };
        entry.map(Arc::new)
    }

    /// Says that this server is about to write an object: when it comes back from the store, in these very bytes, it is taken
    /// as it is. It must lack nothing that [`CollectionSpec::complete`] adds.
    pub fn announce(&self, object: Checked) {
        self.written.announce(object);
    }

    /// The newest state. Its revision is the watermark of the whole server, so a collection at rest is as fresh as a
    /// busy one.
    pub fn snapshot(&self) -> Snapshot {
        // ORDER: the watermark is read before the state, so that the state has everything up to it.
        let reached = self.reached();
        let live = self.live.read();
        let trees = live.trees.clone();
        Snapshot { revision: reached.max(live.revision), trees }
    }

    /// The newest state of one object.
    pub fn get(&self, key: &str) -> Option<Arc<Entry>> {
        self.live.read().trees.entries.get(key).cloned()
    }

    /// Why an object is not shown although the store has a value under its key. What can't be read is not absent: whoever
    /// acts on absence must ask.
    pub fn unreadable(&self, key: &str) -> Option<DecodeError> {
        self.live.read().unreadable.get(key).cloned()
    }

    /// How many keys that begin like this hold values that can't be read.
    pub fn count_unreadable(&self, prefix: &str) -> usize {
        let live = self.live.read();
        let from = live.unreadable.range::<str, _>((Bound::Included(prefix), Bound::Unbounded));
        from.take_while(|(key, _)| key.starts_with(prefix)).count()
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.live.read().trees.entries.len()
    }

    /// Whether there are no objects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The oldest revision that [`snapshot_at`](Self::snapshot_at) and [`watch`](Self::watch) accept.
    pub fn oldest(&self) -> Revision {
        self.history.lock().floor()
    }

    /// The state at a revision, rebuilt from the nearest state that is kept.
    ///
    /// Cost: at most some hundred tree writes; nothing when the state is remembered.
    ///
    /// # Errors
    /// When the history does not reach back that far, or the revision has not been seen yet.
    pub fn snapshot_at(&self, revision: Revision) -> Result<Snapshot, SnapshotError> {
        let reached = self.reached();
        let (mut trees, steps) = {
            let mut history = self.history.lock();
            let live = self.live.read();
            let current = reached.max(live.revision);
            if revision > current {
                return Err(SnapshotError::Future { current });
            }
            if revision < history.floor() {
                return Err(SnapshotError::TooOld { oldest: history.floor() });
            }
            let position = history.position_after(revision);
            history.nearest(position, &live.trees)
        };
        steps.walk(&mut trees);
        let snapshot = Snapshot { revision, trees };
        if !steps.is_empty() {
            self.rebuilt.fetch_add(1, Ordering::Relaxed);
            self.pin(&snapshot);
        }
        Ok(snapshot)
    }

    /// How many states [`snapshot_at`](Self::snapshot_at) had to rebuild.
    pub(crate) fn rebuilt(&self) -> u64 {
        self.rebuilt.load(Ordering::Relaxed)
    }

    /// Keeps the state of a snapshot at hand for a continue token that names its revision: as long as the history covers
    /// the revision and no more than a bounded number of others are used more.
    pub fn pin(&self, snapshot: &Snapshot) {
        let mut history = self.history.lock();
        if snapshot.revision >= history.floor() {
            let position = history.position_after(snapshot.revision);
            history.remember(position, snapshot.trees.clone());
        }
    }

    /// Follows the events after a revision. A revision in the future is allowed: events up to it are not delivered.
    ///
    /// # Errors
    /// When the history does not reach back to the revision.
    pub fn watch(self: &Arc<Self>, after: Revision, scope: Scope) -> Result<WatchCursor, TooOld> {
        WatchCursor::new(self.clone(), after, scope)
    }

    /// What the collection holds.
    pub fn stats(&self) -> CollectionStats {
        let mut history = self.history.lock();
        let live = self.live.read();
        CollectionStats {
            objects: live.trees.entries.len(),
            bytes: live.trees.entries.weight(),
            events: history.len(),
            watchers: history.dispatch.watchers(),
            remembered: history.remembered(),
        }
    }

    /// The watermark of the whole server.
    pub(crate) fn reached(&self) -> Revision {
        self.watermark.get()
    }

    pub(crate) fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock()
    }

    /// Applies changes, which ascend by revision and are newer than everything applied before. A revision becomes
    /// visible as a whole.
    pub(crate) fn apply(&self, changes: Vec<Change>) {
        let mut changes = changes.into_iter().peekable();
        let mut woken = Vec::new();
        while changes.peek().is_some() {
            let mut history = self.history.lock();
            let mut live = self.live.write();
            let mut applied = 0;
            while let Some(change) = changes.next_if(|next| applied < APPLY_EVENTS || next.revision == live.revision) {
                applied += 1;
                live.apply(change, &mut history, &mut woken);
            }
            drop(live);
            drop(history);
            woken.drain(..).for_each(Waker::wake);
        }
    }

    /// Replaces everything by a state that was loaded at `revision`. Watches end with [`TooOld`].
    pub(crate) fn restart(&self, revision: Revision, trees: Trees, unreadable: Unreadable) {
        let mut woken = Vec::new();
        let old = {
            let mut history = self.history.lock();
            let mut live = self.live.write();
            history.restart(revision, trees.clone());
            history.dispatch.wake_all(&mut woken);
            std::mem::replace(&mut *live, Live { trees, revision, unreadable })
        };
        woken.drain(..).for_each(Waker::wake);
        drop(old);
    }

    /// Drops events up to a revision: what happened before it can't be read any more.
    pub(crate) fn trim(&self, oldest: Revision) {
        while self.history.lock().trim(oldest, TRIM_EVENTS) {}
    }
}

impl Live {
    fn apply(&mut self, change: Change, history: &mut History, woken: &mut Vec<Waker>) {
        self.revision = change.revision;
        self.unreadable.remove(&change.key);
        let current = match change.content {
            Content::Entry(entry) => Some(entry),
            Content::Gone => None,
            Content::Unreadable(error) => {
                self.unreadable.insert(change.key.clone(), error);
                None
            }
        };
        let previous = match &current {
            Some(entry) => self.trees.put(entry),
            None => self.trees.remove(&change.key),
        };
        if previous.is_none() && current.is_none() {
            return;
        }
        let event = Arc::new(Event::new(change.revision, previous, current));
        let (position, first) = (history.end(), history.first());
        history.dispatch.post(&event, position, first, woken);
        history.push(event, &self.trees);
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Wake};

    use bytes::Bytes;

    use super::*;

    /// Looks at the collection at the moment of the wake-up.
    struct Looks {
        collection: Arc<Collection>,
        seen: Mutex<Vec<(Revision, usize)>>,
    }

    impl Wake for Looks {
        fn wake(self: Arc<Self>) {
            let snapshot = self.collection.snapshot();
            self.seen.lock().push((snapshot.revision, snapshot.len()));
        }
    }

    fn put(collection: &Collection, number: usize, revision: u64) -> Change {
        let value = Bytes::from(format!(r#"{{"kind":"K","apiVersion":"v1","metadata":{{"name":"n{number}"}}}}"#));
        let revision = Revision::new(revision);
        let key = format!("n{number}").into();
        let entry = Entry::decode(key, &value, revision, &collection.spec, &collection.labels).unwrap();
        Change { key: entry.key.clone(), revision, content: Content::Entry(Arc::new(entry)) }
    }

    fn empty() -> Arc<Collection> {
        let spec = CollectionSpec {
            prefix: "/registry/k/".to_owned(),
            fields: Vec::new(),
            dispatch: None,
            namespaced: false,
            complete: None,
        };
        let watermark = Arc::new(Watermark::new(Revision::ZERO));
        Arc::new(Collection::new(spec, watermark, Arc::new(Budget::new(u64::MAX)), Arc::default()))
    }

    #[test]
    fn a_state_that_is_at_hand_is_not_counted_as_rebuilt() {
        let collection = empty();
        collection.apply((0..20).map(|number| put(&collection, number, number as u64 + 1)).collect());
        let rebuilt = |revision| {
            assert_eq!(collection.snapshot_at(Revision::new(revision)).unwrap().len() as u64, revision);
            collection.rebuilt()
        };
        assert_eq!([rebuilt(20), rebuilt(7), rebuilt(7), rebuilt(9), rebuilt(20)], [0, 1, 1, 2, 2]);
    }

    #[test]
    fn the_writes_of_one_revision_become_visible_together() {
        let collection = empty();
        let looks = Arc::new(Looks { collection: collection.clone(), seen: Mutex::default() });
        let mut cursor = collection.watch(Revision::ZERO, Scope::All).unwrap();
        let waker = looks.clone().into();
        assert!(cursor.poll_next(&mut Context::from_waker(&waker), 1).is_pending());
        let together = 3 * APPLY_EVENTS;
        let mut changes: Vec<Change> = (0..together).map(|number| put(&collection, number, 1)).collect();
        changes.push(put(&collection, together, 2));
        collection.apply(changes);
        assert_eq!(*looks.seen.lock(), [(Revision::new(1), together)]);
        assert_eq!(collection.len(), together + 1);
    }
}
