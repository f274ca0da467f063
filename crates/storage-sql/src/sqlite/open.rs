//! Opens a data directory: takes exclusive ownership, checks the version of the format, detects damage, and configures
//! durable connections.
//!
//! One server owns a directory: a lock excludes others. Damage is an error that names the damaged file, unless the
//! operator accepts the loss.

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
use crate::sqlite::noting::PendingStart;
use crate::sqlite::private::{self, beside};
use crate::sqlite::reserve::Reserve;
use crate::sqlite::schema::{self, APPLICATION_ID, FORMAT, PAGE_SIZE};
use crate::sqlite::shrink;
use crate::sqlite::work::unobserved;

/// The database's file in the data directory.
pub(crate) const DATABASE_FILE: &str = "keelson.db";

/// The file with the number of the process that owns the directory. The process also locks this file.
const LOCK_FILE: &str = "keelson.lock";

/// The suffix of the database's log.
pub(crate) const LOG: &str = "-wal";

/// The suffix of an incomplete file.
pub(crate) const PARTIAL: &str = ".partial";
/// The suffix of the file that records an unfinished copy without a store.
const COPIED: &str = ".copied";

/// The time that a statement waits for the lock of another process, in milliseconds. A backup holds it briefly.
const BUSY_TIMEOUT_MS: u64 = 5_000;

/// The number of prepared statements that a connection keeps.
const STATEMENT_CACHE: usize = 32;

/// The page cache of the writer's connection, in KiB. It has space for the upper index pages of a large store. After a
/// page was moved, SQLite walks all of the cache at each commit, because its rebalancing gives a page a number far
/// beyond the end of the file. So a larger cache would slow every write.
const WRITER_CACHE_KIB: i64 = 1024;

/// The page cache of each other connection, in KiB.
const READER_CACHE_KIB: i64 = 4 * 1024;

/// The log file is truncated to this size in bytes when it starts over.
const LOG_KEPT_BYTES: i64 = 64 * 1024 * 1024;

/// The default for [`SqliteConfig::history_bytes`].
pub const DEFAULT_HISTORY_BYTES: u64 = 2 * 1024 * 1024 * 1024;

/// The space on the disk that rewriting a file needs, in multiples of its size.
const CONVERSION_ROOM: u64 = 3;

/// The place of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SqlitePath {
    /// In this directory. If it is absent, it is created for the owner only.
    Directory(PathBuf),
    /// In memory. The contents are lost when the store is dropped.
    InMemory,
}

/// The settings of a [`SqliteStore`](crate::SqliteStore).
#[derive(Clone, Debug)]
pub struct SqliteConfig {
    /// The place of the store.
    pub path: SqlitePath,
    /// The number of concurrent reads. A store in memory always has a single connection.
    pub readers: usize,
    /// The size of recent changes that are kept in memory for tails, in bytes. Older changes are read from the table.
    pub recent_bytes: usize,
    /// The newest revision is raised to this one if it is smaller. Set for a store that replaces another one.
    pub least_revision: Revision,
    /// The approximate size of the write-ahead log at which it is moved into the database, in bytes. A longer log needs
    /// more disk space, and more time to start after a crash. A shorter log causes more writes, since pages that change
    /// often are moved more often.
    pub log_bytes: usize,
    /// The maximum size of the database without free pages, in bytes; `None` for all of the disk. A store at this quota
    /// refuses new data and accepts deletions.
    pub quota_bytes: Option<u64>,
    /// The maximum size of superseded versions in bytes, and at most a quarter of the space.
    pub history_bytes: u64,
    /// The size of the reserve on the disk, in bytes. `None` is a sixteenth of the disk, between 4 and 64 MiB. 0 is no
    /// reserve.
    pub reserve_bytes: Option<u64>,
    /// The disk that the directory is on.
    pub disk: Arc<dyn Disk>,
    /// Accepts a loss and continues at a far higher revision instead of refusing to open the store.
    pub accept_loss: bool,
    /// Refuses a directory without a store instead of creating an empty store.
    pub existing: bool,
    /// The first object of a new store, which is created in one transaction with it.
    pub first: Option<(StoreKey, Bytes)>,
    /// Acknowledges commits before they are on the disk. A crash of the machine may then damage the store. A crash of
    /// the process does not.
    pub unsafe_no_fsync: bool,
    /// Is notified when the store can't continue: its writer has ended, or the disk has failed.
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

    /// The file of a store in a data directory.
    pub fn file_in(directory: &Path) -> PathBuf {
        directory.join(DATABASE_FILE)
    }

    /// The default settings for a store in memory.
    pub fn in_memory() -> Self {
        Self::new(SqlitePath::InMemory)
    }
}

/// The ownership of a data directory. It ends when this is dropped, and when the process is killed.
///
/// The directory itself is locked, since a file in it could be removed, created again, and locked by another process.
/// The file is locked too, for older releases, and has the number of the owner's process.
#[derive(Debug)]
pub struct DirectoryLock {
    _directory: Option<File>,
    /// None if the directory is shared.
    file: Option<File>,
}

impl DirectoryLock {
    /// Creates the directory if it is absent, and locks it.
    ///
    /// # Errors
    /// Another server owns the directory, or the file system fails.
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
            // If the disk is full, only the process number is missing.
            Err(error) if error.kind() != ErrorKind::StorageFull => return Err(OpenError::Io { path, source: error }),
            Ok(()) | Err(_) => {}
        }
        Ok(Self { _directory: locked, file: Some(file) })
    }

    /// Creates the directory if it is absent, and locks it together with other servers that share it. The store of such
    /// servers is elsewhere.
    ///
    /// # Errors
    /// Another server owns the directory, or the file system fails.
    pub fn share(directory: &Path) -> Result<Self, OpenError> {
        private::make_directory(directory).map_err(OpenError::io(directory))?;
        let opened = File::open(directory).map_err(OpenError::io(directory))?;
        let locked = Self::locked(directory, opened, File::try_lock_shared)?;
        // The process whose number is in the file has ended.
        match File::options().write(true).open(directory.join(LOCK_FILE)).and_then(|file| file.set_len(0)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(OpenError::io(directory)(error)),
            _ => Ok(Self { _directory: locked, file: None }),
        }
    }

    /// Removes a directory that contains only the lock file, and ends the ownership.
    ///
    /// # Errors
    /// The directory contains other files, or the file system fails.
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

/// The number of the owner only helps the operator to find the process. The message is valid without it.
fn in_use(directory: &Path) -> OpenError {
    let noted = std::fs::read_to_string(directory.join(LOCK_FILE)).unwrap_or_default();
    OpenError::InUse { directory: directory.into(), owner: noted.trim().parse().ok() }
}

fn note_process(file: &mut File) -> std::io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())
}

/// Settings for opening a store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opening<'a> {
    pub(crate) accept_loss: bool,
    /// The first object of a new store.
    pub(crate) first: Option<&'a (StoreKey, Bytes)>,
    pub(crate) unsafe_no_fsync: bool,
}

/// Opens the writer's connection, even if the disk is full: then it releases the reserve to get space. Allocates the
/// reserve again if the disk has space.
pub(crate) fn open_roomy(
    directory: &Path,
    how: Opening<'_>,
    reserve: &mut Reserve,
) -> Result<(Connection, OpenRecord), OpenError> {
    // The start moves the log into the database, and creates the index of the log again.
    if reserve.is_held() && reserve.room().is_ok_and(|room| room.free < reserve.bytes() / 2) {
        tracing::warn!("the disk is almost full: the reserve is freed to start");
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
            OpenRecord::Whole(mark)
        }
        None => OpenRecord::Pending(noting),
    };
    reserve.take();
    Ok((opened, noted))
}

/// The state of the record that the store is open.
pub(crate) enum OpenRecord {
    /// The record is complete.
    Whole(MarkFile),
    /// The disk has no space for the whole record.
    Pending(PendingStart),
}

/// Converts a small file of an older release to the format that can return free pages to the disk.
fn make_shrinkable(connection: &Connection, file: &Path, reserve: &Reserve) -> rusqlite::Result<()> {
    let (Ok(found), Ok(room)) = (file.metadata(), reserve.room()) else { return Ok(()) };
    let is_small = found.len() <= shrink::CONVERTED_BYTES && room.free >= found.len().saturating_mul(CONVERSION_ROOM);
    // Rewriting creates the index again from the table. Damage that only a comparison of both shows could not be found
    // any more.
    if !is_small || shrink::is_possible(connection)? || !check::rows(connection, &mut unobserved)?.is_empty() {
        return Ok(());
    }
    shrink::convert(connection)?;
    move_all_of_log(connection)
}

/// Fails if a directory has no store. Creates nothing.
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

/// Fails if a restore or a copy into the directory was interrupted before there was a store. If a copy begins, records
/// this.
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
        // ORDER: this file is written before the database, whose first transaction may be interrupted.
        private::open_file(&copied).map_err(OpenError::io(&copied))?;
        sync_directory(directory)?;
    }
    Ok(())
}

/// Removes the record of a copy. From now on the store itself records that the copy is unfinished.
fn end_begun(directory: &Path, how: Opening<'_>) -> Result<(), OpenError> {
    let copied = beside(&directory.join(DATABASE_FILE), COPIED);
    match how.first.map(|_| std::fs::remove_file(&copied)) {
        Some(Err(error)) if error.kind() != ErrorKind::NotFound => Err(OpenError::io(copied)(error)),
        Some(_) | None => Ok(()),
    }
}

/// Opens the writer's connection to the database in a directory. Creates the database if it is absent. The caller still
/// has to record that the store is open.
fn open_writer(directory: &Path, how: Opening<'_>) -> Result<(Connection, PendingStart), OpenError> {
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
        // ORDER: the index is checked before the log is moved, since the log of another store would overwrite the
        // database.
        index::check_with(&connection, open_other(directory)?).map_err(sqlite())?;
    }
    // The next write starts the log over, and overwrites the rest of an interrupted commit. The log is not truncated,
    // since an empty log beside an open database counts as lost.
    move_all_of_log(&connection).map_err(sqlite())?;
    if !is_current {
        schema::bring_up(&mut connection).map_err(sqlite())?;
        index::check_with(&connection, open_other(directory)?).map_err(sqlite())?;
    }
    let noting = losses.begin(&mut connection)?;
    end_begun(directory, how)?;
    // After a power loss, a new file must still be in its directory.
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

/// Checks that the file is a store in a known format. Creates the tables in an empty file.
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
            // A store is created in one transaction, so it has either its tables or no page.
            return Err(OpenError::NotAStore { file: file.into() });
        }
        // The page size can only be set before the first write.
        connection.pragma_update(None, "page_size", PAGE_SIZE).map_err(sqlite())?;
        return schema::create(connection, first).map_err(sqlite());
    }
    check_format(connection, file)
}

/// Fails for a file that is not a store, or that has a newer format.
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
    // Every commit is on the disk before it is acknowledged, unless the operator disables this.
    connection.pragma_update(None, "synchronous", if unsafe_no_fsync { "OFF" } else { "FULL" })?;
    connection.pragma_update(None, "cache_size", -cache_kib)?;
    // Checkpoints have a separate thread, and must not run inside a commit.
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    // A connection must not write when it is closed, since nothing may be written after the disk has failed.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.pragma_update(None, "journal_size_limit", LOG_KEPT_BYTES)?;
    connection.pragma_update(None, "temp_store", "MEMORY")
}

/// Prepares statements once. Otherwise SQLite would plan a statement again after it has used the parameters for
/// planning. That takes longer than the statement itself, and the plans here do not depend on values.
fn keep_statements(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_prepared_statement_cache_capacity(STATEMENT_CACHE);
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map(|_| ())
}

/// Makes the entries of a directory durable.
pub(crate) fn sync_directory(directory: &Path) -> Result<(), OpenError> {
    File::open(directory).and_then(|opened| opened.sync_all()).map_err(OpenError::io(directory))
}
