//! The store: one task that writes, one that follows the table, and a few connections for reads.
//!
//! The writes of all callers wait in one queue, and `batch` combines them into groups with one commit. `setup` has
//! checked the identity of the database.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use futures::future::BoxFuture;
use keelson_meta::Revision;
use keelson_storage::store::unix_seconds;
use keelson_storage::{
    CommitError, Committed, KeyValue, RangePage, RangeRequest, Scan, ScanRequest, Seal, Store, StoreError, StoreKey,
    Tail, Transaction,
};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use super::access::Purpose;
use super::config::PostgresConfig;
use super::error::{PostgresError, QueryFault, stopped, unheard};
use super::feed;
use super::read::{self, State};
use super::refusal::Refusal;
use super::rows::DetectedLoss;
use super::scan;
use super::seen::KnownRevisions;
use super::session::{Connector, LONG, Link, Pool, SHORT, Session};
use super::setup;
use super::statements::is_storable;
use super::stats::PostgresCounters;
use super::writer::{Job, Writer};
use crate::tail;

/// The number of transactions that may wait for the writer. Further callers wait for space in the queue.
const QUEUE: usize = 1024;

/// The timeout of a health check. It is short, because the caller needs a result now.
const CHECK: Duration = Duration::from_secs(2);

/// A store in one PostgreSQL database, which other servers may use at the same time.
///
/// Dropping it finishes the waiting writes. Tails end with an error.
pub struct PostgresStore {
    pub(super) shared: Arc<Shared>,
    jobs: mpsc::Sender<Job>,
    following: AbortHandle,
    /// Cancelled when the tasks must end.
    closing: CancellationToken,
}

/// The state that tasks, readers and tails share.
pub(crate) struct Shared {
    pub(crate) connector: Arc<Connector>,
    /// The link for short queries. Many share one connection.
    front: Link,
    pub(crate) readers: Pool,
    pub(crate) maintenance: Link,
    /// The state of refused writes.
    pub(crate) refusal: Refusal,
    /// The loss of rows, if one was found.
    pub(crate) loss: DetectedLoss,
    /// The state of the writer. Some readers wait for the end of its group.
    pub(crate) turn: watch::Sender<Turn>,
}

/// The state of the writer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Turn {
    /// True while a group is in flight.
    pub(crate) busy: bool,
    /// The number of finished groups.
    pub(crate) done: u64,
}

impl Shared {
    pub(crate) fn seen(&self) -> &KnownRevisions {
        &self.connector.seen
    }

    /// Returns a result if it belongs to the known history and is not older than the highest revision before the query.
    pub(super) async fn believed<T>(
        &self,
        asked: impl Future<Output = Result<(State, T), tokio_postgres::Error>>,
    ) -> Result<(State, T), QueryFault> {
        let before = self.seen().highest();
        let answer = asked.await?;
        self.seen().believe(before, answer.0)?;
        Ok(answer)
    }
}

impl PostgresStore {
    /// Opens the store. Creates the tables in an empty database. Needs a Tokio runtime, and starts two tasks on it.
    ///
    /// # Errors
    /// The database can't be reached within some seconds, was written by a newer keelson, or refuses the connection.
    pub fn open(config: PostgresConfig) -> BoxFuture<'static, Result<Self, PostgresError>> {
        // The future is boxed, so that the PostgreSQL client is compiled into this crate only.
        Box::pin(Self::connect(config))
    }

    async fn connect(config: PostgresConfig) -> Result<Self, PostgresError> {
        let connector = Arc::new(Connector::new(&config));
        let connected = connector.patiently(|| connector.connect(Purpose::Read)).await;
        let (client, driver) = connected.map_err(|unreached| PostgresError::Connect(unreached.why))?;
        let (least, first) = (config.least_revision, config.first.as_ref());
        setup::prepare(&client, least, config.existing, first, config.accept_loss).await?;
        drop((client, driver));
        let shared = Arc::new(Shared {
            front: Link::new(connector.clone(), SHORT, Purpose::Read),
            readers: Pool::new(&connector, config.readers),
            maintenance: Link::new(connector.clone(), LONG, Purpose::Write),
            refusal: Refusal::default(),
            loss: DetectedLoss::default(),
            turn: watch::Sender::default(),
            connector,
        });
        // ORDER: before any read, the first session determines the history of the database.
        shared.front.session().await.map_err(|error| PostgresError::Connect(error.to_string()))?;
        let (jobs, waiting) = mpsc::channel(QUEUE);
        let closing = CancellationToken::new();
        let writer = Writer { shared: shared.clone(), jobs: waiting };
        config.supervisor.spawn("store-writer", &closing, writer.run());
        let following = config.supervisor.spawn("store-feed", &closing, feed::follow(shared.clone())).abort_handle();
        Ok(Self { shared, jobs, following, closing })
    }

    /// The counters of calls to PostgreSQL.
    pub fn counters(&self) -> Arc<PostgresCounters> {
        self.shared.connector.counters.clone()
    }

    pub(super) async fn state(&self) -> Result<State, StoreError> {
        let asked = |session: Arc<Session>| {
            self.shared.believed(async move { read::state(&session).await.map(|state| (state, ())) })
        };
        Ok(self.shared.front.read(asked).await?.0)
    }

    /// Sends a transaction to the writer. Once it is queued, it is executed even if the caller stops waiting.
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
        self.closing.cancel();
        self.following.abort();
        self.shared.seen().fail(stopped());
    }
}

#[async_trait]
impl Store for PostgresStore {
    async fn commit(&self, transaction: Transaction) -> Result<Committed, CommitError> {
        let compared = transaction.compares.iter().map(|compare| &compare.key);
        let mut keys = compared.chain(transaction.writes.iter().map(keelson_storage::Write::key));
        if let Some(key) = keys.find(|key| !is_storable(key)) {
            let why = format!("PostgreSQL has no zero bytes in texts, and the key {:?} has one", key.as_str());
            return Err(StoreError::Unstorable(why).into());
        }
        // The writer has ended, or has stopped waiting for the result, while the transaction was in flight.
        self.queue(transaction).await?.await.map_err(|_| CommitError::from(unheard()))?
    }

    async fn get(&self, key: &StoreKey) -> Result<Option<KeyValue>, StoreError> {
        if !is_storable(key) {
            return Ok(None);
        }
        self.shared.loss.check()?;
        let asked = |session: Arc<Session>| self.shared.believed(async move { read::get(&session, key).await });
        Ok(self.shared.front.read(asked).await?.1)
    }

    async fn range(&self, request: RangeRequest) -> Result<RangePage, StoreError> {
        self.shared.loss.check()?;
        let request = &request;
        let asked = |session: Arc<Session>| self.shared.believed(async move { read::range(&session, request).await });
        let (state, (entries, more)) = self.shared.readers.read(asked).await?;
        let revision = request.revision.unwrap_or(state.revision);
        // The rows and the state belong to one snapshot. If the revision is readable in this state, its rows were all
        // there.
        state.check_readable(revision)?;
        Ok(RangePage { entries, revision, more })
    }

    fn scan(&self, request: ScanRequest) -> Option<Scan> {
        Some(scan::stream(self.shared.clone(), request))
    }

    async fn count(&self, request: RangeRequest) -> Result<u64, StoreError> {
        self.shared.loss.check()?;
        let request = &request;
        let asked = |session: Arc<Session>| self.shared.believed(async move { read::count(&session, request).await });
        let (state, count) = self.shared.readers.read(asked).await?;
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

    fn refusal(&self) -> Option<String> {
        self.shared.refusal.check().err().map(|error| error.to_string())
    }

    fn seal(&self, _key: &str) -> Seal {
        Seal::PLAIN
    }

    async fn check(&self) -> Result<(), StoreError> {
        match tokio::time::timeout(CHECK, self.state()).await {
            Ok(state) => state.and_then(|_| self.shared.refusal.check()).and_then(|()| self.shared.loss.check()),
            Err(_) => Err(StoreError::Unavailable(format!("PostgreSQL gave no answer within {CHECK:?}"))),
        }
    }

    async fn verify(&self) -> Result<(), StoreError> {
        self.count_rows().await
    }
}
