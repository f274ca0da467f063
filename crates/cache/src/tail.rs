//! Follows one tail of the store and feeds all collections from it.
//!
//! The only writer of collections. Events of a batch are applied to every collection before the watermark moves, so a
//! reader that sees the watermark finds them all. When the tail breaks it is opened again after the watermark; when the
//! store no longer knows what happened since, everything is loaded anew and watches end.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use futures::StreamExt;
use keelson_meta::Revision;
use keelson_storage::{KeyValue, RangeRequest, Store, StoreError, StoreEvent, StoreKey, Tail, TailBatch};

use crate::cache::{CacheConfig, Shared};
use crate::collection::{Change, Collection};
use crate::entry::Entry;
use crate::trees::Trees;

/// How many keys one read asks for while loading.
const LOAD_PAGE: usize = 1000;
/// How often loading begins again because the store was compacted meanwhile.
const LOAD_ATTEMPTS: usize = 5;
/// How long the first wait before opening a broken tail again takes. Each further one takes twice as long.
const FIRST_BACKOFF: Duration = Duration::from_millis(50);
/// The longest such wait.
const LONGEST_BACKOFF: Duration = Duration::from_secs(5);
/// How often the age of the history is looked at.
const AGE_INTERVAL: Duration = Duration::from_secs(5);

pub(crate) struct Follower {
    store: Arc<dyn Store>,
    shared: Arc<Shared>,
    config: CacheConfig,
    /// When the watermark was where, ascending: what the age of events is told by.
    marks: VecDeque<(SystemTime, Revision)>,
}

impl Follower {
    pub(crate) const fn new(store: Arc<dyn Store>, shared: Arc<Shared>, config: CacheConfig) -> Self {
        Self { store, shared, config, marks: VecDeque::new() }
    }

    /// Loads, opens the tail, and follows it until it has caught up.
    pub(crate) async fn start(&mut self) -> Result<Tail, StoreError> {
        let mut attempts = LOAD_ATTEMPTS;
        loop {
            match self.try_start().await {
                Err(StoreError::Compacted { .. }) if attempts > 1 => attempts -= 1,
                done => return done,
            }
        }
    }

    async fn try_start(&mut self) -> Result<Tail, StoreError> {
        let oldest = self.store.oldest_revision().await?;
        self.load(oldest).await?;
        let mut tail = self.store.tail(oldest).await?;
        let target = self.store.current_revision().await?;
        while self.shared.watermark.get() < target {
            let batch = next_batch(&mut tail).await?;
            self.apply(batch);
        }
        Ok(tail)
    }

    /// Follows the tail for ever.
    pub(crate) async fn run(mut self, tail: Tail) {
        let mut tail = tail;
        let mut backoff = FIRST_BACKOFF;
        loop {
            let before = self.shared.watermark.get();
            let error = self.follow(&mut tail).await;
            if self.shared.watermark.get() > before {
                backoff = FIRST_BACKOFF;
            }
            tail = self.reopen(error, &mut backoff).await;
        }
    }

    /// Applies batches until the tail breaks.
    async fn follow(&mut self, tail: &mut Tail) -> StoreError {
        let mut age = tokio::time::interval(AGE_INTERVAL);
        loop {
            tokio::select! {
                batch = next_batch(tail) => match batch {
                    Ok(batch) => {
                        self.apply(batch);
                        self.shared.clear_fault();
                        // Batches may follow each other without a wait; readers on this worker have their turn between.
                        tokio::task::yield_now().await;
                    }
                    Err(error) => return error,
                },
                _ = age.tick() => self.drop_aged(),
            }
        }
    }

    /// Opens the tail again, however long it takes.
    async fn reopen(&mut self, error: StoreError, backoff: &mut Duration) -> Tail {
        let mut error = error;
        loop {
            let reached = self.shared.watermark.get();
            tracing::warn!(%error, revision = %reached, "the store's tail has broken; trying again");
            self.shared.set_fault(self.config.clock.now(), &error);
            self.shared.counters.tail_restarts.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(*backoff).await;
            *backoff = (*backoff * 2).min(LONGEST_BACKOFF);
            let opened = match self.store.tail(reached).await {
                Err(StoreError::Compacted { .. }) => self.reload().await,
                other => other,
            };
            match opened {
                Ok(tail) => {
                    // A tail at rest says nothing, and the store has just answered.
                    self.shared.clear_fault();
                    return tail;
                }
                Err(failed) => error = failed,
            }
        }
    }

    /// Loads everything at the newest revision: what happened since the watermark can't be told any more.
    async fn reload(&mut self) -> Result<Tail, StoreError> {
        let newest = self.store.current_revision().await?;
        self.load(newest).await?;
        self.shared.counters.reloads.fetch_add(1, Ordering::Relaxed);
        self.store.tail(newest).await
    }

    /// Replaces all collections by what the store holds at a revision.
    async fn load(&mut self, revision: Revision) -> Result<(), StoreError> {
        let mut loaded = Vec::with_capacity(self.shared.collections.len());
        for collection in &self.shared.collections {
            loaded.push(self.read(collection, revision).await?);
        }
        for (collection, entries) in self.shared.collections.iter().zip(loaded) {
            collection.restart(revision, Trees::from_sorted(entries, collection.spec().dispatch));
        }
        self.shared.watermark.advance(revision);
        Ok(())
    }

    async fn read(&self, collection: &Collection, revision: Revision) -> Result<Vec<Arc<Entry>>, StoreError> {
        let to = StoreKey::prefix_end(collection.prefix());
        let mut from = StoreKey::new(collection.prefix());
        let mut entries = Vec::new();
        loop {
            let request = RangeRequest { from, to: to.clone(), revision: Some(revision), limit: Some(LOAD_PAGE) };
            let page = self.store.range(request).await?;
            let last = page.entries.last().map(|stored| stored.key.clone());
            for stored in &page.entries {
                match collection.decode(stored) {
                    Ok(entry) => entries.push(entry),
                    Err(error) => self.shared.undecodable(stored.key.as_str(), &error),
                }
            }
            match last {
                Some(last) if page.more => from = StoreKey::new(format!("{last}\0")),
                _ => return Ok(entries),
            }
        }
    }

    fn apply(&self, batch: TailBatch) {
        let reached = self.shared.watermark.get();
        let mut changes: Vec<Vec<Change>> = Vec::new();
        changes.resize_with(self.shared.collections.len(), Vec::new);
        for event in batch.events.into_iter().filter(|event| event.revision > reached) {
            if let Some((place, change)) = self.change(event) {
                changes[place].push(change);
            }
        }
        for (place, changes) in changes.into_iter().enumerate().filter(|(_, changes)| !changes.is_empty()) {
            self.shared.apply(place, changes);
        }
        // ORDER: after every collection has the batch.
        self.shared.watermark.advance(batch.watermark);
    }

    /// What an event changes, if it concerns any collection.
    fn change(&self, event: StoreEvent) -> Option<(usize, Change)> {
        let (place, key) = self.shared.route(event.key.as_str())?;
        let revision = event.revision;
        let gone = |key: &str| Change { key: key.into(), revision, entry: None };
        let Some(value) = event.value else {
            return Some((place, gone(key)));
        };
        let stored = KeyValue { key: event.key.clone(), value, revision };
        match self.shared.collections[place].decode(&stored) {
            Ok(entry) => Some((place, Change { key: entry.key.clone(), revision, entry: Some(entry) })),
            Err(error) => {
                // The object's old content would be wrong, so it is shown as deleted.
                self.shared.undecodable(event.key.as_str(), &error);
                Some((place, gone(key)))
            }
        }
    }

    /// Drops the history that is older than configured.
    fn drop_aged(&mut self) {
        let now = self.config.clock.now();
        let reached = self.shared.watermark.get();
        if self.marks.back().is_none_or(|(_, revision)| *revision < reached) {
            self.marks.push_back((now, reached));
        }
        let history = self.config.history;
        let aged = |time: SystemTime| now.duration_since(time).is_ok_and(|age| age > history);
        let mut oldest = None;
        while let Some((time, revision)) = self.marks.front().copied()
            && aged(time)
        {
            oldest = Some(revision);
            self.marks.pop_front();
        }
        if let Some(oldest) = oldest {
            self.shared.trim(oldest);
        }
    }
}

async fn next_batch(tail: &mut Tail) -> Result<TailBatch, StoreError> {
    let ended = || StoreError::Unavailable("the tail has ended".to_owned());
    tail.next().await.unwrap_or_else(|| Err(ended()))
}
