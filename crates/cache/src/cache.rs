//! The cache of one server: all collections, one watermark, and the tasks that keep them fed.
//!
//! This is the face of the crate: it starts the tasks, hands out collections, and passes on what is to be added or
//! removed. What follows the store is in `tail`; what is shared with it is in `shared`.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use keelson_meta::Revision;
use keelson_storage::Store;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use crate::additions::{AddError, AddRequest, Cause};
use crate::check::Checker;
use crate::collection::Collection;
use crate::config::CacheConfig;
use crate::fill::{Filled, Filler};
use crate::shared::{Routes, Shared};
use crate::spec::CollectionSpec;
use crate::stats::{CacheStats, Counters, TailFault};
use crate::tail::{Command, Follower};
use crate::watermark::Behind;

/// How many requests to the tail's task may wait, each of which may be about thousands of collections.
const COMMANDS: usize = 64;

/// All collections of a store, as of one watermark.
pub struct Cache {
    shared: Arc<Shared>,
    commands: mpsc::Sender<Command>,
    /// How far the history of before the start has been filled in.
    history: watch::Receiver<Filled>,
    tasks: Vec<AbortHandle>,
    /// Cancelled before the tasks are aborted.
    closing: CancellationToken,
}

impl Cache {
    /// Loads the newest state of the collections and follows the store from then on. Returns then; what happened before is
    /// filled in afterwards, as far as the store knows it and there is room. So old snapshots and watches work again after
    /// a restart: see [`wait_for_history`](Self::wait_for_history).
    ///
    /// # Errors
    /// When the store fails, or two prefixes overlap.
    pub async fn start(
        store: Arc<dyn Store>,
        specs: Vec<CollectionSpec>,
        config: CacheConfig,
    ) -> Result<Arc<Self>, AddError> {
        let shared = Arc::new(Shared::new(config.history_bytes, config.view_bytes));
        for spec in specs {
            shared.routes(|routes| routes.is_free(&spec.prefix))?;
            shared.open(&[shared.collection(spec)]);
        }
        let (commands, received) = mpsc::channel(COMMANDS);
        let (checks, supervisor) = (config.check_interval, config.supervisor.clone());
        let mut follower = Follower::new(store.clone(), shared.clone(), config, received);
        let (tail, loaded) = follower.start().await?;
        let (filled, history) = watch::channel(Filled::DownTo(loaded));
        let filler = Filler { store: store.clone(), shared: shared.clone(), filled };
        let closing = CancellationToken::new();
        let mut tasks = vec![
            supervisor.spawn("cache-tail", &closing, follower.run(tail)).abort_handle(),
            supervisor.spawn_finite("cache-history", filler.run(loaded)).abort_handle(),
        ];
        if let Some(interval) = checks {
            let checker = Checker { store, shared: shared.clone(), interval, commands: commands.clone() };
            tasks.push(supervisor.spawn("cache-check", &closing, checker.run()).abort_handle());
        }
        Ok(Arc::new(Self { shared, commands, history, tasks, closing }))
    }

    /// The revision up to which every collection shows every write.
    pub fn watermark(&self) -> Revision {
        self.shared.watermark().get()
    }

    /// Waits until the watermark has reached a revision.
    ///
    /// # Errors
    /// [`Behind`] when it has not within `timeout`.
    pub async fn wait_for(&self, revision: Revision, timeout: Duration) -> Result<(), Behind> {
        self.shared.watermark().wait_for(revision, timeout).await
    }

    /// The collection of what is stored below a prefix. O(log n).
    pub fn collection(&self, prefix: &str) -> Option<Arc<Collection>> {
        self.shared.routes(|routes| routes.get(prefix).cloned())
    }

    /// All collections there are at this moment, by prefix.
    pub fn collections(&self) -> Vec<Arc<Collection>> {
        self.shared.collections()
    }

    /// Adds collections, all of them or none, and returns them in the order of the specs. Each has all that is stored up to
    /// the watermark when this returns, and a history from about the moment of the call on: for older revisions only the
    /// store can answer.
    ///
    /// The objects are read beside the tail, which goes on meanwhile. Who drops the future adds nothing, unless it was done.
    /// What is [removed](Self::remove) meanwhile is returned too, as a collection that [was](Collection::is_removed).
    ///
    /// # Errors
    /// [`AddError`]; nothing has been added then.
    pub async fn add(&self, specs: Vec<CollectionSpec>) -> Result<Vec<Arc<Collection>>, AddError> {
        self.join(specs, false).await
    }

    /// Replaces collections by others with the same prefixes, whose objects are looked at in another way: all of them at one
    /// moment, or none. The ones before are removed in that moment, so their watches end; what is held of them is read as
    /// they were.
    ///
    /// # Errors
    /// [`AddError`]; nothing has changed then.
    pub async fn replace(&self, specs: Vec<CollectionSpec>) -> Result<Vec<Arc<Collection>>, AddError> {
        self.join(specs, true).await
    }

    async fn join(&self, specs: Vec<CollectionSpec>, replaces: bool) -> Result<Vec<Arc<Collection>>, AddError> {
        let (done, joined) = oneshot::channel();
        let request = AddRequest { specs, replaces, done };
        self.commands.send(Command::Add(request)).await.map_err(|_| AddError::Stopped)?;
        joined.await.map_err(|_| AddError::Stopped)?
    }

    /// Removes the collections with these prefixes; others are ignored. Their watches end with
    /// [`TooOld`](crate::TooOld), and their histories are dropped; a handle that somebody still has shows the last state,
    /// at the last revision, and keeps its memory.
    pub async fn remove(&self, prefixes: &[String]) {
        let (done, removed) = oneshot::channel();
        let command = Command::Remove { prefixes: prefixes.to_vec(), done };
        if self.commands.send(command).await.is_ok() {
            // A cache that has stopped has nothing left to remove.
            let _stopped = removed.await;
        }
    }

    /// Loads collections anew that have values which could not be read, where one can be read now. Their watches end then.
    pub async fn reread_unreadable(&self) {
        let unread = self.collections().into_iter().filter(|collection| collection.count_unreadable("") > 0);
        for collection in unread {
            if self.commands.send(Command::Repair(collection, Cause::Unreadable)).await.is_err() {
                return;
            }
        }
    }

    /// The oldest revision of which a state may still be shown: older ones have left the window for which history is kept,
    /// and the store may or may not have dropped them already.
    pub fn unexpired(&self) -> Revision {
        self.shared.environment.unexpired()
    }

    /// The newest revision at a time, as far as this server knows; `None` where it knows nothing of that time, because it is longer ago
    /// than history is kept, or before its start. It is as exact as a tenth of a second, and less where history is kept for long.
    pub fn revision_at(&self, time: SystemTime) -> Option<Revision> {
        self.shared.environment.times.revision_at(time)
    }

    /// Waits until the history of before the start has been filled in down to a revision, or as far as it will be, but no
    /// longer than `timeout`. Returns at once when that is done. Whether a collection has the revision then it says itself.
    pub async fn wait_for_history(&self, revision: Revision, timeout: Duration) {
        let reached = |filled: &Filled| match filled {
            Filled::DownTo(begin) => *begin <= revision,
            Filled::Entirely => true,
        };
        let mut history = self.history.clone();
        // Who has waited in vain, or for a cache that stops, finds out by asking.
        let _waited = tokio::time::timeout(timeout, history.wait_for(reached)).await;
    }

    /// Notes that the store has a revision, for the figure by how much the cache is behind.
    pub fn heard_of(&self, revision: Revision) {
        self.shared.heard_of(revision);
    }

    /// Whether the cache hears from the store.
    ///
    /// # Errors
    /// What is wrong, and since when.
    pub fn healthy(&self) -> Result<(), TailFault> {
        self.shared.fault().map_or(Ok(()), Err)
    }

    /// Drops all history up to a revision, as the store has done or is about to do. Snapshots and watches at or after
    /// it are not affected; [snapshots](Collection::snapshot_at) before it are too old from then on, also of collections in
    /// which nothing has happened since.
    pub fn compacted(&self, oldest: Revision) {
        self.shared.trim(oldest);
    }

    /// How many bytes of objects were replaced or deleted so far, ever growing. A snapshot that is held keeps at most what was
    /// replaced since it was taken.
    pub fn replaced_bytes(&self) -> u64 {
        self.shared.environment.budget.replaced()
    }

    /// What the cache has done so far.
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
        }
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        self.closing.cancel();
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}
