//! The in-memory engine: deterministic and multi-version, for tests and simulation.
//!
//! One lock guards all state, each write has its own revision, and the engine reads no clock. So equal sequences of
//! calls give equal revisions and events. An empty store is at revision 1, since resourceVersion 0 has another meaning
//! for clients.
//!
//! A clone shares the contents, so tests can restart a server without losing its data. A snapshot holds the contents of
//! one moment. Another store can start from it, and a store can be restored to it.

mod tree;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream;
use keelson_meta::Revision;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::crowd::{SupersededBytes, beyond, raise};
use crate::key::StoreKey;
use crate::seal::Seal;
use crate::store::{
    CommitError, Committed, KeyValue, RangePage, RangeRequest, Store, StoreError, StoreEvent, Tail, TailBatch,
    Transaction, Write, unix_seconds,
};

use self::tree::Tree;

/// The most events in a batch of a tail.
const TAIL_BATCH_EVENTS: usize = 1024;

/// A store in memory.
#[derive(Clone)]
pub struct MemoryStore {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    /// The newest revision, which wakes waiting tails.
    newest: watch::Sender<Revision>,
    /// The revision of an early compaction.
    crowded: watch::Sender<Revision>,
}

struct State {
    revision: Revision,
    oldest: Revision,
    /// The versions of each key, ascending by revision. Never empty.
    keys: Tree<Vec<Version>>,
    /// Every change after `oldest`, ascending by revision.
    log: VecDeque<StoreEvent>,
    /// Expiry times in seconds since the epoch. Holds only those of newest versions.
    ends: Arc<BTreeSet<(u64, StoreKey)>>,
    /// The bytes of superseded values.
    superseded: SupersededBytes,
}

#[derive(Clone)]
struct Version {
    revision: Revision,
    value: Option<Bytes>,
    ends: Option<u64>,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::starting_at(Revision::new(1))
    }

    /// An empty store whose newest revision is `revision`. The first write gets the next one.
    pub fn starting_at(revision: Revision) -> Self {
        let state = State {
            revision,
            oldest: Revision::ZERO,
            keys: Tree::default(),
            log: VecDeque::new(),
            ends: Arc::default(),
            superseded: SupersededBytes::default(),
        };
        Self::with_state(state)
    }

    fn with_state(state: State) -> Self {
        let revision = state.revision;
        let (newest, crowded) = (watch::Sender::new(revision), watch::Sender::new(Revision::ZERO));
        Self { shared: Arc::new(Shared { state: Mutex::new(state), newest, crowded }) }
    }

    /// Makes [`Store::crowded`] return when superseded values exceed this many bytes.
    #[must_use]
    pub fn with_history_bytes(self, bytes: u64) -> Self {
        self.shared.state.lock().superseded.limit = bytes;
        self
    }

    /// Returns the contents at this moment. The store and the snapshot share unchanged parts, so the cost does not grow
    /// with the contents.
    pub fn snapshot(&self) -> MemorySnapshot {
        let state = self.shared.state.lock();
        MemorySnapshot { revision: state.revision, keys: state.keys.clone(), ends: state.ends.clone() }
    }

    /// Creates a separate store that starts with the contents of a snapshot. It can't read earlier revisions.
    pub fn from_snapshot(snapshot: &MemorySnapshot) -> Self {
        Self::with_state(State {
            revision: snapshot.revision,
            oldest: snapshot.revision,
            keys: snapshot.keys.clone(),
            log: VecDeque::new(),
            ends: snapshot.ends.clone(),
            superseded: SupersededBytes::default(),
        })
    }

    /// Restores the contents of a snapshot, at once and with new revisions. Keys that differ are put or deleted, and
    /// tails deliver these changes. Keys for which `keeps` returns true stay as they are. Returns the revision of the
    /// result.
    pub fn restore(&self, snapshot: &MemorySnapshot, keeps: impl Fn(&StoreKey) -> bool) -> Revision {
        let mut state = self.shared.state.lock();
        let writes = state.differences(snapshot);
        for write in writes.into_iter().filter(|write| !keeps(write.key())) {
            state.apply(write);
        }
        // ORDER: as in a commit, the tails are woken before the lock is released.
        self.shared.newest.send_replace(state.revision);
        state.revision
    }

    /// The bytes of superseded values.
    pub fn history_bytes(&self) -> u64 {
        self.shared.state.lock().superseded.bytes()
    }
}

/// The contents of a [`MemoryStore`] at one moment. Clones share the contents.
#[derive(Clone)]
pub struct MemorySnapshot {
    revision: Revision,
    keys: Tree<Vec<Version>>,
    ends: Arc<BTreeSet<(u64, StoreKey)>>,
}

impl MemorySnapshot {
    /// The newest revision of the contents.
    pub const fn revision(&self) -> Revision {
        self.revision
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn commit(&self, transaction: Transaction) -> Result<Committed, CommitError> {
        let mut state = self.shared.state.lock();
        state.check_compares(&transaction)?;
        let revisions = transaction.writes.into_iter().map(|write| state.apply(write)).collect();
        // ORDER: tails are woken before the lock is released, so that the watched revision never decreases.
        self.shared.newest.send_replace(state.revision);
        if let Some(oldest) = state.superseded.excess() {
            raise(&self.shared.crowded, oldest);
        }
        Ok(Committed { revisions })
    }

    async fn get(&self, key: &StoreKey) -> Result<Option<KeyValue>, StoreError> {
        Ok(self.shared.state.lock().current(key))
    }

    async fn range(&self, request: RangeRequest) -> Result<RangePage, StoreError> {
        self.shared.state.lock().range(&request)
    }

    async fn count(&self, request: RangeRequest) -> Result<u64, StoreError> {
        Ok(self.shared.state.lock().range(&request)?.entries.len() as u64)
    }

    async fn current_revision(&self) -> Result<Revision, StoreError> {
        Ok(self.shared.state.lock().revision)
    }

    fn known_revision(&self) -> Option<Revision> {
        Some(self.shared.state.lock().revision)
    }

    async fn oldest_revision(&self) -> Result<Revision, StoreError> {
        Ok(self.shared.state.lock().oldest)
    }

    async fn tail(&self, after: Revision) -> Result<Tail, StoreError> {
        self.shared.state.lock().check_readable(after)?;
        let start = Some(TailState { shared: self.shared.clone(), newest: self.shared.newest.subscribe(), after });
        Ok(Box::pin(stream::unfold(start, |state| async move {
            let mut state = state?;
            match state.next().await {
                Ok(batch) => Some((Ok(batch), Some(state))),
                Err(error) => Some((Err(error), None)),
            }
        })))
    }

    async fn compact(&self, oldest: Revision) -> Result<(), StoreError> {
        self.shared.state.lock().compact(oldest)
    }

    fn history_limit(&self) -> Option<u64> {
        Some(self.shared.state.lock().superseded.limit).filter(|limit| *limit != u64::MAX)
    }

    async fn crowded(&self) -> Revision {
        beyond(&self.shared.crowded, || self.shared.state.lock().oldest).await
    }

    async fn expire(&self, now: SystemTime) -> Result<usize, StoreError> {
        let mut state = self.shared.state.lock();
        let count = state.expire(unix_seconds(now));
        self.shared.newest.send_replace(state.revision);
        Ok(count)
    }

    fn seal(&self, _key: &str) -> Seal {
        Seal::PLAIN
    }

    async fn verify(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn check(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// The position of one tail.
struct TailState {
    shared: Arc<Shared>,
    newest: watch::Receiver<Revision>,
    after: Revision,
}

impl TailState {
    async fn next(&mut self) -> Result<TailBatch, StoreError> {
        let after = self.after;
        if self.newest.wait_for(|newest| *newest > after).await.is_err() {
            return Err(StoreError::Unavailable("the store has stopped".to_owned()));
        }
        let batch = self.shared.state.lock().batch_after(after)?;
        self.after = batch.watermark;
        Ok(batch)
    }
}

impl State {
    fn newest(&self, key: &StoreKey) -> Option<&Version> {
        self.keys.get(key).and_then(|versions| versions.last())
    }

    fn current(&self, key: &StoreKey) -> Option<KeyValue> {
        self.newest(key).and_then(|version| version.key_value(key))
    }

    /// The writes that lead from this state to the contents of a snapshot, in the order of the keys.
    fn differences(&self, snapshot: &MemorySnapshot) -> Vec<Write> {
        let live = |(key, versions): (&StoreKey, &Vec<Version>)| {
            versions.last().filter(|last| last.value.is_some()).map(|last| (key.clone(), last.clone()))
        };
        let mut writes = Vec::new();
        let mut ours = self.keys.iter().filter_map(live).peekable();
        for (key, then) in snapshot.keys.iter().filter_map(live) {
            while let Some((gone, _)) = ours.next_if(|(ours, _)| *ours < key) {
                writes.push(Write::Delete { key: gone });
            }
            let now = ours.next_if(|(ours, _)| *ours == key);
            let same = now.is_some_and(|(_, now)| now.value == then.value && now.ends == then.ends);
            if let Some(value) = then.value.filter(|_| !same) {
                let expires = then.ends.map(|end| SystemTime::UNIX_EPOCH + Duration::from_secs(end));
                writes.push(Write::Put { key, value, expires });
            }
        }
        writes.extend(ours.map(|(key, _)| Write::Delete { key }));
        writes
    }

    fn check_compares(&self, transaction: &Transaction) -> Result<(), CommitError> {
        for (index, compare) in transaction.compares.iter().enumerate() {
            let current = self.current(&compare.key);
            if !compare.condition.holds(current.as_ref().map(|found| found.revision)) {
                return Err(CommitError::Compare { index, current });
            }
        }
        Ok(())
    }

    /// Applies one write and returns its revision; a delete of an absent key returns the newest revision.
    fn apply(&mut self, write: Write) -> Revision {
        match write {
            Write::Put { key, value, expires } => self.append(key, Some(value), expires.map(unix_seconds)),
            Write::Delete { key } if self.current(&key).is_none() => self.revision,
            Write::Delete { key } => self.append(key, None, None),
        }
    }

    fn append(&mut self, key: StoreKey, value: Option<Bytes>, ends: Option<u64>) -> Revision {
        self.revision = self.revision.next();
        if let Some(old_end) = self.newest(&key).and_then(|version| version.ends) {
            Arc::make_mut(&mut self.ends).remove(&(old_end, key.clone()));
        }
        if let Some(end) = ends {
            Arc::make_mut(&mut self.ends).insert((end, key.clone()));
        }
        if let Some(old) = self.newest(&key).and_then(|version| version.value.as_ref()) {
            self.superseded.add(self.revision, old.len() as u64);
        }
        self.log.push_back(StoreEvent::new(key.clone(), self.revision, value.clone()));
        let version = Version { revision: self.revision, value, ends };
        self.keys.update(key, |versions| versions.push(version));
        self.revision
    }

    fn check_readable(&self, revision: Revision) -> Result<(), StoreError> {
        if revision < self.oldest {
            return Err(StoreError::Compacted { requested: revision, oldest: self.oldest });
        }
        if revision > self.revision {
            return Err(StoreError::Future { requested: revision, current: self.revision });
        }
        Ok(())
    }

    fn range(&self, request: &RangeRequest) -> Result<RangePage, StoreError> {
        let revision = request.revision.unwrap_or(self.revision);
        self.check_readable(revision)?;
        let mut page = RangePage { entries: Vec::new(), revision, more: false };
        let limit = request.limit.unwrap_or(usize::MAX);
        for (key, versions) in self.keys.from(&request.from).take_while(|(key, _)| **key < request.to) {
            let visible = versions.partition_point(|version| version.revision <= revision);
            let Some(entry) = visible.checked_sub(1).and_then(|last| versions[last].key_value(key)) else { continue };
            if page.entries.len() == limit {
                page.more = true;
                break;
            }
            page.entries.push(entry);
        }
        Ok(page)
    }

    fn batch_after(&self, after: Revision) -> Result<TailBatch, StoreError> {
        if after < self.oldest {
            return Err(StoreError::Compacted { requested: after, oldest: self.oldest });
        }
        let start = self.log.partition_point(|event| event.revision <= after);
        let events: Vec<StoreEvent> = self.log.range(start..).take(TAIL_BATCH_EVENTS).cloned().collect();
        let watermark = match events.last() {
            Some(last) if events.len() == TAIL_BATCH_EVENTS => last.revision,
            Some(_) | None => self.revision,
        };
        Ok(TailBatch { events, watermark })
    }

    fn compact(&mut self, oldest: Revision) -> Result<(), StoreError> {
        if oldest > self.revision {
            return Err(StoreError::Future { requested: oldest, current: self.revision });
        }
        if oldest <= self.oldest {
            return Ok(());
        }
        self.oldest = oldest;
        let concerns = |versions: &Vec<Version>| {
            let is_superseded = versions.get(1).is_some_and(|second| second.revision <= oldest);
            is_superseded || versions[0].revision <= oldest && versions[0].value.is_none()
        };
        self.keys.retain(concerns, |versions| {
            let superseded = versions.partition_point(|version| version.revision <= oldest).saturating_sub(1);
            versions.drain(..superseded);
            if versions.first().is_some_and(|first| first.revision <= oldest && first.value.is_none()) {
                versions.remove(0);
            }
            !versions.is_empty()
        });
        let forgotten = self.log.partition_point(|event| event.revision <= oldest);
        self.log.drain(..forgotten);
        self.superseded.compacted(oldest);
        Ok(())
    }

    fn expire(&mut self, now: u64) -> usize {
        let mut count = 0;
        while let Some((end, key)) = self.ends.first().cloned() {
            if end > now {
                break;
            }
            // `append` removes the entry from `ends`.
            self.append(key, None, None);
            count += 1;
        }
        count
    }
}

impl Version {
    fn key_value(&self, key: &StoreKey) -> Option<KeyValue> {
        let value = self.value.clone()?;
        Some(KeyValue::new(key.clone(), value, self.revision))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> StoreKey {
        StoreKey::new(format!("/r/{name}"))
    }

    async fn put(store: &MemoryStore, name: &str, value: &'static str) {
        store.commit(Transaction::default().put(key(name), value)).await.unwrap();
    }

    async fn contents(store: &MemoryStore) -> String {
        let all = RangeRequest { from: key(""), to: StoreKey::prefix_end("/r/"), revision: None, limit: None };
        let entries = store.range(all).await.unwrap().entries;
        let texts = entries.iter().map(|entry| format!("{}={}", entry.key, String::from_utf8_lossy(&entry.value)));
        texts.collect::<Vec<_>>().join(" ")
    }

    #[tokio::test]
    async fn a_store_from_a_snapshot_is_independent_of_its_origin() {
        let origin = MemoryStore::new();
        put(&origin, "a", "1").await;
        let snapshot = origin.snapshot();
        put(&origin, "a", "2").await;
        let fork = MemoryStore::from_snapshot(&snapshot);
        put(&fork, "b", "3").await;
        assert_eq!(contents(&origin).await, "/r/a=2");
        assert_eq!(contents(&fork).await, "/r/a=1 /r/b=3");
        assert!(matches!(fork.tail(Revision::new(1)).await, Err(StoreError::Compacted { .. })));
        assert_eq!(contents(&MemoryStore::from_snapshot(&snapshot)).await, "/r/a=1");
    }

    #[tokio::test]
    async fn a_restore_is_a_few_writes_that_tails_see() {
        let store = MemoryStore::new();
        for (name, value) in [("a", "1"), ("b", "1"), ("same", "1"), ("own", "1")] {
            put(&store, name, value).await;
        }
        let snapshot = store.snapshot();
        put(&store, "a", "2").await;
        put(&store, "new", "2").await;
        put(&store, "own", "2").await;
        store.commit(Transaction::default().delete(key("b"))).await.unwrap();
        let before = store.known_revision().unwrap();
        let after = store.restore(&snapshot, |kept| *kept == key("own"));
        assert_eq!(contents(&store).await, "/r/a=1 /r/b=1 /r/own=2 /r/same=1");
        let batch = futures::StreamExt::next(&mut store.tail(before).await.unwrap()).await.unwrap().unwrap();
        let seen: Vec<_> = batch.events.iter().map(|event| (event.key.as_str(), event.value.is_some())).collect();
        assert_eq!(seen, [("/r/a", true), ("/r/b", true), ("/r/new", false)]);
        assert_eq!(batch.watermark, after);
    }
}
