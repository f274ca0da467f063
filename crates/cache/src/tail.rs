//! Follows one tail of the store and feeds all collections from it.
//!
//! It is the only writer of collections. Events of a batch are applied to every collection before the watermark moves,
//! so a reader that sees the watermark finds them all. A tail that fails, or is silent about newer revisions, is
//! reopened after the watermark. If the store has compacted past it, everything is reloaded and watches end.

use std::collections::{HashMap, VecDeque};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures::StreamExt;
use keelson_meta::Revision;
use keelson_storage::{Store, StoreError, Tail, TailBatch};
use keelson_supervision::RepeatLog;
use tokio::sync::{mpsc, oneshot};

use crate::additions::{AddRequest, Additions, Cause};
use crate::collection::{Change, Collection};
use crate::config::CacheConfig;
use crate::load;
use crate::shared::Shared;

/// The failures of tails.
static BROKEN: RepeatLog = RepeatLog::new();

/// The maximum number of loads that are restarted because of a compaction.
const LOAD_ATTEMPTS: u32 = 6;
/// The first wait before a failed tail is reopened. It doubles with each further one.
const FIRST_BACKOFF: Duration = Duration::from_millis(50);
/// The maximum of these waits.
const LONGEST_BACKOFF: Duration = Duration::from_secs(5);
/// The interval of checking the age of the history.
const AGE_INTERVAL: Duration = Duration::from_secs(5);
/// The interval of checking whether the store has revisions that the tail has not delivered.
const PULSE_INTERVAL: Duration = Duration::from_secs(5);
/// The maximum silence of a tail while the store has newer revisions.
const STALL_PATIENCE: Duration = Duration::from_secs(10);
/// The maximum time of the store for opening a tail, or returning its newest revision.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);

/// A request to the tail's task, executed between two batches.
pub(crate) enum Command {
    /// Adds collections.
    Add(AddRequest),
    /// Removes the collections with these prefixes.
    Remove { prefixes: Vec<String>, done: oneshot::Sender<()> },
    /// A collection has to be loaded anew.
    Repair(Arc<Collection>, Cause),
}

pub(crate) struct Follower {
    store: Arc<dyn Store>,
    shared: Arc<Shared>,
    config: CacheConfig,
    commands: mpsc::Receiver<Command>,
    additions: Additions,
    /// Times of watermarks, ascending, which determine the age of events.
    marks: VecDeque<(SystemTime, Revision)>,
}

/// A decoded batch of the tail.
struct Prepared {
    /// The changes of each affected collection.
    changes: Vec<(Arc<Collection>, Vec<Change>)>,
    watermark: Revision,
}

impl Follower {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        shared: Arc<Shared>,
        config: CacheConfig,
        commands: mpsc::Receiver<Command>,
    ) -> Self {
        let additions = Additions::new(store.clone(), shared.clone());
        Self { store, shared, config, commands, additions, marks: VecDeque::new() }
    }

    /// Loads the newest state and opens the tail after it. Returns the tail and the loaded revision.
    pub(crate) async fn start(&mut self) -> Result<(Tail, Revision), StoreError> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            match self.try_start().await {
                Err(StoreError::Compacted { .. }) if attempt < LOAD_ATTEMPTS => {}
                done => return done,
            }
        }
    }

    async fn try_start(&mut self) -> Result<(Tail, Revision), StoreError> {
        let newest = self.store.current_revision().await?;
        self.load(newest).await?;
        Ok((self.store.tail(newest).await?, newest))
    }

    /// Follows the tail forever.
    pub(crate) async fn run(mut self, tail: Tail) {
        let mut tail = tail;
        let mut backoff = FIRST_BACKOFF;
        loop {
            let before = self.shared.watermark().get();
            let error = self.follow(&mut tail).await;
            if self.shared.watermark().get() > before {
                backoff = FIRST_BACKOFF;
            }
            tail = self.reopen(error, &mut backoff).await;
        }
    }

    /// Applies batches until the tail fails.
    async fn follow(&mut self, tail: &mut Tail) -> StoreError {
        let mut age = tokio::time::interval(AGE_INTERVAL);
        let mut stalled = pin!(stalled(self.store.clone(), self.shared.clone()));
        loop {
            tokio::select! {
                batch = next_batch(tail) => match batch {
                    Ok(batch) => {
                        let after = self.shared.watermark().get();
                        self.additions.note(&batch, after);
                        let prepared = self.shared.prepare(&batch, after);
                        // ORDER: recorded before the batch is visible, so that a reader of it can resolve its time.
                        self.shared.note_time(self.config.clock.now(), prepared.watermark);
                        self.shared.publish(prepared);
                        self.additions.got_on();
                        self.shared.clear_fault();
                        // Batches may follow without a wait. This lets other tasks of the worker run.
                        tokio::task::yield_now().await;
                    }
                    Err(error) => return error,
                },
                _ = age.tick() => self.drop_aged(),
                error = &mut stalled => return error,
                Some(done) = self.additions.next() => self.additions.finish(done),
                Some(command) = self.commands.recv() => self.obey(command),
            }
        }
    }

    /// Executes a request.
    ///
    /// ORDER: no batch is half applied.
    fn obey(&mut self, command: Command) {
        match command {
            Command::Add(request) => self.additions.begin(request),
            Command::Remove { prefixes, done } => {
                self.additions.close(&prefixes);
                self.shared.close(&prefixes);
                // The sender may have been dropped.
                let _gone = done.send(());
            }
            Command::Repair(collection, cause) => self.additions.repair(collection, cause),
        }
    }

    /// Waits, while additions and removals continue.
    async fn pause(&mut self, duration: Duration) {
        let mut over = pin!(tokio::time::sleep(duration));
        loop {
            tokio::select! {
                () = &mut over => return,
                Some(done) = self.additions.next() => self.additions.finish(done),
                Some(command) = self.commands.recv() => match command {
                    // It has to be loaded from the store, which does not answer; it will be found again.
                    Command::Repair(..) => {}
                    command => self.obey(command),
                },
            }
        }
    }

    /// Reopens the tail, however long it takes.
    async fn reopen(&mut self, error: StoreError, backoff: &mut Duration) -> Tail {
        let mut error = error;
        loop {
            let reached = self.shared.watermark().get();
            if let Some(due) = BROKEN.failed("") {
                let repeats = due.repeats;
                tracing::warn!(%error, revision = %reached, repeats, "the store's tail failed; reopening it");
            }
            self.shared.set_fault(self.config.clock.now(), &error);
            self.shared.counters().tail_restarts.add(1);
            self.pause(*backoff).await;
            *backoff = (*backoff * 2).min(LONGEST_BACKOFF);
            let opened = match answer(self.store.tail(reached)).await {
                Err(StoreError::Compacted { .. }) => self.reload().await,
                other => other,
            };
            match (opened, answer(self.store.current_revision()).await) {
                (Ok(tail), Ok(newest)) => {
                    // An idle tail delivers nothing. One with newer revisions has to deliver before the fault is
                    // cleared.
                    if self.shared.watermark().get() >= newest {
                        self.shared.clear_fault();
                    }
                    if let Some(due) = BROKEN.worked("") {
                        tracing::info!(repeats = due.repeats, "the store's tail is open again");
                    }
                    return tail;
                }
                (Err(failed), _) | (_, Err(failed)) => error = failed,
            }
        }
    }

    /// Reloads everything at the newest revision, since the events since the watermark are lost.
    async fn reload(&mut self) -> Result<Tail, StoreError> {
        let newest = answer(self.store.current_revision()).await?;
        self.load(newest).await?;
        self.additions.begin_again();
        self.shared.counters().reloads.add(1);
        answer(self.store.tail(newest)).await
    }

    /// Replaces all collections by the store's state at a revision.
    async fn load(&self, revision: Revision) -> Result<(), StoreError> {
        let collections = self.shared.collections();
        let loaded = load::collections(&self.store, &self.shared, &collections, revision).await?;
        for (collection, loaded) in collections.iter().zip(loaded) {
            collection.restart(revision, loaded.trees, loaded.unreadable);
        }
        self.shared.note_time(self.config.clock.now(), revision);
        self.shared.watermark().advance(revision);
        Ok(())
    }

    /// Drops history beyond the configured age.
    fn drop_aged(&mut self) {
        let now = self.config.clock.now();
        let reached = self.shared.watermark().get();
        if self.marks.back().is_none_or(|(_, revision)| *revision < reached) {
            self.marks.push_back((now, reached));
        }
        let history = self.config.history;
        if let Some(begin) = now.checked_sub(history) {
            self.shared.forget_times(begin);
        }
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
    fn prepare(&self, batch: &TailBatch, after: Revision) -> Prepared {
        let mut changes: Vec<(Arc<Collection>, Vec<Change>)> = Vec::new();
        let mut places = HashMap::new();
        for event in batch.events.iter().filter(|event| event.revision > after) {
            let found = self.routes(|routes| routes.route(event.key.as_str()).map(|(to, key)| (to.clone(), key)));
            let Some((collection, key)) = found else { continue };
            let change = self.change(&collection, key, event);
            let place = *places.entry(Arc::as_ptr(&collection)).or_insert_with(|| {
                changes.push((collection, Vec::new()));
                changes.len() - 1
            });
            changes[place].1.push(change);
        }
        Prepared { changes, watermark: batch.watermark }
    }

    fn publish(&self, prepared: Prepared) {
        for (collection, changes) in prepared.changes {
            self.apply(&collection, changes);
        }
        // ORDER: after every collection has the batch.
        self.watermark().advance(prepared.watermark);
    }
}

/// Waits until the tail is silent although the store has newer revisions, and returns the fault. A tail with a dead
/// connection can look like an idle one forever.
async fn stalled(store: Arc<dyn Store>, shared: Arc<Shared>) -> StoreError {
    loop {
        tokio::time::sleep(PULSE_INTERVAL).await;
        let reached = shared.watermark().get();
        // The health of the store is checked elsewhere.
        let Ok(newest) = answer(store.current_revision()).await else { continue };
        shared.heard_of(newest);
        if shared.watermark().wait_for(newest, STALL_PATIENCE).await.is_err() && shared.watermark().get() == reached {
            return StoreError::Unavailable(format!(
                "its tail is silent at revision {reached}, and the newest is {newest}"
            ));
        }
    }
}

/// The store's response, or a timeout.
async fn answer<T>(asked: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    let silent = |_| StoreError::Unavailable(format!("it has not answered in {ANSWER_PATIENCE:?}"));
    tokio::time::timeout(ANSWER_PATIENCE, asked).await.map_err(silent)?
}

async fn next_batch(tail: &mut Tail) -> Result<TailBatch, StoreError> {
    let ended = || StoreError::Unavailable("the tail has ended".to_owned());
    tail.next().await.unwrap_or_else(|| Err(ended()))
}
