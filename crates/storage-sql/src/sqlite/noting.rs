//! Records that a server has a store open, in the database itself and in the [mark](super::mark). By this record, a
//! later start detects losses of the files.
//!
//! A full disk has space for neither, or only for the first. The log gets no writes before the database records that it
//! is open, so the log is never taken for an older one. The mark follows as soon as there is space.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use keelson_meta::Revision;
use rusqlite::{Connection, ErrorCode};

use crate::sqlite::error::{OpenError, is_full};
use crate::sqlite::mark::{MARK, Mark, MarkFile};
use crate::sqlite::open::{DATABASE_FILE, LOG, sync_directory};
use crate::sqlite::private::beside;
use crate::sqlite::schema::{self, Fact};

/// The start number in a database that is open without a mark.
pub(crate) const UNMARKED: Revision = Revision::new(i64::MAX.unsigned_abs());

/// The record of one start that is not yet complete.
#[derive(Debug)]
pub(crate) struct PendingStart {
    directory: PathBuf,
    /// The name of the store in its facts.
    store: u64,
    start: u64,
    /// True once the database records that it is open.
    said: bool,
}

impl PendingStart {
    pub(crate) const fn new(directory: PathBuf, store: u64, start: u64) -> Self {
        Self { directory, store, start, said: false }
    }

    /// Returns true if the log may get writes: a later start recognizes them as writes of this start.
    pub(crate) const fn may_write(&self) -> bool {
        self.said
    }

    /// Writes the record, as far as the disk has space. Returns the mark once the record is complete.
    ///
    /// # Errors
    /// The disk fails for another reason than missing space.
    pub(crate) fn make(&mut self, connection: &Connection) -> Result<Option<MarkFile>, OpenError> {
        let database = self.directory.join(DATABASE_FILE);
        let path = beside(&database, MARK);
        let revision = schema::newest_revision(connection).map_err(OpenError::sqlite(&database))?;
        let mark = Mark { store: self.store, start: self.start - 1, revision, log: None };
        // ORDER: the mark is durable before the database records that there is one.
        let made = MarkFile::make(&path, mark);
        let (open, made) = match made {
            Ok(made) => {
                sync_directory(&self.directory)?;
                (Revision::new(self.start), Some(made))
            }
            Err(error) if is_full(&error) => {
                if !self.said {
                    tracing::warn!(%error, "no disk space for {}{MARK}; retrying when there is", DATABASE_FILE);
                }
                (UNMARKED, None)
            }
            Err(error) => return Err(OpenError::io(path)(error)),
        };
        if made.is_none() && self.said {
            return Ok(None);
        }
        match self.say_open(connection, open) {
            Ok(()) => self.said = true,
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DiskFull) => {
                tracing::warn!(%error, "no disk space to mark the store as open: writes are refused until there is");
                return Ok(None);
            }
            Err(error) => return Err(OpenError::sqlite(database)(error)),
        }
        let Some(mut mark) = made else {
            remove_mark(&path);
            return Ok(None);
        };
        let log = beside(&database, LOG);
        mark.follow(self.start, File::open(&log).map_err(OpenError::io(&log))?);
        Ok(Some(mark))
    }

    /// Records in the database that it is open, and moves the record into the database file. The log has a frame from
    /// then on.
    fn say_open(&self, connection: &Connection, open: Revision) -> rusqlite::Result<()> {
        let transaction = connection.unchecked_transaction()?;
        Fact::Store.set(&transaction, Revision::new(self.store))?;
        Fact::Starts.set(&transaction, Revision::new(self.start))?;
        Fact::Open.set(&transaction, open)?;
        transaction.commit()?;
        // ORDER: the log keeps its frames. If it were truncated here, it would look like a lost log after a crash.
        connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))
    }
}

/// Removes the mark of an earlier start, which does not fit the log of this one. The database does not expect a mark
/// any more.
fn remove_mark(path: &Path) {
    if let Err(error) = fs::remove_file(path)
        && error.kind() != ErrorKind::NotFound
    {
        tracing::warn!(%error, mark = %path.display(), "deleting an outdated mark beside the store failed");
    }
}
