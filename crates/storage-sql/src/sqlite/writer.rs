//! The only thread that writes.
//!
//! The writer executes all waiting jobs, and jobs that arrive meanwhile, in one database transaction, and answers them
//! when it is durable. The more callers wait, the more share an fsync. A refused job has written nothing and does not
//! affect its group. If the database fails, the whole group fails, and nothing of it is stored.

use std::collections::VecDeque;
use std::sync::Arc;

use keelson_meta::Revision;
use keelson_storage::{CommitError, Committed, StoreError, Transaction};
use keelson_supervision::{Supervisor, error_repeated};
use parking_lot::Mutex;
use rusqlite::{Connection, ErrorCode};
use tokio::sync::{mpsc, oneshot, watch};

use crate::sqlite::checkpoint::Checkpoints;
use crate::sqlite::commit::{self, Group};
use crate::sqlite::error::{disk_full, stopped, store_error};
use crate::sqlite::expiry::{self, Expired};
use crate::sqlite::losses;
use crate::sqlite::mark::MarkFile;
use crate::sqlite::noting::PendingStart;
use crate::sqlite::place::Places;
use crate::sqlite::schema::Fact;
use crate::sqlite::shrink;
use crate::sqlite::space::{Pages, Space};
use crate::sqlite::store::Shared;
use crate::sqlite::sweep;

/// The name of the thread.
pub(crate) const WRITER: &str = "store-writer";

/// The maximum number of jobs in a database transaction.
const MAX_GROUP: usize = 256;

/// The bytes of values at which a group is full. On a full disk, a group must fit into the reserve.
const MAX_GROUP_BYTES: u64 = 4 * 1024 * 1024;

/// The approximate number of bytes that a step of a sweep or of shrinking appends to the log.
const STEP_LOG_BYTES: usize = 1024 * 1024;

/// A job of the writer, and the channel for its result. It is executed even if its caller is gone.
pub(crate) enum Job {
    Commit {
        transaction: Transaction,
        answer: oneshot::Sender<Result<Committed, CommitError>>,
    },
    /// Raises the oldest readable revision.
    Compact {
        oldest: Revision,
        answer: oneshot::Sender<Result<(), StoreError>>,
    },
    /// Deletes some rows that compaction has made unreadable. The result is true if more remain.
    Sweep {
        answer: oneshot::Sender<Result<bool, StoreError>>,
    },
    /// Returns some free pages to the disk. The result is true if there are more to return.
    Shrink {
        answer: oneshot::Sender<Result<bool, StoreError>>,
    },
    /// Deletes some of the keys that expired at or before this second.
    Expire {
        now: u64,
        answer: oneshot::Sender<Result<Expired, StoreError>>,
    },
    /// Sends a result, which shows that the writer works.
    Check {
        answer: oneshot::Sender<Result<(), StoreError>>,
    },
    #[cfg(test)]
    Panic {
        answer: oneshot::Sender<()>,
    },
}

/// An executed job, whose group is not yet durable.
enum Done {
    Commit(oneshot::Sender<Result<Committed, CommitError>>, Result<Committed, CommitError>),
    Compact(oneshot::Sender<Result<(), StoreError>>, Result<(), StoreError>),
    /// A step of a sweep or of shrinking.
    Sweep(oneshot::Sender<Result<bool, StoreError>>, bool),
    Expire(oneshot::Sender<Result<Expired, StoreError>>, Expired),
    Check(oneshot::Sender<Result<(), StoreError>>),
}

/// The state of the thread.
pub(crate) struct Writer {
    pub(crate) connection: Arc<Mutex<Connection>>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) jobs: mpsc::Receiver<Job>,
    pub(crate) newest: watch::Sender<Revision>,
    /// None in memory, which has no log.
    pub(crate) checkpoints: Option<Checkpoints>,
    /// Records the newest acknowledged revision. None in memory.
    pub(crate) mark: Option<MarkFile>,
    /// The incomplete record that the store is open, while the disk has no space for it.
    pub(crate) noting: Option<PendingStart>,
    /// The names of the files. None in memory.
    pub(crate) places: Option<Places>,
    /// Notified when the store can't write any more.
    pub(crate) supervisor: Supervisor,
    /// True while a group is being made durable. If this fails, the outcome of the group is unknown.
    pub(crate) committing: bool,
    /// True if the disk was full at the last write.
    pub(crate) full: bool,
    /// The space of the store.
    pub(crate) space: Space,
    /// True if the file can return pages to the disk.
    pub(crate) shrinks: bool,
    /// True after pages were returned, until the log is moved, which makes the file shorter.
    pub(crate) shrunk: bool,
    /// The reason for which nothing is written any more, after the disk has failed.
    pub(crate) failed: Option<String>,
}

impl Writer {
    /// Runs until the store is closed and all waiting jobs are done.
    pub(crate) fn run(mut self) {
        {
            let (connection, newest) = (self.connection.clone(), *self.newest.borrow());
            self.space.measure(&connection.lock(), newest);
        }
        let mut jobs = Vec::with_capacity(MAX_GROUP);
        let mut waiting = VecDeque::with_capacity(MAX_GROUP);
        while self.jobs.blocking_recv_many(&mut jobs, MAX_GROUP) > 0 {
            waiting.extend(jobs.drain(..));
            while !waiting.is_empty() {
                self.do_group(&mut waiting);
            }
        }
        // ORDER: the thread that moves the log ends before the rest of the log is moved here.
        self.checkpoints = None;
        let is_in_place = self.places.as_ref().is_none_or(|places| places.check().is_ok());
        // Files whose names are gone are not changed, so that the operator can copy them.
        if self.failed.is_none()
            && is_in_place
            && let Err(error) = losses::end(&self.connection.lock(), self.mark.take())
        {
            tracing::warn!(%error, "moving the log of the store into its file failed; the next start retries");
        }
    }

    /// Executes the jobs of one group, and answers them.
    fn do_group(&mut self, waiting: &mut VecDeque<Job>) {
        if let Some(reason) = &self.failed {
            return waiting.drain(..).for_each(|job| job.fail(&StoreError::Unavailable(reason.clone())));
        }
        if let Some(Err(why)) = self.places.as_ref().map(Places::check) {
            return waiting.drain(..).for_each(|job| job.fail(&StoreError::ReadOnly(why.clone())));
        }
        let connection = self.connection.clone();
        let connection = connection.lock();
        if let Err(why) = self.note_open(&connection) {
            return waiting.drain(..).for_each(|job| job.fail(&why));
        }
        let mut group = Group::behind(*self.newest.borrow());
        let mut done = Vec::with_capacity(waiting.len());
        match self.write_group(&connection, &mut group, waiting, &mut done) {
            Ok(oldest) => self.finish_group(&connection, group, oldest, done),
            Err(error) => {
                let error = self.undo(&connection, &error);
                if done.is_empty() {
                    // The group could not begin. The waiting jobs would fail in the same way.
                    waiting.drain(..).for_each(|job| job.fail(&error));
                }
                done.into_iter().for_each(|done| done.fail(&error));
            }
        }
    }

    /// Tries again to record that the store is open, if the disk had no space for the whole record.
    ///
    /// # Errors
    /// Nothing may be written before the record is made.
    fn note_open(&mut self, connection: &Connection) -> Result<(), StoreError> {
        let Some(noting) = &mut self.noting else { return Ok(()) };
        if noting.may_write() && self.space.is_full() {
            return Ok(());
        }
        match noting.make(connection) {
            Ok(Some(mark)) => {
                (self.mark, self.noting) = (Some(mark), None);
                Ok(())
            }
            Ok(None) if noting.may_write() => Ok(()),
            Ok(None) => Err(self.make_room(connection)),
            Err(error) => Err(StoreError::Unavailable(error.to_string())),
        }
    }

    /// Publishes a durable group, answers its jobs, and updates the measured space.
    fn finish_group(&mut self, connection: &Connection, group: Group, oldest: Option<Revision>, done: Vec<Done>) {
        let Group { revision, bytes, superseded, puts, .. } = group;
        let rows = group.events.len();
        if let Some(mark) = &mut self.mark {
            // ORDER: the mark is written before a client can see the revision, so every revision that a client has seen
            // is recorded.
            mark.note(revision);
        }
        self.publish(group, oldest);
        let is_asked = done.iter().any(|done| matches!(done, Done::Check(_)));
        let steps = done.iter().filter(|done| matches!(done, Done::Sweep(_, _))).count();
        let is_last = done.iter().any(|done| matches!(done, Done::Sweep(_, false)));
        done.into_iter().for_each(Done::answer);
        if let Some(oldest) = oldest {
            self.space.compacted(oldest);
        }
        self.space.appended(connection, revision, bytes, superseded, puts);
        if is_asked || steps > 0 {
            self.space.measure(connection, revision);
        }
        if let Some(checkpoints) = &mut self.checkpoints {
            checkpoints.bound(self.space.reserve_bytes());
            let bytes = bytes as usize + steps * STEP_LOG_BYTES;
            if is_last && std::mem::take(&mut self.shrunk) {
                checkpoints.now(connection);
            } else {
                checkpoints.after_group(connection, rows, bytes, self.space.is_full());
            }
        }
    }

    /// Executes all jobs in one database transaction. Returns the new oldest readable revision, if a job raised it.
    fn write_group(
        &mut self,
        connection: &Connection,
        group: &mut Group,
        waiting: &mut VecDeque<Job>,
        done: &mut Vec<Done>,
    ) -> rusqlite::Result<Option<Revision>> {
        let mut oldest = None;
        self.committing = false;
        connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        // Jobs that arrive meanwhile join the group, and need no separate sync.
        while group.bytes < MAX_GROUP_BYTES
            && let Some(job) = waiting.pop_front().or_else(|| self.latecomer(done.len()))
        {
            let (ended, failed) = self.do_job(connection, group, &mut oldest, job);
            done.push(ended);
            failed?;
        }
        if self.full {
            // The write needs space, so its success shows that space is available.
            Fact::Probes.set(connection, Fact::Probes.get(connection)?.next())?;
        }
        self.committing = true;
        connection.prepare_cached("COMMIT")?.execute([])?;
        self.full = false;
        Ok(oldest)
    }

    /// Returns a job that arrived meanwhile, if the group of `group` jobs is not full.
    fn latecomer(&mut self, group: usize) -> Option<Job> {
        (group < MAX_GROUP).then(|| self.jobs.try_recv().ok()).flatten()
    }

    /// Executes a job. If the database fails, the job's caller gets the same error as the rest of the group.
    fn do_job(
        &mut self,
        connection: &Connection,
        group: &mut Group,
        oldest: &mut Option<Revision>,
        job: Job,
    ) -> (Done, rusqlite::Result<()>) {
        /// The result of a job. For a failed job, a placeholder that is not sent.
        fn split<T>(done: rusqlite::Result<T>, failed: T) -> (T, rusqlite::Result<()>) {
            match done {
                Ok(done) => (done, Ok(())),
                Err(error) => (failed, Err(error)),
            }
        }
        match job {
            Job::Commit { transaction, answer } => {
                // ORDER: a refusal is also sent after the group is durable, since it may contain a value that the group
                // has written.
                let admit = |transaction: &Transaction, before, puts| self.space.admit(transaction, before, puts);
                let outcome = commit::apply(connection, group, transaction, admit);
                let (outcome, failed) = split(outcome, Err(stopped().into()));
                (Done::Commit(answer, outcome), failed)
            }
            Job::Compact { oldest: wanted, answer } if wanted > group.revision => {
                let future = StoreError::Future { requested: wanted, current: group.revision };
                (Done::Compact(answer, Err(future)), Ok(()))
            }
            Job::Compact { oldest: wanted, answer } => {
                let mut failed = Ok(());
                if wanted > oldest.unwrap_or_else(|| self.shared.oldest()) {
                    failed = Fact::Oldest.set(connection, wanted);
                    *oldest = Some(wanted);
                }
                (Done::Compact(answer, Ok(())), failed)
            }
            // ORDER: rows are deleted only below the published oldest revision, and never below one that this group
            // raises, since readers check the published revision after they have read.
            Job::Sweep { answer } => {
                let (more, failed) = split(sweep::step(connection, self.shared.oldest()), false);
                (Done::Sweep(answer, more), failed)
            }
            Job::Shrink { answer } => {
                let (more, failed) = split(self.shrink(connection), false);
                (Done::Sweep(answer, more), failed)
            }
            Job::Expire { now, answer } => {
                let nothing = Expired { count: 0, more: false };
                let (expired, failed) = split(expiry::step(connection, group, now), nothing);
                (Done::Expire(answer, expired), failed)
            }
            Job::Check { answer } => (Done::Check(answer), Ok(())),
            #[cfg(test)]
            Job::Panic { .. } => panic!("told to"),
        }
    }

    /// Returns some pages to the disk. Returns true if there are more to return.
    fn shrink(&mut self, connection: &Connection) -> rusqlite::Result<bool> {
        if !self.shrinks {
            return Ok(false);
        }
        let pages = self.space.to_give_back(Pages::count(connection)?);
        if pages > 0 {
            shrink::step(connection, pages)?;
            self.shrunk = true;
        }
        Ok(pages > shrink::STEP_PAGES)
    }

    /// Makes a durable group visible.
    fn publish(&self, group: Group, oldest: Option<Revision>) {
        // ORDER: the changes are in memory before the revision is published to tails, and both precede the answers. So
        // a read that starts after an answer sees the write.
        self.shared.remember(group.events);
        if let Some(oldest) = oldest {
            self.shared.raise_oldest(oldest);
        }
        self.newest.send_if_modified(|newest| std::mem::replace(newest, group.revision) != group.revision);
    }

    /// Rolls back a failed group. Returns the error for its callers.
    fn undo(&mut self, connection: &Connection, error: &rusqlite::Error) -> StoreError {
        error_repeated!(""; %error, "a group of writes has failed");
        let is_full = error.sqlite_error_code() == Some(ErrorCode::DiskFull);
        self.full |= is_full;
        // SQLite itself ends the transaction after some errors.
        let undone = connection.is_autocommit() || connection.execute_batch("ROLLBACK").is_ok();
        // After the disk fails in a write or a sync, its content is unknown. A later success proves nothing, since the
        // kernel reports a lost page once. Only a new start from the content of the disk is safe.
        let disk_failed = error.sqlite_error_code() == Some(ErrorCode::SystemIoFailure);
        if !undone || disk_failed {
            self.failed = Some(format!("the disk has failed, and nothing is written before a restart: {error}"));
            self.supervisor.fail(WRITER, format!("can't make writes durable, since the disk has failed: {error}"));
        }
        if disk_failed && self.committing {
            // The group may be on the disk, and then the next start finds it.
            return StoreError::Unknown(error.to_string());
        }
        if is_full && self.failed.is_none() { self.make_room(connection) } else { store_error(error) }
    }

    /// Releases the reserve after the disk became full, and moves the log with the space that this frees. Returns the
    /// error for the callers of the group whose write failed.
    fn make_room(&mut self, connection: &Connection) -> StoreError {
        if !self.space.disk_is_full(*self.newest.borrow()) {
            return disk_full();
        }
        if let Some(checkpoints) = &mut self.checkpoints {
            checkpoints.now(connection);
        }
        // A retry of a deletion succeeds now.
        StoreError::Unavailable("the disk is full; the reserve was freed for deletions".to_owned())
    }
}

impl Job {
    fn fail(self, error: &StoreError) {
        match self {
            Self::Commit { answer, .. } => drop(answer.send(Err(error.clone().into()))),
            Self::Compact { answer, .. } | Self::Check { answer } => drop(answer.send(Err(error.clone()))),
            Self::Sweep { answer } | Self::Shrink { answer } => drop(answer.send(Err(error.clone()))),
            Self::Expire { answer, .. } => drop(answer.send(Err(error.clone()))),
            #[cfg(test)]
            Self::Panic { answer } => drop(answer),
        }
    }
}

impl Done {
    fn answer(self) {
        match self {
            Self::Commit(answer, outcome) => drop(answer.send(outcome)),
            Self::Compact(answer, outcome) => drop(answer.send(outcome)),
            Self::Sweep(answer, more) => drop(answer.send(Ok(more))),
            Self::Expire(answer, expired) => drop(answer.send(Ok(expired))),
            Self::Check(answer) => drop(answer.send(Ok(()))),
        }
    }

    fn fail(self, error: &StoreError) {
        match self {
            Self::Commit(answer, _) => drop(answer.send(Err(error.clone().into()))),
            Self::Compact(answer, _) | Self::Check(answer) => drop(answer.send(Err(error.clone()))),
            Self::Sweep(answer, _) => drop(answer.send(Err(error.clone()))),
            Self::Expire(answer, _) => drop(answer.send(Err(error.clone()))),
        }
    }
}
