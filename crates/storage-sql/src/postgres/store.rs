//! The contract, kept by one writer task, one that follows the table, and a few connections that read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use keelson_meta::Revision;
use keelson_storage::store::unix_seconds;
use keelson_storage::{
    CommitError, Committed, KeyValue, RangePage, RangeRequest, Store, StoreError, StoreKey, Tail, Transaction,
};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;

use super::config::PostgresConfig;
use super::error::{PostgresError, exchanged, stopped};
use super::feed;
use super::read::{self, State};
use super::session::{Connector, LONG, Link, Pool, SHORT};
use super::setup;
use super::statements::is_storable;
use super::stats::PostgresCounters;
use super::timeline::Timeline;
use super::writer::{Job, Writer};
use crate::tail;

/// How many transactions may wait for the writer; further callers wait for a place.
const QUEUE: usize = 1024;

/// How long a health check waits. Others have more patience, but who asks this wants to know now.
const CHECK: Duration = Duration::from_secs(2);

/// A store in one PostgreSQL database, which other servers may use at the same time.
///
/// Dropping it finishes the writes that wait; tails end with an error.
pub struct PostgresStore {
    pub(super) shared: Arc<Shared>,
    jobs: mpsc::Sender<Job>,
    following: AbortHandle,
}

/// What the tasks, the readers and the tails have in common.
pub(crate) struct Shared {
    pub(crate) connector: Arc<Connector>,
    /// Which history this is.
    pub(crate) incarnation: i64,
    /// For short questions, many at a time on one connection.
    front: Link,
    pub(crate) readers: Pool,
    pub(crate) maintenance: Link,
    pub(crate) timeline: Mutex<Timeline>,
    pub(crate) told: watch::Sender<Told>,
    /// The highest revision that was ever seen.
    highest: AtomicU64,
}

/// How far tails can read.
pub(crate) struct Told {
    pub(crate) newest: Revision,
    /// Why there will be no more.
    pub(crate) failed: Option<StoreError>,
}

impl Shared {
    /// The highest revision that was seen so far. A question that is asked now is answered by this or a higher one.
    pub(crate) fn highest(&self) -> Revision {
        Revision::new(self.highest.load(Ordering::SeqCst))
    }

    pub(crate) fn seen(&self, revision: Revision) {
        self.highest.fetch_max(revision.get(), Ordering::SeqCst);
    }

    /// Checks that an answer is of the history that this store was opened on, and not older than what was seen before the
    /// question: a database that was restored, or a replica that had missed commits, is not served.
    pub(crate) fn believe(&self, before: Revision, state: State) -> Result<(), StoreError> {
        if state.incarnation != self.incarnation {
            return Err(exchanged());
        }
        if state.revision < before {
            return Err(StoreError::Corrupt(format!(
                "the database has gone back from revision {before} to {}: it lost commits in a failover, or an older state \
                 was restored; after a restore, call keelson_restored() in it and restart the servers",
                state.revision
            )));
        }
        self.seen(state.revision);
        Ok(())
    }

    /// Changes the timeline, and wakes the tails if there is more to tell.
    pub(crate) fn tell(&self, change: impl FnOnce(&mut Timeline)) {
        let mut timeline = self.timeline.lock();
        change(&mut timeline);
        let newest = timeline.newest();
        // ORDER: told before the timeline is unlocked, so that the told revision never goes back.
        self.told.send_if_modified(|told| std::mem::replace(&mut told.newest, newest) != newest);
    }

    /// Ends all tails.
    pub(crate) fn fail(&self, error: StoreError) {
        self.told.send_modify(|told| told.failed = Some(error));
    }
}

impl PostgresStore {
    /// Opens the store; an empty database is made one. Needs a Tokio runtime, on which it leaves two tasks.
    ///
    /// # Errors
    /// When the database can't be reached within some seconds, was written by a newer keelson, or refuses.
    pub async fn open(config: PostgresConfig) -> Result<Self, PostgresError> {
        let connector = Arc::new(Connector::new(&config));
        let connected = connector.patiently(|| connector.connect()).await;
        let (client, _driver) = connected.map_err(PostgresError::Connect)?;
        let found = setup::prepare(&client, config.least_revision).await?;
        let shared = Arc::new(Shared {
            incarnation: found.incarnation,
            front: Link::new(connector.clone(), SHORT),
            readers: Pool::new(&connector, config.readers),
            maintenance: Link::new(connector.clone(), LONG),
            timeline: Mutex::new(Timeline::new(found.revision, config.recent_bytes)),
            told: watch::Sender::new(Told { newest: found.revision, failed: None }),
            highest: AtomicU64::new(found.revision.get()),
            connector,
        });
        let (jobs, waiting) = mpsc::channel(QUEUE);
        tokio::spawn(Writer { shared: shared.clone(), jobs: waiting }.run());
        let following = tokio::spawn(feed::follow(shared.clone())).abort_handle();
        Ok(Self { shared, jobs, following })
    }

    /// What happened on the way to PostgreSQL; the counters go on as long as the store does.
    pub fn counters(&self) -> Arc<PostgresCounters> {
        self.shared.connector.counters.clone()
    }

    pub(super) async fn state(&self) -> Result<State, StoreError> {
        let before = self.shared.highest();
        let state = self.shared.front.read(|session| async move { read::state(&session).await }).await?;
        self.shared.believe(before, state)?;
        Ok(state)
    }

    /// Has the writer do a transaction. Once it is queued it is done, even if the caller stops waiting.
    pub(super) async fn queue(
        &self,
        transaction: Transaction,
    ) -> Result<oneshot::Receiver<Result<Committed, CommitError>>, StoreError> {
        let (answer, answered) = oneshot::channel();
        self.jobs.send(Job { transaction, answer }).await.map_err(|_| stopped())?;
        Ok(answered)
    }
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        self.following.abort();
        self.shared.fail(stopped());
    }
}

#[async_trait]
impl Store for PostgresStore {
    async fn commit(&self, transaction: Transaction) -> Result<Committed, CommitError> {
        let compared = transaction.compares.iter().map(|compare| &compare.key);
        if !compared.chain(transaction.writes.iter().map(keelson_storage::Write::key)).all(is_storable) {
            let error = StoreError::Corrupt("PostgreSQL can't hold a key with a zero byte".to_owned());
            return Err(error.into());
        }
        self.queue(transaction).await?.await.map_err(|_| CommitError::from(stopped()))?
    }

    async fn get(&self, key: &StoreKey) -> Result<Option<KeyValue>, StoreError> {
        if !is_storable(key) {
            return Ok(None);
        }
        let before = self.shared.highest();
        let (state, found) = self.shared.front.read(|session| async move { read::get(&session, key).await }).await?;
        self.shared.believe(before, state)?;
        Ok(found)
    }

    async fn range(&self, request: RangeRequest) -> Result<RangePage, StoreError> {
        let (before, request) = (self.shared.highest(), &request);
        let (state, (entries, more)) =
            self.shared.readers.read(|session| async move { read::range(&session, request).await }).await?;
        self.shared.believe(before, state)?;
        let revision = request.revision.unwrap_or(state.revision);
        // The rows are of the same moment as the state: what it allows to be read was there.
        state.check_readable(revision)?;
        Ok(RangePage { entries, revision, more })
    }

    async fn count(&self, request: RangeRequest) -> Result<u64, StoreError> {
        let (before, request) = (self.shared.highest(), &request);
        let (state, count) =
            self.shared.readers.read(|session| async move { read::count(&session, request).await }).await?;
        self.shared.believe(before, state)?;
        state.check_readable(request.revision.unwrap_or(state.revision))?;
        Ok(count)
    }

    async fn current_revision(&self) -> Result<Revision, StoreError> {
        Ok(self.state().await?.revision)
    }

    async fn oldest_revision(&self) -> Result<Revision, StoreError> {
        Ok(self.state().await?.oldest)
    }

    async fn tail(&self, after: Revision) -> Result<Tail, StoreError> {
        self.state().await?.check_readable(after)?;
        Ok(tail::stream(self.shared.clone(), after))
    }

    async fn compact(&self, oldest: Revision) -> Result<(), StoreError> {
        self.forget(oldest).await
    }

    async fn expire(&self, now: SystemTime) -> Result<usize, StoreError> {
        self.end(i64::try_from(unix_seconds(now)).unwrap_or(i64::MAX)).await
    }

    async fn check(&self) -> Result<(), StoreError> {
        match tokio::time::timeout(CHECK, self.state()).await {
            Ok(state) => state.map(|_| ()),
            Err(_) => Err(StoreError::Unavailable(format!("PostgreSQL gave no answer within {CHECK:?}"))),
        }
    }
}
