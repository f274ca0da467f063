//! Losses that the files of a store show when it is opened: missing acknowledged writes, and files of another store.
//!
//! While a server has the store open, three things hold. The database has a fact that says so, the log has at least one
//! frame, and the [mark](super::mark) records the newest acknowledged revision. So an empty log, a database below the
//! mark, and a missing mark show a loss. A power loss removes only unsynced data, which was not acknowledged, so all
//! three still hold.
//!
//! If a loss is accepted, the store continues at a revision above all those that it can have used.

use std::io;
use std::path::{Path, PathBuf};

use keelson_meta::Revision;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::sqlite::error::OpenError;
use crate::sqlite::log::{self, Salts};
use crate::sqlite::mark::{MARK, Mark, MarkFile, MarkRead};
use crate::sqlite::noting::{self, PendingStart};
use crate::sqlite::open::{DATABASE_FILE, LOG, empty_log};
use crate::sqlite::private::beside;
use crate::sqlite::schema::{self, Fact};

/// The suffix of a rollback journal. Only a store that is being created has one.
const JOURNAL: &str = "-journal";
/// The suffix of the new name for a file of another store.
const SET_ASIDE: &str = ".set-aside";
/// The number that is added to the revision when a loss is accepted. Since the last sync of the mark, or since a
/// database without a mark was written, the store can't have used more revisions.
pub const ACCEPTED_LOSS_MARGIN: u64 = 1_000_000_000;

/// The finding for a database and a mark of different stores.
const DIFFERENT_STORES: &str = "keelson.db and keelson.db-mark are of different stores";

/// The state of a store's files before it is opened, and if a loss was accepted.
pub(crate) struct Losses {
    directory: PathBuf,
    accept: bool,
    mark: MarkRead,
    /// The salts of the log before the store was opened. None if the log is missing or empty.
    log: Option<Salts>,
    /// True after a loss was found and accepted.
    accepted: bool,
}

impl Losses {
    /// Checks the files before SQLite opens them. Changes nothing, except after an accepted loss: then it renames files
    /// of other stores.
    ///
    /// # Errors
    /// When the store has a loss that is not accepted, or a file can't be read.
    pub(crate) fn before_opening(directory: &Path, accept: bool) -> Result<Self, OpenError> {
        let database = directory.join(DATABASE_FILE);
        let (marked, wal, journal) = (beside(&database, MARK), beside(&database, LOG), beside(&database, JOURNAL));
        let mark = Mark::read(&marked).map_err(OpenError::io(&marked))?;
        let log = log::salts(&wal).map_err(OpenError::io(&wal))?;
        let mut losses = Self { directory: directory.to_owned(), accept, mark, log, accepted: false };
        losses.check_log(&database, &wal)?;
        if mark != MarkRead::Nothing && length(&database)? == 0 {
            let revision = mark.mark().map(|mark| format!(", which records revision {}", mark.revision));
            losses.note_loss(format!(
                "{DATABASE_FILE} is missing or empty beside {DATABASE_FILE}{MARK}{}",
                revision.unwrap_or_default()
            ))?;
        }
        if mark != MarkRead::Nothing && length(&journal)? > 0 {
            losses.note_loss(format!("{DATABASE_FILE}{JOURNAL} does not belong to this store"))?;
            set_aside(&journal)?;
        }
        if let (Some(log), Some(noted)) = (log, mark.mark().and_then(|mark| mark.log))
            && !log.follow(noted)
        {
            if losses.is_mark_of(&database) {
                losses.note_loss(format!(
                    "{DATABASE_FILE}{LOG} belongs to another store, or to an earlier state of this one"
                ))?;
                set_aside(&wal)?;
                losses.log = None;
            } else {
                losses.note_loss(DIFFERENT_STORES.to_owned())?;
            }
        }
        if losses.log.is_some() && Facts::is_set_back(&database) {
            losses.note_loss(format!(
                "{DATABASE_FILE} and {DATABASE_FILE}{LOG} are of different stores, or of different times"
            ))?;
            set_aside(&wal)?;
            losses.log = None;
        }
        Ok(losses)
    }

    /// Returns false if the database, read without its log, shows that the mark belongs to another store. The log may
    /// still be valid.
    fn is_mark_of(&self, database: &Path) -> bool {
        let store = without_log(database).and_then(|read| Fact::Store.get(&read)).map_or(0, Revision::get);
        store == 0 || self.mark.mark().is_some_and(|mark| mark.store == store)
    }

    /// Finds a log that is damaged before its end, or whose database is missing.
    fn check_log(&mut self, database: &Path, wal: &Path) -> Result<(), OpenError> {
        let orphaned = length(database)? == 0 && length(wal)? > 0;
        let finding = match log::check(wal).map_err(OpenError::io(wal))? {
            _ if orphaned => "the log exists, but its database is missing".to_owned(),
            Some(torn) => torn.to_string(),
            None => return Ok(()),
        };
        if !self.accept {
            return Err(OpenError::Torn { file: wal.to_owned(), finding });
        }
        self.accepting(&finding);
        Ok(())
    }

    /// Compares the content with the mark.
    ///
    /// # Errors
    /// When the store has a loss that is not accepted.
    pub(crate) fn check_content(&mut self, connection: &Connection) -> Result<(), OpenError> {
        match self.finding(connection).map_err(OpenError::sqlite(self.directory.join(DATABASE_FILE)))? {
            Some(finding) => self.note_loss(finding),
            None => Ok(()),
        }
    }

    fn finding(&self, connection: &Connection) -> rusqlite::Result<Option<String>> {
        let open = Fact::Open.get(connection)?;
        let was_open = open != Revision::ZERO;
        let (store, start) = (Fact::Store.get(connection)?.get(), Fact::Starts.get(connection)?.get());
        let newest = schema::newest_revision(connection)?;
        let mark = self.mark.mark();
        Ok(match mark {
            Some(mark) if store != 0 && mark.store != store => Some(DIFFERENT_STORES.to_owned()),
            Some(mark) if store != 0 && start < mark.start => Some(format!(
                "{DATABASE_FILE} is older than {DATABASE_FILE}{MARK}: {start} starts of a server against {}",
                mark.start
            )),
            _ if was_open && self.log.is_none() => Some(format!(
                "its server did not stop in order, and the log {DATABASE_FILE}{LOG} is missing or empty; without it the store ends at \
                 revision {newest}{}",
                mark.map(|mark| format!(" of {} that were acknowledged", mark.revision)).unwrap_or_default()
            )),
            Some(mark) if newest < mark.revision => Some(format!(
                "it ends at revision {newest}, and writes up to revision {} were acknowledged",
                mark.revision
            )),
            None if was_open && open != noting::UNMARKED => Some(format!(
                "its server did not stop in order, and {DATABASE_FILE}{MARK}, which records the newest acknowledged revision, is {}",
                if self.mark == MarkRead::Nothing { "missing" } else { "damaged" }
            )),
            Some(_) | None => None,
        })
    }

    fn note_loss(&mut self, finding: String) -> Result<(), OpenError> {
        if !self.accept {
            return Err(OpenError::Lost { directory: self.directory.clone(), finding });
        }
        self.accepting(&finding);
        Ok(())
    }

    fn accepting(&mut self, finding: &str) {
        tracing::warn!(directory = %self.directory.display(), finding, "going on without what is lost");
        self.accepted = true;
    }

    /// Raises the revision after an accepted loss. The caller still has to record that a server has the store open.
    ///
    /// # Errors
    /// The new revision can't be made durable.
    pub(crate) fn begin(self, connection: &mut Connection) -> Result<PendingStart, OpenError> {
        let database = self.directory.join(DATABASE_FILE);
        let sqlite = || OpenError::sqlite(&database);
        let newest = schema::newest_revision(connection).map_err(sqlite())?;
        if self.accepted {
            let known = self.mark.mark().map_or(newest, |mark| mark.revision.max(newest));
            let least = Revision::new(known.get().saturating_add(ACCEPTED_LOSS_MARGIN));
            schema::raise_revision(connection, least).map_err(sqlite())?;
            tracing::warn!(revision = %least, "revisions go on above all that can have been given out before the loss");
        }
        let store = known_or_random(connection).map_err(sqlite())?;
        let before = Fact::Starts.get(connection).map_err(sqlite())?.get();
        Ok(PendingStart::new(self.directory, store, before + 1))
    }
}

/// The facts of a database that are compared with and without its log.
struct Facts {
    store: u64,
    start: u64,
    is_open: bool,
    oldest: Revision,
    newest: Revision,
}

impl Facts {
    fn read(connection: &Connection) -> rusqlite::Result<Self> {
        Ok(Self {
            store: Fact::Store.get(connection)?.get(),
            start: Fact::Starts.get(connection)?.get(),
            is_open: Fact::Open.get(connection)? != Revision::ZERO,
            oldest: Fact::Oldest.get(connection)?,
            newest: schema::newest_revision(connection)?,
        })
    }

    /// The facts of the database with its log, which is not moved.
    fn with_log(database: &Path) -> rusqlite::Result<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(database, flags)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        Self::read(&connection)
    }

    /// Returns true if the log would reset the database to an older state. A valid log is newer than the content that
    /// was moved out of it. A server that stops in order leaves no log. So a log beside a closed database must belong
    /// to a later start, or have the last writes. Files that can't be read are left to other checks.
    fn is_set_back(database: &Path) -> bool {
        let (Ok(alone), Ok(with_log)) =
            (without_log(database).and_then(|read| Self::read(&read)), Self::with_log(database))
        else {
            return false;
        };
        if alone.store == 0 {
            return false;
        }
        let is_next_start = with_log.is_open && with_log.start > alone.start;
        let is_own_end = !with_log.is_open && with_log.newest == alone.newest;
        let is_stale = !alone.is_open && !is_next_start && !is_own_end;
        let is_earlier =
            with_log.start < alone.start || with_log.oldest < alone.oldest || with_log.newest < alone.newest;
        with_log.store != alone.store || is_earlier || is_stale
    }
}

/// Opens a database for reading as if it had no log.
fn without_log(database: &Path) -> rusqlite::Result<Connection> {
    let escaped = database.display().to_string().replace('%', "%25").replace('?', "%3f").replace('#', "%23");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    Connection::open_with_flags(format!("file:{escaped}?immutable=1"), flags)
}

/// Records that the store was closed in order, and moves all of the log into the database.
pub(crate) fn end(connection: &Connection, mark: Option<MarkFile>) -> rusqlite::Result<()> {
    forget(connection, false)?;
    empty_log(connection)?;
    // ORDER: while the log has frames, the mark has its salts.
    if let Some(mark) = mark {
        mark.close();
    }
    Ok(())
}

/// Records that no server has the store open. `is_new_store` is true for a copy that replaces its original, and also
/// removes the name.
pub(crate) fn forget(connection: &Connection, is_new_store: bool) -> rusqlite::Result<()> {
    // ORDER: one transaction, since setting a fact also writes the checksum of all facts.
    let transaction = connection.unchecked_transaction()?;
    Fact::Open.set(&transaction, Revision::ZERO)?;
    if is_new_store {
        Fact::Store.set(&transaction, Revision::ZERO)?;
    }
    transaction.commit()
}

/// The newest revision that the mark in a directory records, if there is one.
pub(crate) fn marked_revision(directory: &Path) -> Result<Option<Revision>, OpenError> {
    let path = beside(&directory.join(DATABASE_FILE), MARK);
    Ok(Mark::read(&path).map_err(OpenError::io(&path))?.mark().map(|mark| mark.revision))
}

fn known_or_random(connection: &Connection) -> rusqlite::Result<u64> {
    match Fact::Store.get(connection)?.get() {
        0 => connection
            .query_row("SELECT (random() & 0x7fffffffffffffff) | 1", [], |row| row.get::<_, i64>(0))
            .map(i64::unsigned_abs),
        store => Ok(store),
    }
}

/// The length of a file in bytes; 0 for a missing one.
fn length(path: &Path) -> Result<u64, OpenError> {
    match path.metadata() {
        Ok(found) => Ok(found.len()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(OpenError::io(path)(error)),
    }
}

fn set_aside(path: &Path) -> Result<(), OpenError> {
    let aside = beside(path, SET_ASIDE);
    tracing::warn!(file = %path.display(), to = %aside.display(), "putting a file of another store aside");
    std::fs::rename(path, &aside).map_err(OpenError::io(path))
}
