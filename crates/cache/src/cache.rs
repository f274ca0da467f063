//! The cache of one server: all collections, one watermark, and the tasks that feed them.
//!
//! This is the interface of the crate: it starts the tasks, returns collections, and forwards additions and removals.
//! `tail` follows the store, and `shared` has the state shared with the tail's task.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use keelson_meta::Revision;
use keelson_storage::{Store, Tail};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use crate::additions::{AddError, AddRequest, Cause};
use crate::check::Checker;
use crate::collection::Collection;
use crate::config::CacheConfig;
use crate::fill::{Backfill, BackfillProgress};
use crate::fork::CacheState;
use crate::packing::{Packer, PackerGuard};
use crate::shared::{Routes, Shared};
use crate::spec::CollectionSpec;
use crate::stats::{CacheStats, Counters, TailFault};
use crate::tail::{Command, Follower};
use crate::watermark::BehindError;

/// The maximum number of pending requests to the tail's task, each for up to thousands of collections.
const COMMANDS: usize = 64;

/// All collections of a store, as of one watermark.
pub struct Cache {
    shared: Arc<Shared>,
    commands: mpsc::Sender<Command>,
    /// The progress of the history backfill.
    history: watch::Receiver<BackfillProgress>,
    tasks: Vec<AbortHandle>,
    /// Cancelled before the tasks are aborted.
    closing: CancellationToken,
    _packing: PackerGuard,
}

impl Cache {
    /// Loads the newest state of the collections, and follows the store from then on. After this returns, the cache
    /// reads older history from the store, as far as the store has it and memory allows. So snapshots and watches from
    /// before a restart work again: see [`wait_for_history`](Self::wait_for_history).
    ///
    /// # Errors
    /// A failure of the store, or overlapping prefixes.
    pub async fn start(
        store: Arc<dyn Store>,
        specs: Vec<CollectionSpec>,
        config: CacheConfig,
    ) -> Result<Arc<Self>, AddError> {
        let (closing, packing, shared) = Self::prepare(&config);
        for spec in specs {
            shared.routes(|routes| routes.is_free(&spec.prefix))?;
            shared.open(&[shared.collection(spec)]);
        }
        let (commands, received) = mpsc::channel(COMMANDS);
        let mut follower = Follower::new(store.clone(), shared.clone(), config.clone(), received);
        let (tail, loaded) = follower.start().await?;
        let (filled, history) = watch::channel(BackfillProgress::DownTo(loaded));
        let filler = Backfill { store: store.clone(), shared: shared.clone(), filled };
        let mut cache = Self { shared, commands, history, tasks: Vec::new(), closing, _packing: packing };
        cache.follow(store, follower, tail, &config);
        let filling = config.supervisor.spawn_finite("cache-history", filler.run(loaded));
        cache.tasks.push(filling.abort_handle());
        Ok(Arc::new(cache))
    }

    /// Begins with the collections of another cache, whose store had the contents of `store` at the revision of the
    /// state. Follows the store from then on. The history begins at that revision.
    ///
    /// # Errors
    /// A failure of the store.
    pub async fn from_state(
        store: Arc<dyn Store>,
        state: &CacheState,
        config: CacheConfig,
    ) -> Result<Arc<Self>, AddError> {
        let CacheState { revision, collections } = state;
        let revision = *revision;
        let (closing, packing, shared) = Self::prepare(&config);
        let begun = |state| Arc::new(Collection::from_state(state, revision, shared.environment.clone()));
        shared.open(&collections.iter().map(begun).collect::<Vec<_>>());
        shared.note_time(config.clock.now(), revision);
        shared.watermark().advance(revision);
        let (commands, received) = mpsc::channel(COMMANDS);
        let follower = Follower::new(store.clone(), shared.clone(), config.clone(), received);
        let tail = store.tail(revision).await?;
        let (_, history) = watch::channel(BackfillProgress::Entirely);
        let mut cache = Self { shared, commands, history, tasks: Vec::new(), closing, _packing: packing };
        cache.follow(store, follower, tail, &config);
        Ok(Arc::new(cache))
    }

    /// Creates the shared parts of a cache without collections.
    fn prepare(config: &CacheConfig) -> (CancellationToken, PackerGuard, Arc<Shared>) {
        let closing = CancellationToken::new();
        let packer = Arc::new(Packer::new(config.packing, config.supervisor.clone(), closing.clone()));
        let packing = PackerGuard(packer.clone());
        (closing, packing, Arc::new(Shared::new(config.history_bytes, config.view_bytes, packer)))
    }

    /// Starts the tasks that follow the store and compare the cache with it.
    fn follow(&mut self, store: Arc<dyn Store>, follower: Follower, tail: Tail, config: &CacheConfig) {
        let CacheConfig { check_interval, supervisor, .. } = config;
        self.tasks.push(supervisor.spawn("cache-tail", &self.closing, follower.run(tail)).abort_handle());
        if let Some(interval) = *check_interval {
            let checker = Checker { store, shared: self.shared.clone(), interval, commands: self.commands.clone() };
            self.tasks.push(supervisor.spawn("cache-check", &self.closing, checker.run()).abort_handle());
        }
    }

    /// The state of the collections at a revision, for the cache of a fork. Waits until the watermark has reached the
    /// revision.
    ///
    /// # Errors
    /// [`BehindError`] after `timeout`.
    pub async fn state_at(&self, revision: Revision, timeout: Duration) -> Result<CacheState, BehindError> {
        self.wait_for(revision, timeout).await?;
        Ok(CacheState::of(&self.collections(), revision))
    }

    /// The watermark: every collection has all writes up to this revision.
    pub fn watermark(&self) -> Revision {
        self.shared.watermark().get()
    }

    /// Waits until the watermark has reached a revision.
    ///
    /// # Errors
    /// [`BehindError`] after `timeout`.
    pub async fn wait_for(&self, revision: Revision, timeout: Duration) -> Result<(), BehindError> {
        self.shared.watermark().wait_for(revision, timeout).await
    }

    /// The collection of a prefix. O(log n).
    pub fn collection(&self, prefix: &str) -> Option<Arc<Collection>> {
        self.shared.routes(|routes| routes.get(prefix).cloned())
    }

    /// All current collections, by prefix.
    pub fn collections(&self) -> Vec<Arc<Collection>> {
        self.shared.collections()
    }

    /// Adds collections, all or none, and returns them in the order of the specs. When this returns, each has all
    /// objects up to the watermark, and a history from about the time of the call. Only the store has older revisions.
    ///
    /// Objects are loaded while the tail continues. Dropping the future cancels the addition, unless it was complete.
    /// Collections that were [removed](Self::remove) meanwhile are returned too, in the state
    /// [removed](Collection::is_removed).
    ///
    /// # Errors
    /// [`AddError`]. Nothing has been added then.
    pub async fn add(&self, specs: Vec<CollectionSpec>) -> Result<Vec<Arc<Collection>>, AddError> {
        self.join(specs, false).await
    }

    /// Replaces collections by others with the same prefixes and another layout, all at once or none. The old ones are
    /// removed at the same time, so their watches end. Snapshots of the old ones keep the old layout.
    ///
    /// # Errors
    /// [`AddError`]. Nothing has changed then.
    pub async fn replace(&self, specs: Vec<CollectionSpec>) -> Result<Vec<Arc<Collection>>, AddError> {
        self.join(specs, true).await
    }

    async fn join(&self, specs: Vec<CollectionSpec>, replaces: bool) -> Result<Vec<Arc<Collection>>, AddError> {
        let (done, joined) = oneshot::channel();
        let request = AddRequest { specs, replaces, done };
        self.commands.send(Command::Add(request)).await.map_err(|_| AddError::Stopped)?;
        joined.await.map_err(|_| AddError::Stopped)?
    }

    /// Removes the collections with these prefixes. Unknown prefixes have no effect. The watches end with
    /// [`TooOld`](crate::TooOld), and the histories are dropped. Existing handles keep the last state, at the last
    /// revision, and its memory.
    pub async fn remove(&self, prefixes: &[String]) {
        let (done, removed) = oneshot::channel();
        let command = Command::Remove { prefixes: prefixes.to_vec(), done };
        if self.commands.send(command).await.is_ok() {
            // A stopped cache has nothing to remove.
            let _stopped = removed.await;
        }
    }

    /// Reloads collections with unreadable values, if at least one value is readable now. The watches of these
    /// collections end then.
    pub async fn reread_unreadable(&self) {
        let unread = self.collections().into_iter().filter(|collection| collection.count_unreadable("") > 0);
        for collection in unread {
            if self.commands.send(Command::Repair(collection, Cause::Unreadable)).await.is_err() {
                return;
            }
        }
    }

    /// The oldest revision whose state may still be returned. Older revisions have left the history window, whether or
    /// not the store has dropped them.
    pub fn unexpired(&self) -> Revision {
        self.shared.environment.unexpired()
    }

    /// The newest revision at a time, if known. `None` for times before the history window or before this server's
    /// start. The resolution is a tenth of a second, and coarser with a long history.
    pub fn revision_at(&self, time: SystemTime) -> Option<Revision> {
        self.shared.environment.times.revision_at(time)
    }

    /// Waits until the backfill has reached a revision or its end, for at most `timeout`. Returns at once after its
    /// end. The collection reports if it has the revision.
    pub async fn wait_for_history(&self, revision: Revision, timeout: Duration) {
        let reached = |filled: &BackfillProgress| match filled {
            BackfillProgress::DownTo(begin) => *begin <= revision,
            BackfillProgress::Entirely => true,
        };
        let mut history = self.history.clone();
        // After a timeout, or if the cache stops, the caller's next read returns the result.
        let _waited = tokio::time::timeout(timeout, history.wait_for(reached)).await;
    }

    /// Records a revision of the store, to compute the lag of the cache.
    pub fn heard_of(&self, revision: Revision) {
        self.shared.heard_of(revision);
    }

    /// Checks that the cache receives events from the store.
    ///
    /// # Errors
    /// The fault, and the time at which it began.
    pub fn healthy(&self) -> Result<(), TailFault> {
        self.shared.fault().map_or(Ok(()), Err)
    }

    /// Drops all history up to a revision that the store has compacted or is about to compact. Snapshots and watches at
    /// or after it are not affected. [Snapshots](Collection::snapshot_at) at earlier revisions are too old from then
    /// on, even of collections without changes since.
    pub fn compacted(&self, oldest: Revision) {
        self.shared.trim(oldest);
    }

    /// The total bytes of objects that were replaced or deleted so far. A snapshot retains at most the bytes that were
    /// replaced since it was taken.
    pub fn replaced_bytes(&self) -> u64 {
        self.shared.environment.budget.replaced()
    }

    /// Statistics of the cache.
    pub fn stats(&self) -> CacheStats {
        let Counters { events, undecodable, tail_restarts, reloads, checks, repairs, snapshots_rebuilt } =
            self.shared.counters();
        let (views, view_bytes) = self.shared.environment.views.sizes();
        CacheStats {
            views,
            view_bytes,
            events: events.get(),
            undecodable: undecodable.get(),
            tail_restarts: tail_restarts.get(),
            reloads: reloads.get(),
            checks: checks.get(),
            repairs: repairs.get(),
            lag: self.shared.lag(),
            snapshots_rebuilt: snapshots_rebuilt.get(),
            history_bytes: self.shared.environment.budget.used(),
            collections: self.shared.routes(Routes::len),
            packing: self.shared.environment.packer.stats(),
        }
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        self.closing.cancel();
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}
