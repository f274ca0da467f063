//! Follows one tail of the store and feeds all collections from it.
//!
//! The only writer of collections. Events of a batch are applied to every collection before the watermark moves, so a
//! reader that sees the watermark finds them all. When the tail breaks, or tells nothing of what the store has, it is
//! opened again after the watermark; when the store no longer knows what happened since, everything is loaded anew and
//! watches end.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use futures::StreamExt;
use keelson_meta::Revision;
use keelson_storage::{KeyValue, Store, StoreError, StoreEvent, Tail, TailBatch};
use tokio::sync::mpsc;

use crate::cache::{CacheConfig, Shared};
use crate::check::Repair;
use crate::collection::{Change, Content};
use crate::load;
use crate::trees::Trees;

/// How often loading begins again because the store was compacted meanwhile.
const LOAD_ATTEMPTS: u32 = 6;
/// How many of these still try to learn some of the history.
const ATTEMPTS_WITH_HISTORY: u32 = 4;
/// How long the first wait before opening a broken tail again takes. Each further one takes twice as long.
const FIRST_BACKOFF: Duration = Duration::from_millis(50);
/// The longest such wait.
const LONGEST_BACKOFF: Duration = Duration::from_secs(5);
/// How often the age of the history is looked at.
const AGE_INTERVAL: Duration = Duration::from_secs(5);
/// How often it is asked whether the store has more than the tail has told.
const PULSE_INTERVAL: Duration = Duration::from_secs(5);
/// How long a tail may tell nothing while the store has more.
const STALL_PATIENCE: Duration = Duration::from_secs(10);
/// How long the store may take to open a tail, or to tell its newest revision, before it is asked again.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);

pub(crate) struct Follower {
    store: Arc<dyn Store>,
    shared: Arc<Shared>,
    config: CacheConfig,
    /// What the comparison with the store has found to be wrong.
    repairs: mpsc::Receiver<Repair>,
    /// When the watermark was where, ascending: what the age of events is told by.
    marks: VecDeque<(SystemTime, Revision)>,
}

/// A batch of the tail, decoded.
struct Prepared {
    /// By collection.
    changes: Vec<Vec<Change>>,
    watermark: Revision,
}

impl Follower {
    pub(crate) const fn new(
        store: Arc<dyn Store>,
        shared: Arc<Shared>,
        config: CacheConfig,
        repairs: mpsc::Receiver<Repair>,
    ) -> Self {
        Self { store, shared, config, repairs, marks: VecDeque::new() }
    }

    /// Loads, opens the tail, and follows it until it has caught up.
    pub(crate) async fn start(&mut self) -> Result<Tail, StoreError> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            match self.try_start(attempt).await {
                Err(StoreError::Compacted { .. }) if attempt < LOAD_ATTEMPTS => {}
                done => return done,
            }
        }
    }

    /// Each attempt that a compaction overtakes is followed by one with half as much history to replay, and in the end by
    /// one with none: what is newest now stays readable for as long as the store keeps any history.
    async fn try_start(&mut self, attempt: u32) -> Result<Tail, StoreError> {
        let oldest = self.store.oldest_revision().await?;
        let newest = self.store.current_revision().await?;
        let known = newest.get().saturating_sub(oldest.get());
        let replayed = if attempt <= ATTEMPTS_WITH_HISTORY { known >> (attempt - 1) } else { 0 };
        let begin = Revision::new(newest.get() - replayed);
        self.load(begin).await?;
        let mut tail = self.store.tail(begin).await?;
        let target = self.store.current_revision().await?;
        self.replay(&mut tail, begin, target).await?;
        Ok(tail)
    }

    /// Follows the tail until `target`, decoding on all cores.
    async fn replay(&self, tail: &mut Tail, begin: Revision, target: Revision) -> Result<(), StoreError> {
        let mut read = begin;
        let mut waiting = VecDeque::new();
        loop {
            while read < target && waiting.len() < load::decoders() {
                let batch = next_batch(tail).await?;
                let (shared, after) = (self.shared.clone(), read);
                read = batch.watermark;
                waiting.push_back(load::on_a_core(move || shared.prepare(batch, after)));
            }
            let Some(prepared) = waiting.pop_front() else { return Ok(()) };
            self.shared.publish(prepared.await?);
        }
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
        let mut stalled = pin!(stalled(self.store.clone(), self.shared.clone()));
        loop {
            tokio::select! {
                batch = next_batch(tail) => match batch {
                    Ok(batch) => {
                        let after = self.shared.watermark.get();
                        self.shared.publish(self.shared.prepare(batch, after));
                        self.shared.clear_fault();
                        // Batches may follow each other without a wait; readers on this worker have their turn between.
                        tokio::task::yield_now().await;
                    }
                    Err(error) => return error,
                },
                _ = age.tick() => self.drop_aged(),
                error = &mut stalled => return error,
                Some(Repair(place)) = self.repairs.recv() => {
                    if let Err(error) = self.repair(place).await {
                        return error;
                    }
                }
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
            let opened = match answer(self.store.tail(reached)).await {
                Err(StoreError::Compacted { .. }) => self.reload().await,
                other => other,
            };
            match (opened, answer(self.store.current_revision()).await) {
                (Ok(tail), Ok(newest)) => {
                    // A tail at rest says nothing. One with more to tell has to show first that it does.
                    if self.shared.watermark.get() >= newest {
                        self.shared.clear_fault();
                    }
                    return tail;
                }
                (Err(failed), _) | (_, Err(failed)) => error = failed,
            }
        }
    }

    /// Loads everything at the newest revision: what happened since the watermark can't be told any more.
    async fn reload(&self) -> Result<Tail, StoreError> {
        let newest = answer(self.store.current_revision()).await?;
        self.load(newest).await?;
        self.shared.counters.reloads.fetch_add(1, Ordering::Relaxed);
        answer(self.store.tail(newest)).await
    }

    /// Replaces all collections by what the store holds at a revision.
    async fn load(&self, revision: Revision) -> Result<(), StoreError> {
        let mut loaded = Vec::with_capacity(self.shared.collections.len());
        for place in 0..self.shared.collections.len() {
            loaded.push(load::entries(&self.store, &self.shared, place, revision).await?);
        }
        for (collection, loaded) in self.shared.collections.iter().zip(loaded) {
            let trees = Trees::from_sorted(loaded.entries, collection.spec().dispatch);
            collection.restart(revision, trees, loaded.unreadable);
        }
        self.shared.watermark.advance(revision);
        Ok(())
    }

    /// Replaces one collection by what the store holds at the watermark. Its watches end: what they have missed is not
    /// known. No batch is half applied when this is called, so the watermark is where all collections stand.
    async fn repair(&self, place: usize) -> Result<(), StoreError> {
        let reached = self.shared.watermark.get();
        let loaded = load::entries(&self.store, &self.shared, place, reached).await?;
        let collection = &self.shared.collections[place];
        let trees = Trees::from_sorted(loaded.entries, collection.spec().dispatch);
        collection.restart(reached, trees, loaded.unreadable);
        self.shared.counters.repairs.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(collection = collection.prefix(), revision = %reached, "the cache was repaired");
        Ok(())
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

impl Shared {
    /// Decodes the events after a revision.
    fn prepare(&self, batch: TailBatch, after: Revision) -> Prepared {
        let mut changes: Vec<Vec<Change>> = Vec::new();
        changes.resize_with(self.collections.len(), Vec::new);
        for event in batch.events.into_iter().filter(|event| event.revision > after) {
            if let Some((place, change)) = self.change(event) {
                changes[place].push(change);
            }
        }
        Prepared { changes, watermark: batch.watermark }
    }

    fn publish(&self, prepared: Prepared) {
        for (place, changes) in prepared.changes.into_iter().enumerate().filter(|(_, changes)| !changes.is_empty()) {
            self.apply(place, changes);
        }
        // ORDER: after every collection has the batch.
        self.watermark.advance(prepared.watermark);
    }

    /// What an event changes, if it concerns any collection.
    fn change(&self, event: StoreEvent) -> Option<(usize, Change)> {
        let (place, key) = self.route(event.key.as_str())?;
        let revision = event.revision;
        let key = Arc::from(key);
        let content = match event.value {
            None => Content::Gone,
            Some(value) => {
                let stored = KeyValue { key: event.key, value, revision };
                self.decode(place, &stored).map_or_else(Content::Unreadable, Content::Entry)
            }
        };
        Some((place, Change { key, revision, content }))
    }
}

/// Waits until the tail tells nothing although the store has more, and says so. A tail whose connection died can look
/// for ever like one at rest.
async fn stalled(store: Arc<dyn Store>, shared: Arc<Shared>) -> StoreError {
    loop {
        tokio::time::sleep(PULSE_INTERVAL).await;
        let reached = shared.watermark.get();
        // Whether the store answers at all is asked elsewhere.
        let Ok(newest) = answer(store.current_revision()).await else { continue };
        shared.heard_of(newest);
        if shared.watermark.wait_for(newest, STALL_PATIENCE).await.is_err() && shared.watermark.get() == reached {
            return StoreError::Unavailable(format!("its tail is silent at {reached}, while it has {newest}"));
        }
    }
}

/// The store's answer, or that it takes too long.
async fn answer<T>(asked: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    let silent = |_| StoreError::Unavailable(format!("it has not answered in {ANSWER_PATIENCE:?}"));
    tokio::time::timeout(ANSWER_PATIENCE, asked).await.map_err(silent)?
}

async fn next_batch(tail: &mut Tail) -> Result<TailBatch, StoreError> {
    let ended = || StoreError::Unavailable("the tail has ended".to_owned());
    tail.next().await.unwrap_or_else(|| Err(ended()))
}
