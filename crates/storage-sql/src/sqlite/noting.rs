//! The note that a server has a store open: in the database itself, and in the [mark](super::mark). A later start knows by it what the
//! files have lost.
//!
//! A disk without room takes neither, or the first alone. Nothing is written to the log before the database says that it is open, so a
//! log is never taken for one of an earlier time. The mark follows as soon as there is room.

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

/// The number of the start in a database that is open without a mark.
pub(crate) const UNMARKED: Revision = Revision::new(i64::MAX.unsigned_abs());

/// The note of one start, which is still to be made.
#[derive(Debug)]
pub(crate) struct Noting {
    directory: PathBuf,
    /// The store, as its facts name it.
    store: u64,
    start: u64,
    /// True once the database says that it is open.
    said: bool,
}

impl Noting {
    pub(crate) const fn new(directory: PathBuf, store: u64, start: u64) -> Self {
        Self { directory, store, start, said: false }
    }

    /// Returns true where writes may go to the log: a later start knows that they are of this one.
    pub(crate) const fn may_write(&self) -> bool {
        self.said
    }

    /// Makes the note, as far as the disk has room for it. Returns the mark once it is whole.
    ///
    /// # Errors
    /// When the disk refuses for another reason than a want of room.
    pub(crate) fn make(&mut self, connection: &Connection) -> Result<Option<MarkFile>, OpenError> {
        let database = self.directory.join(DATABASE_FILE);
        let path = beside(&database, MARK);
        let revision = schema::newest_revision(connection).map_err(OpenError::sqlite(&database))?;
        let mark = Mark { store: self.store, start: self.start - 1, revision, log: None };
        // ORDER: the mark is durable before the database says that there is one.
        let made = MarkFile::make(&path, mark);
        let (open, made) = match made {
            Ok(made) => {
                sync_directory(&self.directory)?;
                (Revision::new(self.start), Some(made))
            }
            Err(error) if is_full(&error) => {
                if !self.said {
                    tracing::warn!(%error, "the disk has no room for {}{MARK}; it is made when there is some", DATABASE_FILE);
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
                tracing::warn!(%error, "the store can't note that it is open: it takes no writes before its disk has room");
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

    /// Says in the database that it is open, in its file too and not in the log alone. The log has a frame from then on.
    fn say_open(&self, connection: &Connection, open: Revision) -> rusqlite::Result<()> {
        let transaction = connection.unchecked_transaction()?;
        Fact::Store.set(&transaction, Revision::new(self.store))?;
        Fact::Starts.set(&transaction, Revision::new(self.start))?;
        Fact::Open.set(&transaction, open)?;
        transaction.commit()?;
        // ORDER: the log keeps its frames; one that was cut to nothing here would look like a lost one after a crash.
        connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))
    }
}

/// Takes away the mark of an earlier start, whose log this one does not keep to. The database does not expect it any more.
fn remove_mark(path: &Path) {
    if let Err(error) = fs::remove_file(path)
        && error.kind() != ErrorKind::NotFound
    {
        tracing::warn!(%error, mark = %path.display(), "a mark that is too old stays beside the store");
    }
}
