//! The store: one writer thread and a few readers.
//!
//! SQLite allows only one writer. A separate thread lets all waiting transactions share one fsync. Reads never wait for
//! it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::SystemTime;

use async_trait::async_trait;
use keelson_meta::Revision;
use keelson_storage::crowd::beyond;
use keelson_storage::store::unix_seconds;
use keelson_storage::{
    CommitError, Committed, KeyValue, RangePage, RangeRequest, Scan, ScanRequest, Seal, Store, StoreError, StoreEvent,
    StoreKey, Tail, Transaction,
};
use keelson_supervision::Supervisor;
use parking_lot::Mutex;
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::recent::Recent;
use crate::sqlite::checkpoint::Checkpoints;
use crate::sqlite::error::{OpenError, stopped};
use crate::sqlite::index;
use crate::sqlite::mark::MarkFile;
use crate::sqlite::noting::PendingStart;
use crate::sqlite::open::{
    DirectoryLock, OpenRecord, Opening, SqliteConfig, SqlitePath, check_there, open_memory, open_other, open_roomy,
};
use crate::sqlite::place::Places;
use crate::sqlite::read;
use crate::sqlite::readers::Readers;
use crate::sqlite::reserve::Reserve;
use crate::sqlite::scan;
use crate::sqlite::schema::{self, Fact};
use crate::sqlite::shrink;
use crate::sqlite::space::{Allowance, Space, SpaceGauges};
use crate::sqlite::writer::{Job, WRITER, Writer};
use crate::tail;

/// The number of jobs that may wait for the writer. Further callers wait for space in the queue.
const QUEUE: usize = 1024;

/// A store in one SQLite database.
///
/// Dropping it finishes the waiting writes, closes the database and unlocks the data directory. Tails end with an
/// error.
pub struct SqliteStore {
    shared: Arc<Shared>,
    /// None only while the store is being dropped.
    jobs: Option<mpsc::Sender<Job>>,
    writer: Option<JoinHandle<()>>,
    /// Cancelled when the writer must end.
    closing: CancellationToken,
    _lock: Option<DirectoryLock>,
}

/// The parts of a store that depend on a directory, without the connections.
struct OnDisk {
    space: Space,
    checkpoints: Option<Checkpoints>,
    mark: Option<MarkFile>,
    noting: Option<PendingStart>,
    places: Option<Places>,
    lock: Option<DirectoryLock>,
}

impl OnDisk {
    /// The parts of a store in memory.
    const fn none(space: Space) -> Self {
        Self { space, checkpoints: None, mark: None, noting: None, places: None, lock: None }
    }
}

/// The state that the writer, the readers and the tails share.
pub(crate) struct Shared {
    pub(crate) readers: Arc<Readers>,
    pub(crate) newest: watch::Receiver<Revision>,
    pub(crate) recent: Mutex<Recent>,
    oldest: AtomicU64,
    gauges: Arc<SpaceGauges>,
    /// The revision of an early compaction.
    crowded: Arc<watch::Sender<Revision>>,
}

impl Shared {
    /// The oldest readable revision.
    ///
    /// A read below the newest revision must check this after it has read. Compaction raises this revision before it
    /// deletes rows that only older revisions need. So the result is complete if this revision is not above the read's
    /// revision after the read.
    pub(crate) fn oldest(&self) -> Revision {
        Revision::new(self.oldest.load(Ordering::SeqCst))
    }

    pub(crate) fn raise_oldest(&self, oldest: Revision) {
        self.oldest.store(oldest.get(), Ordering::SeqCst);
    }

    pub(crate) fn remember(&self, events: Vec<StoreEvent>) {
        self.recent.lock().push(events);
    }

    /// The newest revision that is durable.
    pub(crate) fn newest(&self) -> Revision {
        *self.newest.borrow()
    }

    pub(crate) fn check_not_compacted(&self, revision: Revision) -> Result<(), StoreError> {
        let oldest = self.oldest();
        if revision < oldest { Err(StoreError::Compacted { requested: revision, oldest }) } else { Ok(()) }
    }

    pub(crate) fn check_readable(&self, revision: Revision) -> Result<(), StoreError> {
        let current = self.newest();
        if revision > current {
            return Err(StoreError::Future { requested: revision, current });
        }
        self.check_not_compacted(revision)
    }
}

impl SqliteStore {
    /// Opens the store. Creates an empty one if there is none. Needs no runtime.
    ///
    /// # Errors
    /// Another server owns the directory, a newer keelson wrote the store, or the disk fails.
    pub fn open(config: SqliteConfig) -> Result<Self, OpenError> {
        let SqliteConfig { path, readers, recent_bytes, least_revision, log_bytes, accept_loss, existing, .. } = config;
        let SqliteConfig {
            quota_bytes, history_bytes, reserve_bytes, disk, supervisor, first, unsafe_no_fsync, ..
        } = config;
        match path {
            SqlitePath::InMemory => {
                let mut connection = open_memory()?;
                schema::raise_revision(&mut connection, least_revision)
                    .map_err(OpenError::sqlite(Path::new(":memory:")))?;
                let connection = Arc::new(Mutex::new(connection));
                let readers = Readers::shared(connection.clone());
                let space = Space::unbounded();
                Self::start(Path::new(":memory:"), connection, readers, recent_bytes, OnDisk::none(space), &supervisor)
            }
            SqlitePath::Directory(directory) => {
                if existing {
                    // ORDER: this check comes before the lock, which creates the directory.
                    check_there(&directory)?;
                }
                let lock = DirectoryLock::take(&directory)?;
                let mut reserve = Reserve::find(&directory, disk, reserve_bytes);
                let how = Opening { accept_loss, first: first.as_ref(), unsafe_no_fsync };
                let (mut connection, noted) = open_roomy(&directory, how, &mut reserve)?;
                schema::raise_revision(&mut connection, least_revision).map_err(OpenError::sqlite(&directory))?;
                let connection = Arc::new(Mutex::new(connection));
                let pool = (0..readers.max(1)).map(|_| open_other(&directory)).collect::<Result<Vec<_>, _>>()?;
                let mut checkpoints = Checkpoints::start(open_other(&directory)?, log_bytes, &supervisor)
                    .map_err(OpenError::io(directory.as_path()))?;
                checkpoints.bound(reserve.bytes());
                let places = Places::note(&directory).map_err(OpenError::io(directory.as_path()))?;
                let readers = Readers::pool(pool);
                let allowance = Allowance { quota: quota_bytes, history: history_bytes };
                let space = Space::new(allowance, Some(reserve));
                let (mark, noting) = match noted {
                    OpenRecord::Whole(mark) => (Some(mark), None),
                    OpenRecord::Pending(noting) => (None, Some(noting)),
                };
                let (checkpoints, places, lock) = (Some(checkpoints), Some(places), Some(lock));
                let on_disk = OnDisk { space, checkpoints, mark, noting, places, lock };
                Self::start(&directory, connection, readers, recent_bytes, on_disk, &supervisor)
            }
        }
    }

    /// Gauges of the store's space. They can be read after the store is dropped.
    pub fn gauges(&self) -> Arc<SpaceGauges> {
        self.shared.gauges.clone()
    }

    fn start(
        path: &Path,
        connection: Arc<Mutex<Connection>>,
        readers: Readers,
        recent_bytes: usize,
        OnDisk { space, checkpoints, mark, noting, places, lock }: OnDisk,
        supervisor: &Supervisor,
    ) -> Result<Self, OpenError> {
        let (revision, oldest, shrinks) = {
            let opened = connection.lock();
            let revision = schema::newest_revision(&opened).map_err(OpenError::sqlite(path))?;
            let oldest = Fact::Oldest.get(&opened).map_err(OpenError::sqlite(path))?;
            (revision, oldest, shrink::is_possible(&opened).map_err(OpenError::sqlite(path))?)
        };
        let (newest, watched) = watch::channel(revision);
        let shared = Arc::new(Shared {
            readers: Arc::new(readers),
            newest: watched,
            recent: Mutex::new(Recent::new(revision, recent_bytes)),
            oldest: AtomicU64::new(oldest.get()),
            gauges: space.gauges(),
            crowded: space.crowded(),
        });
        let (jobs, waiting) = mpsc::channel(QUEUE);
        let writer = Writer {
            connection,
            shared: shared.clone(),
            jobs: waiting,
            newest,
            checkpoints,
            mark,
            noting,
            places,
            supervisor: supervisor.clone(),
            committing: false,
            full: false,
            space,
            shrinks,
            shrunk: false,
            failed: None,
        };
        let closing = CancellationToken::new();
        let writer = supervisor.spawn_thread(WRITER, &closing, move || writer.run()).map_err(OpenError::io(path))?;
        Ok(Self { shared, jobs: Some(jobs), writer: Some(writer), closing, _lock: lock })
    }

    /// Runs a query about a range at one revision. Returns the revision too.
    async fn read_range<T: Send + 'static>(
        &self,
        request: RangeRequest,
        query: fn(&Connection, (&StoreKey, &StoreKey), Revision, usize) -> rusqlite::Result<T>,
    ) -> Result<(T, Revision), StoreError> {
        let RangeRequest { from, to, revision: asked, limit } = request;
        let (from, to, limit) = (Arc::new(from), Arc::new(to), limit.unwrap_or(usize::MAX));
        loop {
            let revision = asked.unwrap_or_else(|| self.shared.newest());
            self.shared.check_readable(revision)?;
            let (from, to) = (from.clone(), to.clone());
            let found =
                self.shared.readers.read(move |connection| query(connection, (&from, &to), revision, limit)).await?;
            match self.shared.check_not_compacted(revision) {
                Ok(()) => return Ok((found, revision)),
                Err(error) if asked.is_some() => return Err(error),
                // A compaction has passed the revision meanwhile. The retry uses the newest revision, which is never
                // compacted.
                Err(_) => {}
            }
        }
    }

    /// Sends a job to the writer. Once it is queued, it is executed even if the caller stops waiting.
    async fn ask<T>(&self, job: impl FnOnce(oneshot::Sender<T>) -> Job) -> Result<T, StoreError> {
        let (answer, answered) = oneshot::channel();
        let jobs = self.jobs.as_ref().ok_or_else(stopped)?;
        jobs.send(job(answer)).await.map_err(|_| stopped())?;
        answered.await.map_err(|_| stopped())
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        // ORDER: the writer ends and every connection that can write is closed before the directory is unlocked, which
        // happens when the fields are dropped.
        self.closing.cancel();
        self.jobs = None;
        if let Some(writer) = self.writer.take() {
            // The supervisor has recorded a panic of the writer.
            let _ = writer.join();
        }
        self.shared.readers.close();
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn commit(&self, transaction: Transaction) -> Result<Committed, CommitError> {
        let (answer, answered) = oneshot::channel();
        let jobs = self.jobs.as_ref().ok_or_else(stopped)?;
        jobs.send(Job::Commit { transaction, answer }).await.map_err(|_| stopped())?;
        let unheard = |_| StoreError::Unknown("the store's writer has ended in the middle of it".to_owned());
        answered.await.map_err(unheard)?
    }

    async fn get(&self, key: &StoreKey) -> Result<Option<KeyValue>, StoreError> {
        loop {
            let revision = self.shared.newest();
            let wanted = key.clone();
            let found = self.shared.readers.read(move |connection| read::get(connection, &wanted, revision)).await?;
            if self.shared.check_not_compacted(revision).is_ok() {
                return Ok(found);
            }
        }
    }

    async fn range(&self, request: RangeRequest) -> Result<RangePage, StoreError> {
        let (page, revision) = self.read_range(request, read::range).await?;
        Ok(RangePage { entries: page.0, revision, more: page.1 })
    }

    fn scan(&self, request: ScanRequest) -> Option<Scan> {
        Some(scan::stream(self.shared.clone(), request))
    }

    async fn count(&self, request: RangeRequest) -> Result<u64, StoreError> {
        Ok(self.read_range(request, read::count).await?.0)
    }

    async fn current_revision(&self) -> Result<Revision, StoreError> {
        Ok(self.shared.newest())
    }

    fn known_revision(&self) -> Option<Revision> {
        Some(self.shared.newest())
    }

    async fn oldest_revision(&self) -> Result<Revision, StoreError> {
        Ok(self.shared.oldest())
    }

    async fn tail(&self, after: Revision) -> Result<Tail, StoreError> {
        self.shared.check_readable(after)?;
        Ok(tail::stream(self.shared.clone(), after))
    }

    async fn compact(&self, oldest: Revision) -> Result<(), StoreError> {
        self.ask(|answer| Job::Compact { oldest, answer }).await??;
        while self.ask(|answer| Job::Sweep { answer }).await?? {}
        while self.ask(|answer| Job::Shrink { answer }).await?? {}
        Ok(())
    }

    async fn crowded(&self) -> Revision {
        beyond(&self.shared.crowded, || self.shared.oldest()).await
    }

    fn history_limit(&self) -> Option<u64> {
        self.shared.gauges.history_limit()
    }

    fn free_bytes(&self) -> Option<u64> {
        self.shared.gauges.free()
    }

    async fn expire(&self, now: SystemTime) -> Result<usize, StoreError> {
        let now = unix_seconds(now);
        let mut count = 0;
        loop {
            let expired = self.ask(|answer| Job::Expire { now, answer }).await??;
            count += expired.count;
            if !expired.more {
                return Ok(count);
            }
        }
    }

    async fn verify(&self) -> Result<(), StoreError> {
        let compared = |connection: &rusqlite::Connection| {
            // The index and the recorded number of rows are read in one snapshot.
            let moment = connection.unchecked_transaction()?;
            index::check(&moment)?;
            moment.commit()
        };
        self.shared.readers.read(compared).await
    }

    fn refusal(&self) -> Option<String> {
        self.shared.gauges.refusal()
    }

    fn seal(&self, _key: &str) -> Seal {
        Seal::PLAIN
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.ask(|answer| Job::Check { answer }).await?
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    fn big(number: usize) -> Transaction {
        Transaction::default().put(StoreKey::new(format!("/big/{number:03}")), vec![1; 20_000])
    }

    /// After a write fails because the disk is full, nothing of it is stored, and the store continues once there is
    /// space.
    #[tokio::test]
    async fn a_full_disk_fails_the_write_and_nothing_else() {
        let connection = Arc::new(Mutex::new(open_memory().unwrap()));
        let limit = |pages: u32| connection.lock().pragma_update(None, "max_page_count", pages).unwrap();
        limit(60);
        let readers = Readers::shared(connection.clone());
        let name = Path::new(":memory:");
        let store = SqliteStore::start(
            name,
            connection.clone(),
            readers,
            1 << 20,
            OnDisk::none(Space::unbounded()),
            &Supervisor::default(),
        )
        .unwrap();
        let mut acknowledged = Vec::new();
        let error = loop {
            match store.commit(big(acknowledged.len())).await {
                Ok(committed) => acknowledged.extend(committed.revisions),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, CommitError::Store(StoreError::Full(_))), "{error}");
        assert!(!acknowledged.is_empty());
        let before = store.current_revision().await.unwrap();
        assert_eq!(acknowledged.last(), Some(&before));
        let small = Transaction::default().put(StoreKey::new("/small"), "fits");
        // The disk has space for half of this transaction.
        assert!(
            store
                .commit(Transaction { writes: [small.writes, big(999).writes].concat(), ..Transaction::default() })
                .await
                .is_err()
        );
        assert_eq!(store.get(&StoreKey::new("/small")).await.unwrap(), None);
        assert_eq!(store.current_revision().await.unwrap(), before);
        limit(10_000);
        store.check().await.unwrap();
        assert_eq!(store.commit(big(999)).await.unwrap().revisions, vec![before.next()]);
    }

    #[tokio::test]
    async fn a_group_that_can_not_begin_answers_its_callers() {
        let connection = Arc::new(Mutex::new(open_memory().unwrap()));
        let (readers, space) = (Readers::shared(connection.clone()), OnDisk::none(Space::unbounded()));
        let store = SqliteStore::start(
            Path::new(":memory:"),
            connection.clone(),
            readers,
            1 << 20,
            space,
            &Supervisor::default(),
        );
        let store = store.unwrap();
        // The writer's transaction can't begin within another one.
        connection.lock().execute_batch("BEGIN").unwrap();
        let refused = store.commit(big(1)).await.unwrap_err();
        assert!(matches!(refused, CommitError::Store(StoreError::Unavailable(_))), "{refused}");
        store.commit(big(1)).await.unwrap();
    }

    /// A job that arrives while the writer executes others is written and synced with them.
    #[tokio::test]
    async fn writes_during_a_commit_join_the_next_group() {
        let connection = Arc::new(Mutex::new(open_memory().unwrap()));
        let readers = Readers::shared(connection.clone());
        let name = Path::new(":memory:");
        let store = SqliteStore::start(
            name,
            connection.clone(),
            readers,
            1 << 20,
            OnDisk::none(Space::unbounded()),
            &Supervisor::default(),
        )
        .unwrap();
        // The writer measures the space once before it executes jobs.
        store.check().await.unwrap();
        let held = connection.lock();
        let before = store.shared.newest();
        let put = |key: &'static str| Box::pin(store.commit(Transaction::default().put(StoreKey::new(key), "x")));
        let (mut first, mut second) = (put("/first"), put("/second"));
        assert!((&mut first).now_or_never().is_none());
        while store.jobs.as_ref().unwrap().capacity() < QUEUE {
            std::thread::yield_now();
        }
        assert!((&mut second).now_or_never().is_none());
        drop(held);
        first.await.unwrap();
        assert_eq!(store.shared.newest(), before.next().next());
        second.await.unwrap();
    }

    /// The supervisor is notified, and callers get an error instead of waiting.
    #[tokio::test]
    async fn a_writer_that_panics_is_reported() {
        let supervisor = Supervisor::default();
        let store = SqliteStore::open(SqliteConfig { supervisor: supervisor.clone(), ..SqliteConfig::in_memory() });
        let store = store.unwrap();
        assert!(store.ask(|answer| Job::Panic { answer }).await.is_err());
        assert_eq!(
            supervisor.failed().await.to_string(),
            "fatal: store-writer has panicked: told to; the server can't go on without it"
        );
        assert!(matches!(store.check().await, Err(StoreError::Unavailable(_))));
        let well = Supervisor::default();
        drop(SqliteStore::open(SqliteConfig { supervisor: well.clone(), ..SqliteConfig::in_memory() }).unwrap());
        assert!(well.tasks().iter().all(|(_, failure)| failure.is_none()), "a store that is closed has not failed");
    }
}
