//! Opening a data directory: exclusive ownership, the format's version, what is damaged, and connections set up for
//! durability.
//!
//! A directory is one server's: a lock keeps others out. Damage is refused by name, unless the operator accepts what is lost.

use std::fs::{File, TryLockError};
use std::io::{ErrorKind, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use keelson_meta::Revision;
use keelson_storage::{Disk, StoreKey, SystemDisk};
use keelson_supervision::Supervisor;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::sqlite::check;
use crate::sqlite::error::OpenError;
use crate::sqlite::index;
use crate::sqlite::losses::Losses;
use crate::sqlite::mark::MarkFile;
use crate::sqlite::noting::Noting;
use crate::sqlite::private::{self, beside};
use crate::sqlite::reserve::Reserve;
use crate::sqlite::schema::{self, APPLICATION_ID, FORMAT, PAGE_SIZE};
use crate::sqlite::shrink;

/// The database's file in the data directory.
pub(crate) const DATABASE_FILE: &str = "keelson.db";

/// The file with the number of the process that owns the directory, locked by it too.
const LOCK_FILE: &str = "keelson.lock";

/// The suffix of the database's log.
pub(crate) const LOG: &str = "-wal";

/// The end of the name of a file that is not whole yet.
pub(crate) const PARTIAL: &str = ".partial";
/// The end of the name of the file that notes a copy which has not made its store yet.
const COPIED: &str = ".copied";

/// The time that a statement waits for another process's lock (a backup's, briefly), in milliseconds.
const BUSY_TIMEOUT_MS: u64 = 5_000;

/// The number of prepared statements that a connection keeps.
const STATEMENT_CACHE: usize = 32;

/// The page cache of the writer's connection, in KiB: the upper index pages of a large store. SQLite walks all of it at each commit
/// once a page was moved, because its rebalancing gives one a number far beyond the file's end. A larger cache would slow every
/// write.
const WRITER_CACHE_KIB: i64 = 1024;

/// The page cache of each other connection, in KiB.
const READER_CACHE_KIB: i64 = 4 * 1024;

/// The log file is cut back to this many bytes when it starts over.
const LOG_KEPT_BYTES: i64 = 64 * 1024 * 1024;

/// The default for [`SqliteConfig::history_bytes`].
pub const DEFAULT_HISTORY_BYTES: u64 = 2 * 1024 * 1024 * 1024;

/// The room on the disk that a file needs to be written anew, in multiples of its size.
const CONVERSION_ROOM: u64 = 3;

/// The place of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SqlitePath {
    /// In this directory, which is made for the owner alone if it is absent.
    Directory(PathBuf),
    /// Nowhere: the contents end with the store.
    InMemory,
}

/// The settings of a [`SqliteStore`](crate::SqliteStore).
#[derive(Clone, Debug)]
pub struct SqliteConfig {
    /// The place of the store.
    pub path: SqlitePath,
    /// The number of concurrent reads. In memory there is one connection in any case.
    pub readers: usize,
    /// The size of recent changes kept in memory for tails, in bytes; older ones are read from the table.
    pub recent_bytes: usize,
    /// The newest revision is raised to this one where it is smaller: for a store that takes another's place.
    pub least_revision: Revision,
    /// About how long the write-ahead log gets before it is moved into the database, in bytes. Longer costs disk and
    /// time to start after a crash; shorter costs more writing, for pages that change often are moved more often.
    pub log_bytes: usize,
    /// The most bytes of the database, free pages aside; `None` for as many as the disk has. A store at its quota refuses new data and
    /// takes deletions.
    pub quota_bytes: Option<u64>,
    /// The most bytes of versions that only reads of the past see; a quarter of the room at the most.
    pub history_bytes: u64,
    /// The size of the reserve on the disk, in bytes; `None` is a sixteenth of the disk, between 4 and 64 MiB. 0 is no reserve.
    pub reserve_bytes: Option<u64>,
    /// The disk that the directory is on.
    pub disk: Arc<dyn Disk>,
    /// Accepts a loss, and continues at a revision far above, rather than to refuse the store.
    pub accept_loss: bool,
    /// Refuses a directory without a store, rather than to make an empty one.
    pub existing: bool,
    /// The first object of a store that is made, in one step with it.
    pub first: Option<(StoreKey, Bytes)>,
    /// Acknowledges commits before they are on the disk. A crash of the machine may damage the store, one of the process does not.
    pub unsafe_no_fsync: bool,
    /// Notified when the store cannot continue: its writer has died, or the disk has failed.
    pub supervisor: Supervisor,
}

impl SqliteConfig {
    /// The default settings for a store at `path`: 3 readers, 8 MiB of recent changes, a log of
    /// 32 MiB, no quota, 2 GiB of history.
    pub fn new(path: SqlitePath) -> Self {
        Self {
            path,
            readers: 3,
            recent_bytes: 8 * 1024 * 1024,
            least_revision: Revision::ZERO,
            log_bytes: 32 * 1024 * 1024,
            quota_bytes: None,
            history_bytes: DEFAULT_HISTORY_BYTES,
            reserve_bytes: None,
            disk: Arc::new(SystemDisk),
            accept_loss: false,
            existing: false,
            first: None,
            unsafe_no_fsync: false,
            supervisor: Supervisor::default(),
        }
    }

    /// The default settings for a store in a data directory.
    pub fn directory(path: impl Into<PathBuf>) -> Self {
        Self::new(SqlitePath::Directory(path.into()))
    }

    /// The file that a store in a data directory is.
    pub fn file_in(directory: &Path) -> PathBuf {
        directory.join(DATABASE_FILE)
    }

    /// The default settings for a store in memory.
    pub fn in_memory() -> Self {
        Self::new(SqlitePath::InMemory)
    }
}

/// The ownership of a data directory; released when dropped, and when the process is killed.
///
/// The directory itself is locked, since a file in it may be removed and created anew under another lock. The file is locked too,
/// for older versions, and names the owner.
#[derive(Debug)]
pub struct DirectoryLock {
    _directory: Option<File>,
    /// None where the directory is shared.
    file: Option<File>,
}

impl DirectoryLock {
    /// Makes the directory if it is absent and takes it.
    ///
    /// # Errors
    /// When another server has it, or the file system refuses.
    pub fn take(directory: &Path) -> Result<Self, OpenError> {
        private::make_directory(directory).map_err(OpenError::io(directory))?;
        let path = directory.join(LOCK_FILE);
        let opened = File::open(directory).map_err(OpenError::io(directory))?;
        let locked = Self::locked(directory, opened, File::try_lock)?;
        let mut file = private::open_file(&path).map_err(OpenError::io(&path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(in_use(directory)),
            Err(TryLockError::Error(source)) => return Err(OpenError::Io { path, source }),
        }
        match note_process(&mut file) {
            // On a full disk only the number is missing.
            Err(error) if error.kind() != ErrorKind::StorageFull => return Err(OpenError::Io { path, source: error }),
            Ok(()) | Err(_) => {}
        }
        Ok(Self { _directory: locked, file: Some(file) })
    }

    /// Makes the directory if it is absent and takes it together with others who share it: servers whose store is elsewhere.
    ///
    /// # Errors
    /// When a server has it for itself, or the file system refuses.
    pub fn share(directory: &Path) -> Result<Self, OpenError> {
        private::make_directory(directory).map_err(OpenError::io(directory))?;
        let opened = File::open(directory).map_err(OpenError::io(directory))?;
        let locked = Self::locked(directory, opened, File::try_lock_shared)?;
        // The process that is noted there has ended.
        match File::options().write(true).open(directory.join(LOCK_FILE)).and_then(|file| file.set_len(0)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(OpenError::io(directory)(error)),
            _ => Ok(Self { _directory: locked, file: None }),
        }
    }

    /// Gives up a directory in which nothing else was made, and removes it with the file of the lock.
    ///
    /// # Errors
    /// When the directory holds something else, or the file system refuses.
    pub fn remove(self, directory: &Path) -> std::io::Result<()> {
        if self.file.is_some() {
            std::fs::remove_file(directory.join(LOCK_FILE))?;
        }
        std::fs::remove_dir(directory)
    }

    fn locked(
        directory: &Path,
        opened: File,
        lock: fn(&File) -> Result<(), TryLockError>,
    ) -> Result<Option<File>, OpenError> {
        match lock(&opened) {
            Ok(()) => Ok(Some(opened)),
            Err(TryLockError::WouldBlock) => Err(in_use(directory)),
            Err(TryLockError::Error(error)) => {
                tracing::warn!(%error, "the data directory itself can't be locked; the lock is in {LOCK_FILE} alone");
                Ok(None)
            }
        }
    }
}

/// The number of the owner only helps the operator find the process; without it the message is still right.
fn in_use(directory: &Path) -> OpenError {
    let noted = std::fs::read_to_string(directory.join(LOCK_FILE)).unwrap_or_default();
    OpenError::InUse { directory: directory.into(), owner: noted.trim().parse().ok() }
}

fn note_process(file: &mut File) -> std::io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())
}

/// The settings of an opening.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opening<'a> {
    pub(crate) accept_loss: bool,
    /// The first object of a store that is made.
    pub(crate) first: Option<&'a (StoreKey, Bytes)>,
    pub(crate) unsafe_no_fsync: bool,
}

/// Opens the writer's connection, also on a full disk: the reserve has the room for that. Takes the reserve if the disk has room.
pub(crate) fn open_roomy(
    directory: &Path,
    how: Opening<'_>,
    reserve: &mut Reserve,
) -> Result<(Connection, Noted), OpenError> {
    // The log is moved into the database, and the index of the log is made anew.
    if reserve.is_held() && reserve.room().is_ok_and(|room| room.free < reserve.bytes() / 2) {
        tracing::warn!("the disk is almost full: its reserve is given up to start");
        reserve.give_up();
    }
    let (opened, mut noting) = match open_writer(directory, how) {
        Err(OpenError::Sqlite { source, .. })
            if source.sqlite_error_code() == Some(ErrorCode::DiskFull) && reserve.is_held() =>
        {
            reserve.give_up();
            open_writer(directory, how)
        }
        opened => opened,
    }?;
    let mut mark = noting.make(&opened)?;
    if mark.is_none() && reserve.is_held() {
        reserve.give_up();
        mark = noting.make(&opened)?;
    }
    let kept = match i64::try_from(reserve.bytes()) {
        Ok(bytes) if bytes > 0 => bytes.min(LOG_KEPT_BYTES),
        Ok(_) | Err(_) => LOG_KEPT_BYTES,
    };
    opened.pragma_update(None, "journal_size_limit", kept).map_err(OpenError::sqlite(directory))?;
    let file = directory.join(DATABASE_FILE);
    if let Err(error) = make_shrinkable(&opened, &file, reserve) {
        tracing::warn!(%error, "the file of the store could not be brought to a form that gives room back to the disk");
    }
    let noted = match mark {
        Some(mut mark) => {
            // The log may have started over.
            mark.note(schema::newest_revision(&opened).map_err(OpenError::sqlite(&file))?);
            Noted::Whole(mark)
        }
        None => Noted::Pending(noting),
    };
    reserve.take();
    Ok((opened, noted))
}

/// The result of noting that the store is open.
pub(crate) enum Noted {
    /// All of it is noted.
    Whole(MarkFile),
    /// The disk has no room for all of it.
    Pending(Noting),
}

/// Brings a small file of an older release to the form that gives room back to the disk.
fn make_shrinkable(connection: &Connection, file: &Path, reserve: &Reserve) -> rusqlite::Result<()> {
    let (Ok(found), Ok(room)) = (file.metadata(), reserve.room()) else { return Ok(()) };
    let is_small = found.len() <= shrink::CONVERTED_BYTES && room.free >= found.len().saturating_mul(CONVERSION_ROOM);
    // Writing it anew makes the index anew, from the table alone: damage that the two show together would show no more.
    if !is_small || shrink::is_possible(connection)? || !check::rows(connection)?.is_empty() {
        return Ok(());
    }
    shrink::convert(connection)?;
    move_all_of_log(connection)
}

/// Refuses a directory without a store, and makes nothing there.
pub(crate) fn check_there(directory: &Path) -> Result<(), OpenError> {
    let file = directory.join(DATABASE_FILE);
    match file.metadata() {
        Ok(found) if found.len() > 0 => Ok(()),
        Ok(_) => Err(OpenError::NoStore { directory: directory.into(), empty: true }),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(OpenError::NoStore { directory: directory.into(), empty: false })
        }
        Err(error) => Err(OpenError::io(file)(error)),
    }
}

/// Refuses a directory in which a restore or a copy was interrupted before there was a store. Notes a copy that begins.
fn check_begun(directory: &Path, how: Opening<'_>) -> Result<(), OpenError> {
    let file = directory.join(DATABASE_FILE);
    let (is_made, copied) = (file.metadata().is_ok_and(|found| found.len() > 0), beside(&file, COPIED));
    if !is_made && beside(&file, PARTIAL).exists() {
        return Err(OpenError::UnfinishedRestore { directory: directory.into() });
    }
    if how.first.is_none() && copied.exists() {
        return Err(OpenError::UnfinishedCopy { directory: directory.into() });
    }
    if how.first.is_some() && !is_made {
        // ORDER: before the database, whose first transaction may be cut off.
        private::open_file(&copied).map_err(OpenError::io(&copied))?;
        sync_directory(directory)?;
    }
    Ok(())
}

/// Takes the note of a copy away: the store that was made says so itself.
fn end_begun(directory: &Path, how: Opening<'_>) -> Result<(), OpenError> {
    let copied = beside(&directory.join(DATABASE_FILE), COPIED);
    match how.first.map(|_| std::fs::remove_file(&copied)) {
        Some(Err(error)) if error.kind() != ErrorKind::NotFound => Err(OpenError::io(copied)(error)),
        Some(_) | None => Ok(()),
    }
}

/// Opens the writer's connection to the database in a directory, and makes the database if it is absent. That it is open is still to be
/// noted.
fn open_writer(directory: &Path, how: Opening<'_>) -> Result<(Connection, Noting), OpenError> {
    let file = directory.join(DATABASE_FILE);
    let sqlite = || OpenError::sqlite(&file);
    check_begun(directory, how)?;
    let mut losses = Losses::before_opening(directory, how.accept_loss)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    private::prepare_database(&file).map_err(OpenError::io(&file))?;
    let mut connection = Connection::open_with_flags(&file, flags).map_err(sqlite())?;
    if how.unsafe_no_fsync {
        connection.pragma_update(None, "synchronous", "OFF").map_err(sqlite())?;
    }
    prepare_database(&mut connection, &file, how.first)?;
    set_up(&connection, WRITER_CACHE_KIB, how.unsafe_no_fsync).map_err(sqlite())?;
    losses.check_content(&connection)?;
    let is_current = schema::format(&connection).map_err(sqlite())? == FORMAT;
    if is_current {
        // ORDER: before the log is moved. The log of another store would overwrite the database.
        index::check_with(&connection, open_other(directory)?).map_err(sqlite())?;
    }
    // The log begins anew with the next write, over what a commit that was cut off has left. It is not cut: an empty log beside a
    // database that says it is open is a lost one.
    move_all_of_log(&connection).map_err(sqlite())?;
    if !is_current {
        schema::bring_up(&mut connection).map_err(sqlite())?;
        index::check_with(&connection, open_other(directory)?).map_err(sqlite())?;
    }
    let noting = losses.begin(&mut connection)?;
    end_begun(directory, how)?;
    // A new file must be in its directory after a power loss, not only have its content.
    sync_directory(directory)?;
    Ok((connection, noting))
}

/// Moves all of the log into the database, so that the next write starts it over.
fn move_all_of_log(connection: &Connection) -> rusqlite::Result<()> {
    connection.query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(()))
}

/// Moves all of the log into the database, and truncates it, unless it is being read.
pub(crate) fn empty_log(connection: &Connection) -> rusqlite::Result<()> {
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
}

/// Opens a database in memory.
pub(crate) fn open_memory() -> Result<Connection, OpenError> {
    let name = Path::new(":memory:");
    let mut connection = Connection::open_in_memory().map_err(OpenError::sqlite(name))?;
    prepare_database(&mut connection, name, None)?;
    keep_statements(&connection).map_err(OpenError::sqlite(name))?;
    Ok(connection)
}

/// Opens another connection to a database that exists: for a reader, the checkpoints, or a backup.
pub(crate) fn open_other(directory: &Path) -> Result<Connection, OpenError> {
    let file = directory.join(DATABASE_FILE);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(&file, flags).map_err(OpenError::sqlite(&file))?;
    set_up(&connection, READER_CACHE_KIB, false).map_err(OpenError::sqlite(&file))?;
    Ok(connection)
}

/// Checks that the file is a store in a form that we know, and makes an empty file one.
fn prepare_database(
    connection: &mut Connection,
    file: &Path,
    first: Option<&(StoreKey, Bytes)>,
) -> Result<(), OpenError> {
    let sqlite = || OpenError::sqlite(file);
    connection.busy_timeout(std::time::Duration::from_millis(BUSY_TIMEOUT_MS)).map_err(sqlite())?;
    let tables: i64 = connection.query_row("SELECT COUNT(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(
        |error| match error.sqlite_error_code() {
            Some(rusqlite::ErrorCode::NotADatabase) => OpenError::NotAStore { file: file.into() },
            _ => OpenError::Sqlite { path: file.into(), source: error },
        },
    )?;
    if tables == 0 {
        let pages: i64 = connection.pragma_query_value(None, "page_count", |row| row.get(0)).map_err(sqlite())?;
        if pages > 0 {
            // A store is made in one transaction: it has its tables, or not a page.
            return Err(OpenError::NotAStore { file: file.into() });
        }
        // The size of pages can only be chosen before anything is written.
        connection.pragma_update(None, "page_size", PAGE_SIZE).map_err(sqlite())?;
        return schema::create(connection, first).map_err(sqlite());
    }
    check_format(connection, file)
}

/// Refuses files that are not a store, or one from the future.
pub(crate) fn check_format(connection: &Connection, file: &Path) -> Result<(), OpenError> {
    let pragma = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
    if pragma("application_id").map_err(OpenError::sqlite(file))? != APPLICATION_ID {
        return Err(OpenError::NotAStore { file: file.into() });
    }
    let found = pragma("user_version").map_err(OpenError::sqlite(file))?;
    if found > FORMAT {
        return Err(OpenError::NewerFormat { file: file.into(), found, known: FORMAT });
    }
    Ok(())
}

fn set_up(connection: &Connection, cache_kib: i64, unsafe_no_fsync: bool) -> rusqlite::Result<()> {
    connection.busy_timeout(std::time::Duration::from_millis(BUSY_TIMEOUT_MS))?;
    keep_statements(connection)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    // Every commit reaches the disk before it is acknowledged, unless the operator gives that up.
    connection.pragma_update(None, "synchronous", if unsafe_no_fsync { "OFF" } else { "FULL" })?;
    connection.pragma_update(None, "cache_size", -cache_kib)?;
    // Checkpoints have a thread of their own: they must not happen inside a commit.
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    // A connection that closes has written everything: after a disk has failed nothing more is written.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.pragma_update(None, "journal_size_limit", LOG_KEPT_BYTES)?;
    connection.pragma_update(None, "temp_store", "MEMORY")
}

/// Has statements prepared once. SQLite would plan those anew whose parameters it looked at, which takes longer than to run
/// them, and the plans here depend on no value.
fn keep_statements(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_prepared_statement_cache_capacity(STATEMENT_CACHE);
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map(|_| ())
}

/// Makes the names in a directory durable.
pub(crate) fn sync_directory(directory: &Path) -> Result<(), OpenError> {
    File::open(directory).and_then(|opened| opened.sync_all()).map_err(OpenError::io(directory))
}
