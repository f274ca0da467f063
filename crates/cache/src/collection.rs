//! One collection: its newest state, its history, and its watches.
//!
//! Only the server's tail writes, through [`Collection::apply`]. Readers get the newest state with one short lock.
//! ORDER: a task that needs both locks takes `history` before `live`. It calls wakers after it has released both.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::task::Waker;

use keelson_codec::stored::Encoding;
use keelson_codec::{DecodeError, ParsedObject, StoredObject};
use keelson_meta::Revision;
use keelson_storage::{KeyValue, StoreKey};
use parking_lot::{MutexGuard, RwLock};

use crate::counts::CollectionCounts;
use crate::cursor::{TooOld, WatchCursor};
use crate::dispatch::Dispatch;
use crate::encodings::{EncodingCounts, StalePage};
use crate::entry::{Decoder, Entry};
use crate::environment::Environment;
use crate::event::Event;
use crate::feed::Feed;
use crate::history::{History, HistoryStartError};
use crate::packing::Pool;
use crate::scope::Scope;
use crate::snapshot::{Snapshot, SnapshotError};
use crate::spec::{CollectionSpec, Layout};
use crate::trees::Trees;
use crate::views::{CachedIndex, LookupResult, MemoryReservation, View, ViewOwner};

mod forked;

/// The approximate number of events that are applied under one lock. It limits the wait of readers.
const APPLY_EVENTS: usize = 64;
/// The number of events that are dropped under one lock.
const TRIM_EVENTS: usize = 1024;

/// The number of objects that are examined for outdated encodings under one lock: about a millisecond of work.
const STALE_LOOKS: usize = 5000;

/// One collection of the cache.
pub struct Collection {
    prefix: Box<str>,
    decoder: Decoder,
    live: RwLock<Live>,
    feed: Arc<Feed>,
    environment: Arc<Environment>,
    counts: CollectionCounts,
}

/// The newest state.
struct Live {
    trees: Trees,
    /// The encodings of the stored objects.
    encodings: EncodingCounts,
    /// The revision of the newest event, or of the load.
    revision: Revision,
    /// The keys with unreadable values, and the reasons.
    unreadable: Unreadable,
    /// The watermark at the removal of the collection. The state after it is unknown.
    removed: Option<Revision>,
}

/// Relative keys whose values are not objects, and the reasons.
pub(crate) type Unreadable = BTreeMap<Arc<str>, DecodeError>;

/// A change to apply. The key is relative.
pub(crate) struct Change {
    pub(crate) key: Arc<str>,
    pub(crate) revision: Revision,
    pub(crate) content: Content,
}

/// The content of a key after a change.
pub(crate) enum Content {
    Entry(Arc<Entry>),
    Gone,
    /// A value that is not an object. The cache hides the key, since the old content would be wrong.
    Unreadable(DecodeError),
}

impl Content {
    /// Applies the content to a key. Returns the new and the old visible entry.
    pub(crate) fn put_in(
        self,
        key: &Arc<str>,
        trees: &mut Trees,
        unreadable: &mut Unreadable,
    ) -> (Option<Arc<Entry>>, Option<Arc<Entry>>) {
        unreadable.remove(key);
        let current = match self {
            Self::Entry(entry) => Some(entry),
            Self::Gone => None,
            Self::Unreadable(error) => {
                unreadable.insert(key.clone(), error);
                None
            }
        };
        let previous = match &current {
            Some(entry) => trees.put(entry),
            None => trees.remove(key),
        };
        (current, previous)
    }
}

/// Statistics of a collection, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CollectionStats {
    /// The number of objects.
    pub objects: usize,
    /// Their size in a list, in bytes.
    pub bytes: u64,
    /// The number of events in the history.
    pub events: usize,
    /// The number of watches.
    pub watchers: usize,
    /// The number of old states that are kept for lists.
    pub remembered: usize,
}

impl Collection {
    /// An empty collection, before it is loaded.
    pub(crate) fn new(spec: CollectionSpec, environment: Arc<Environment>) -> Self {
        let CollectionSpec { prefix, fields, dispatch, complete, typed_items } = spec;
        let layout = Arc::new(Layout::new(fields, dispatch).with_typed_items(typed_items));
        let live = Live {
            trees: Trees::empty(layout.clone()),
            encodings: EncodingCounts::default(),
            revision: Revision::ZERO,
            unreadable: Unreadable::new(),
            removed: None,
        };
        let decoder = Decoder::new(layout, complete, Arc::new(Pool::new(environment.packer.clone())));
        Self::begin(prefix.into(), decoder, live, environment)
    }

    /// A collection with this state. Its history begins there.
    fn begin(prefix: Box<str>, decoder: Decoder, live: Live, environment: Arc<Environment>) -> Self {
        let dispatch = Dispatch::new(decoder.layout.clone());
        let history = History::new(live.revision, live.trees.clone(), dispatch, environment.budget.clone());
        Self {
            prefix,
            decoder,
            live: RwLock::new(live),
            feed: Arc::new(Feed::new(history, environment.clone())),
            environment,
            counts: CollectionCounts::default(),
        }
    }

    /// The prefix of all its keys in the store.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The layout of its objects. It never changes: a collection with another layout replaces this one.
    pub const fn layout(&self) -> &Arc<Layout> {
        &self.decoder.layout
    }

    /// The key without the prefix of the collection.
    pub(crate) fn relative<'a>(&self, key: &'a str) -> &'a str {
        key.strip_prefix(&*self.prefix).unwrap_or(key)
    }

    /// Decodes a stored value of one of the collection's keys, and completes the object.
    ///
    /// # Errors
    /// A value that is not an object.
    pub fn decode(&self, stored: &KeyValue) -> Result<Arc<Entry>, DecodeError> {
        let key = self.relative(stored.key.as_str()).into();
        let state = (stored.revision, stored.seal);
        let entry = match self.environment.written.take(&stored.key, &stored.value, self.decoder.id) {
            Some(object) => self.decoder.written(key, &object, state),
            None => self.decoder.decode(key, &stored.value, state),
        };
        let entry = entry.map(Entry::into_shared)?;
        self.decoder.pool.admit(&entry);
        Ok(entry)
    }

    /// The packing of its objects.
    pub(crate) const fn pool(&self) -> &Arc<Pool> {
        &self.decoder.pool
    }

    /// The number of objects, and their size in a list in bytes.
    pub(crate) fn extent(&self) -> (usize, u64) {
        let live = self.live.read();
        (live.trees.entries.len(), live.trees.entries.weight())
    }

    /// The completed form of a stored object of the collection. `None` if the object is complete.
    pub fn completed(&self, object: &ParsedObject) -> Option<StoredObject> {
        self.decoder.complete.as_ref()?.complete(object)
    }

    /// Registers an object that this server writes to one of the collection's keys. When the store returns the same
    /// bytes, the event uses this object. The object must be complete as by [`CollectionSpec::complete`]. Objects that
    /// were completed for a replaced collection must not be registered.
    pub fn announce(&self, key: StoreKey, object: ParsedObject) {
        self.environment.written.announce(key, object, self.decoder.id);
    }

    /// The newest state. Its revision is the watermark of the whole server, so the snapshot of an idle collection is as
    /// fresh as that of a busy one. For a removed collection it is the last state, at the revision of the removal.
    pub fn snapshot(&self) -> Snapshot {
        // ORDER: the watermark is read before the state, so that the state includes all events up to it.
        let reached = self.reached();
        let live = self.live.read();
        Snapshot { revision: live.up_to(reached), trees: live.trees.clone() }
    }

    /// Returns true if the collection was removed from the cache.
    pub fn is_removed(&self) -> bool {
        self.live.read().removed.is_some()
    }

    /// The revision of the newest change of an object, or of the load.
    ///
    /// Cost: one short lock.
    pub fn changed_at(&self) -> Revision {
        self.live.read().revision
    }

    /// The newest state of one object.
    pub fn get(&self, key: &str) -> Option<Arc<Entry>> {
        self.live.read().trees.entries.get(key).cloned()
    }

    /// The reason for which the value of a key is unreadable. Such an object is hidden but exists: code that acts on
    /// the absence of an object must check this.
    pub fn unreadable(&self, key: &str) -> Option<DecodeError> {
        self.live.read().unreadable.get(key).cloned()
    }

    /// At most `most` keys that have this prefix and unreadable values, with the reasons.
    pub fn unreadable_below(&self, prefix: &str, most: usize) -> Vec<(Arc<str>, DecodeError)> {
        let live = self.live.read();
        let from = live.unreadable.range::<str, _>((Bound::Included(prefix), Bound::Unbounded));
        let found = from.take_while(|(key, _)| key.starts_with(prefix)).take(most);
        found.map(|(key, error)| (key.clone(), error.clone())).collect()
    }

    /// The number of keys that have this prefix and unreadable values.
    pub fn count_unreadable(&self, prefix: &str) -> usize {
        let live = self.live.read();
        let from = live.unreadable.range::<str, _>((Bound::Included(prefix), Bound::Unbounded));
        from.take_while(|(key, _)| key.starts_with(prefix)).count()
    }

    /// The number of objects.
    pub fn len(&self) -> usize {
        self.live.read().trees.entries.len()
    }

    /// Returns true if there are no objects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The encodings of the stored objects, with the number of objects in each. Cost: linear in the small number of
    /// encodings.
    pub fn encodings(&self) -> Vec<(Arc<Encoding>, usize)> {
        let counts = self.live.read().encodings.clone();
        let all = self.decoder.interned.encodings.all().into_iter().zip(counts.each().iter().copied());
        all.filter(|(_, count)| *count > 0).collect()
    }

    /// Returns true if the stored object of an entry has a current encoding.
    pub fn is_current(&self, entry: &Entry, is_current: impl Fn(&Encoding) -> bool) -> bool {
        let all = self.decoder.interned.encodings.all();
        entry.encoding.among(&all).is_some_and(|encoding| is_current(encoding))
    }

    /// The next objects from a key on whose encoding is outdated, at most `most`. One call examines a few thousand
    /// objects.
    pub fn stale(&self, is_current: impl Fn(&Encoding) -> bool, from: &str, most: usize) -> StalePage {
        let snapshot = self.snapshot();
        // Encodings are read after the entries, so that all are known.
        let current: Vec<bool> =
            self.decoder.interned.encodings.all().iter().map(|encoding| is_current(encoding)).collect();
        let mut page = StalePage::default();
        for (looked, entry) in snapshot.range(from, None).enumerate() {
            if looked >= STALE_LOOKS || page.keys.len() >= most {
                page.next = Some(entry.key.to_string());
                break;
            }
            if entry.encoding.among(&current) != Some(&true) {
                page.keys.push(entry.key.clone());
            }
        }
        page
    }

    /// The oldest revision that [`watch`](Self::watch) accepts. [`snapshot_at`](Self::snapshot_at) accepts it too,
    /// unless it has left the history window. A watch from this revision misses no event, even if the state at the
    /// revision is too old.
    pub fn oldest(&self) -> Revision {
        self.history().floor()
    }

    /// The state at a revision, rebuilt from the nearest kept state.
    ///
    /// Cost: at most a few hundred tree writes, and none for a remembered state.
    ///
    /// # Errors
    /// A revision before the history, or after the watermark.
    pub fn snapshot_at(&self, revision: Revision) -> Result<Snapshot, SnapshotError> {
        let reached = self.reached();
        let (mut trees, steps) = {
            let mut history = self.history();
            let live = self.live.read();
            let current = live.up_to(reached);
            if live.removed.is_some() && revision > current {
                return Err(SnapshotError::Removed { last: current });
            }
            if revision > current {
                return Err(SnapshotError::Future { current });
            }
            let oldest = history.floor().max(self.environment.unexpired());
            if revision < oldest {
                return Err(SnapshotError::TooOld { oldest });
            }
            let position = history.position_after(revision);
            history.nearest(position, &live.trees)
        };
        steps.walk(&mut trees);
        let snapshot = Snapshot { revision, trees };
        if !steps.is_empty() {
            self.environment.counters.snapshots_rebuilt.add(1);
            self.pin(&snapshot);
        }
        Ok(snapshot)
    }

    /// Keeps the state of a snapshot for a continue token with its revision. It is kept while the history covers it and
    /// it is among the most recently used ones.
    pub fn pin(&self, snapshot: &Snapshot) {
        let mut history = self.history();
        if snapshot.revision >= history.floor() {
            let position = history.position_after(snapshot.revision);
            history.remember(position, snapshot.trees.clone());
        }
    }

    /// Follows the events after a revision. If the revision is in the future, events up to it are not delivered.
    ///
    /// # Errors
    /// A revision before the history.
    pub fn watch(&self, after: Revision, scope: Scope) -> Result<WatchCursor, TooOld> {
        WatchCursor::new(self.feed.clone(), after, scope)
    }

    /// Finds the kept view of this name for a snapshot. The name must include everything that the view depends on.
    pub fn find_view(&self, name: &str, snapshot: &Snapshot) -> LookupResult {
        self.environment.views.find(self.decoder.id, name, snapshot)
    }

    /// Keeps a view of a snapshot for later requests with the same name. `owner` is the user whose request built it. The
    /// view is dropped when the history no longer covers the snapshot, or to free memory for other views.
    pub fn keep_view(&self, owner: ViewOwner, name: &str, snapshot: &Snapshot, view: &View) {
        // Expired snapshots can't be requested.
        if snapshot.revision >= self.oldest() && !self.is_removed() {
            self.environment.views.keep(owner, (self.decoder.id, name), snapshot, view);
        }
    }

    /// Finds the index of this name, and its snapshot. Callers update the index to another snapshot by its
    /// [changes](Snapshot::changes_to).
    pub fn find_index(&self, name: &str) -> Option<(Snapshot, CachedIndex)> {
        self.environment.views.find_index(self.decoder.id, name)
    }

    /// Keeps an index of a snapshot, within the memory limit of views. It replaces the index of this name for another
    /// snapshot.
    pub fn keep_index(&self, owner: ViewOwner, name: &str, snapshot: &Snapshot, index: CachedIndex) {
        // Expired snapshots can't be requested.
        if snapshot.revision >= self.oldest() && !self.is_removed() {
            self.environment.views.keep_index(owner, (self.decoder.id, name), snapshot, index);
        }
    }

    /// The maximum size of an index in bytes: three quarters of the limit of all views.
    pub fn index_bytes(&self) -> u64 {
        self.environment.views.bytes() / 4 * 3
    }

    /// Records that no view of this name was kept. Returns the number of such misses, as far as remembered.
    pub fn miss_view(&self, name: &str) -> usize {
        self.environment.views.miss(self.decoder.id, name)
    }

    /// The lock for building a view. With it, concurrent requests build the view once.
    pub fn view_turn(&self, name: &str) -> Arc<tokio::sync::Mutex<()>> {
        self.environment.views.turn(self.decoder.id, name)
    }

    /// The memory reservation for building a view for a user.
    pub fn view_room(&self, owner: ViewOwner) -> MemoryReservation {
        self.environment.views.room(owner)
    }

    /// Statistics of the collection.
    pub fn stats(&self) -> CollectionStats {
        let mut history = self.history();
        let live = self.live.read();
        CollectionStats {
            objects: live.trees.entries.len(),
            bytes: live.trees.entries.weight(),
            events: history.len(),
            watchers: history.dispatch.watchers(),
            remembered: history.remembered(),
        }
    }

    /// The counts of the collection.
    pub const fn counts(&self) -> &CollectionCounts {
        &self.counts
    }

    /// The watermark of the whole server.
    pub(crate) fn reached(&self) -> Revision {
        self.environment.watermark.get()
    }

    fn history(&self) -> MutexGuard<'_, History> {
        self.feed.history()
    }

    /// Applies changes. They must be in ascending order of revisions and newer than all earlier ones. All changes of a
    /// revision become visible at once. Returns true if the history has events now. A removed collection does not
    /// change.
    pub(crate) fn apply(&self, changes: Vec<Change>) -> bool {
        let mut changes = changes.into_iter().peekable();
        let mut woken = Vec::new();
        let mut dropped_to = None;
        while changes.peek().is_some() {
            let mut history = self.history();
            let mut live = self.live.write();
            if live.removed.is_some() {
                return false;
            }
            let mut applied = 0;
            while let Some(change) = changes.next_if(|next| applied < APPLY_EVENTS || next.revision == live.revision) {
                applied += 1;
                let floor = history.floor();
                live.apply(change, &mut history, &mut woken);
                if history.floor() > floor {
                    dropped_to = Some(history.floor());
                }
            }
            drop(live);
            drop(history);
            woken.drain(..).for_each(Waker::wake);
        }
        if let Some(oldest) = dropped_to {
            // The history had no space for all events.
            self.environment.views.trim(Some(self.decoder.id), oldest);
        }
        self.has_events()
    }

    /// Returns true if the history has events.
    pub(crate) fn has_events(&self) -> bool {
        self.history().len() > 0
    }

    /// Replaces the whole contents by a state that was loaded at `revision`. Watches end with [`TooOld`].
    pub(crate) fn restart(&self, revision: Revision, trees: Trees, unreadable: Unreadable) {
        let mut woken = Vec::new();
        let encodings = EncodingCounts::new(trees.entries.iter().map(|entry| entry.encoding));
        self.counts.loaded(trees.entries.len());
        let old = {
            let mut history = self.history();
            let mut live = self.live.write();
            if live.removed.is_some() {
                return;
            }
            history.restart(revision, trees.clone());
            history.dispatch.wake_all(&mut woken);
            std::mem::replace(&mut *live, Live { trees, encodings, revision, unreadable, removed: None })
        };
        woken.drain(..).for_each(Waker::wake);
        self.environment.views.forget(self.decoder.id);
        drop(old);
    }

    /// Closes a removed collection. Watches end with [`TooOld`], the history is dropped, and existing handles keep the
    /// last state.
    ///
    /// ORDER: no batch is half applied, so the state is that of the watermark.
    pub(crate) fn close(&self) {
        let mut woken = Vec::new();
        {
            let mut history = self.history();
            let mut live = self.live.write();
            let last = live.up_to(self.reached());
            live.removed = Some(last);
            history.close(last, live.trees.clone());
            history.dispatch.wake_all(&mut woken);
        }
        woken.drain(..).for_each(Waker::wake);
        self.environment.views.forget(self.decoder.id);
    }

    /// Returns true if the history begins at `floor` and has space for earlier events.
    pub(crate) fn wants_past(&self, floor: Revision) -> bool {
        self.history().wants_past(floor)
    }

    /// The state at the beginning of the history.
    pub(crate) fn state_at_floor(&self) -> Trees {
        let (mut trees, steps) = {
            let mut history = self.history();
            let live = self.live.read();
            history.state_at_floor(&live.trees)
        };
        steps.walk(&mut trees);
        trees
    }

    /// Prepends events before `floor` to the history, as far as there is space.
    pub(crate) fn prepend(&self, floor: Revision, past: HistoryStartError) {
        self.history().prepend(floor, past);
    }

    /// Drops events up to a revision. Their states can't be read any more.
    pub(crate) fn trim(&self, oldest: Revision) {
        while self.history().trim(oldest, TRIM_EVENTS) {}
    }
}

impl Live {
    /// The revision of the state. `reached` is the watermark that was read before the state.
    fn up_to(&self, reached: Revision) -> Revision {
        self.removed.unwrap_or_else(|| reached.max(self.revision))
    }

    fn apply(&mut self, change: Change, history: &mut History, woken: &mut Vec<Waker>) {
        self.revision = change.revision;
        let (current, previous) = change.content.put_in(&change.key, &mut self.trees, &mut self.unreadable);
        let encoding = |entry: &Option<Arc<Entry>>| entry.as_ref().map(|entry| entry.encoding);
        self.encodings.replace(encoding(&previous), encoding(&current));
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
mod tests;
