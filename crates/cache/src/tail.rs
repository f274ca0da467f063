//! Follows one tail of the store and feeds all collections from it.
//!
//! The task of the tail is the only writer of collections. It applies the events of a batch to every collection before
//! it moves the watermark, so a reader that sees the watermark finds them all. It reopens a tail after the watermark if
//! the tail fails, or delivers nothing although the store has newer revisions. If the store has compacted the revision
//! of the watermark, the task reloads all collections, and watches end.

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

/// Limits the log lines about failed tails.
static BROKEN: RepeatLog = RepeatLog::new();

/// The maximum number of attempts of a load. A compaction restarts a load.
const LOAD_ATTEMPTS: u32 = 6;
/// The wait before a failed tail is reopened for the first time. It doubles with each further failure.
const FIRST_BACKOFF: Duration = Duration::from_millis(50);
/// The longest of these waits.
const LONGEST_BACKOFF: Duration = Duration::from_secs(5);
/// The interval between checks of the age of the history.
const AGE_INTERVAL: Duration = Duration::from_secs(5);
/// The interval between checks for revisions of the store that the tail has not delivered.
const PULSE_INTERVAL: Duration = Duration::from_secs(5);
/// The maximum time without events from a tail while the store has newer revisions.
const STALL_PATIENCE: Duration = Duration::from_secs(10);
/// The maximum time in which the store must open a tail, or return its newest revision.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);

/// A request to the tail's task, which executes it between two batches.
pub(crate) enum Command {
    /// Adds collections.
    Add(AddRequest),
    /// Removes the collections with these prefixes.
    Remove { prefixes: Vec<String>, done: oneshot::Sender<()> },
    /// Reloads a collection.
    Repair(Arc<Collection>, Cause),
}

pub(crate) struct Follower {
    store: Arc<dyn Store>,
    shared: Arc<Shared>,
    config: CacheConfig,
    commands: mpsc::Receiver<Command>,
    additions: Additions,
    /// The times of watermarks, ascending. They determine the age of events.
    marks: VecDeque<(SystemTime, Revision)>,
}

/// A decoded batch of the tail.
struct DecodedBatch {
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

    /// Applies batches until the tail fails. Returns the error.
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
                        // ORDER: the time is recorded before the batch is visible, so that a reader of the batch can
                        // resolve its time.
                        self.shared.note_time(self.config.clock.now(), prepared.watermark);
                        self.shared.publish(prepared);
                        self.additions.got_on();
                        self.shared.clear_fault();
                        // Batches may follow without a wait. Yielding lets other tasks of the worker run.
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
                // The requester may no longer wait.
                let _gone = done.send(());
            }
            Command::Repair(collection, cause) => self.additions.repair(collection, cause),
        }
    }

    /// Waits, and executes additions and removals meanwhile.
    async fn pause(&mut self, duration: Duration) {
        let mut over = pin!(tokio::time::sleep(duration));
        loop {
            tokio::select! {
                () = &mut over => return,
                Some(done) = self.additions.next() => self.additions.finish(done),
                Some(command) = self.commands.recv() => match command {
                    // The repair has to read the store, which does not answer. The next comparison finds the difference
                    // again.
                    Command::Repair(..) => {}
                    command => self.obey(command),
                },
            }
        }
    }

    /// Reopens the tail, for as long as it takes.
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
                    // A tail without pending events delivers nothing. If the store has newer revisions, the tail has to
                    // deliver them before the fault is cleared.
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

    /// Reloads all collections at the newest revision, since the events after the watermark are lost.
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
            collection.pool().consider(collection, true);
        }
        self.shared.note_time(self.config.clock.now(), revision);
        self.shared.watermark().advance(revision);
        Ok(())
    }

    /// Drops history that is older than the configured age.
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
    /// Decodes the events of a batch that are after a revision.
    fn prepare(&self, batch: &TailBatch, after: Revision) -> DecodedBatch {
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
        DecodedBatch { changes, watermark: batch.watermark }
    }

    fn publish(&self, prepared: DecodedBatch) {
        for (collection, changes) in prepared.changes {
            self.apply(&collection, changes);
        }
        // ORDER: the watermark moves after every collection has the batch.
        self.watermark().advance(prepared.watermark);
    }
}

/// Waits until the tail delivers nothing although the store has newer revisions, and returns the fault. Without this
/// check, a tail with a dead connection could look like an idle one forever.
async fn stalled(store: Arc<dyn Store>, shared: Arc<Shared>) -> StoreError {
    loop {
        tokio::time::sleep(PULSE_INTERVAL).await;
        let reached = shared.watermark().get();
        // Other components check the health of the store.
        let Ok(newest) = answer(store.current_revision()).await else { continue };
        shared.heard_of(newest);
        if shared.watermark().wait_for(newest, STALL_PATIENCE).await.is_err() && shared.watermark().get() == reached {
            return StoreError::Unavailable(format!(
                "its tail is silent at revision {reached}, and the newest is {newest}"
            ));
        }
    }
}

/// Returns the store's response, or an error after a timeout.
async fn answer<T>(error: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    let silent = |_| StoreError::Unavailable(format!("no response within {ANSWER_PATIENCE:?}"));
    tokio::time::timeout(ANSWER_PATIENCE, error).await.map_err(silent)?
}

async fn next_batch(tail: &mut Tail) -> Result<TailBatch, StoreError> {
    let ended = || StoreError::Unavailable("the tail has ended".to_owned());
    tail.next().await.unwrap_or_else(|| Err(ended()))
}
