//! Backups of a store, and restores.
//!
//! A backup may be made while a server runs: it reads one snapshot, and writes continue. A restored store starts above
//! every revision that the lost store can have used, so that no client sees a lower revision than before. It refuses
//! reads below this revision: watches and continue tokens from before the loss are too old.

use std::fs::{self, File};
use std::path::Path;

use keelson_meta::Revision;
use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};

use crate::sqlite::check;
use crate::sqlite::checksum;
use crate::sqlite::error::OpenError;
use crate::sqlite::losses::{self, Losses};
use crate::sqlite::mark::MARK;
use crate::sqlite::open::{
    DATABASE_FILE, DirectoryLock, LOG, PARTIAL, check_format, check_there, open_other, sync_directory,
};
use crate::sqlite::private::{self, beside};
use crate::sqlite::schema;
use crate::sqlite::work::{self, OnProgress, WorkStage};

/// The number of pages that are copied between two reports, 2 MiB.
const PAGES_IN_A_STEP: i32 = 512;

/// The content of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackedUp {
    /// The size of the file in bytes.
    pub bytes: u64,
    /// The number of objects, without their earlier versions.
    pub objects: u64,
    /// The newest revision. A restored store starts above it.
    pub revision: Revision,
    /// The SHA-256 checksum of the file in hexadecimal digits.
    pub sha256: String,
}

/// A restored store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The content of the backup.
    pub backup: BackedUp,
    /// True if the backup's checksum was compared with the one in the file beside it.
    pub compared: bool,
    /// The revision at which the restored store starts.
    pub revision: Revision,
}

/// Copies the store in `data_dir` to `file`, whether or not a server has it open. `file` appears when the copy is
/// complete and durable, and a file with its checksum beside it. Only their owner can read them.
///
/// The copy is of one moment, and contains everything that was acknowledged before the call.
///
/// # Errors
/// There is no store, or the file exists or can't be written. Also when `on_progress` ends the work. No file is then
/// left.
pub fn backup(data_dir: &Path, file: &Path, on_progress: &mut OnProgress<'_>) -> Result<BackedUp, OpenError> {
    check_there(data_dir)?;
    refuse_existing(file)?;
    let source = open_whole(data_dir)?;
    let partial = beside(file, PARTIAL);
    remove_partial(&partial)?;
    whole_or_absent(&partial, || {
        copy(&source, &partial, on_progress)?;
        // Damage in a copy would otherwise be found only when the copy is needed.
        let (objects, revision) = refuse_damaged(&partial, on_progress)?;
        forget_server(&partial).map_err(OpenError::sqlite(&partial))?;
        let (bytes, sha256) = checksum::of_file(&partial, on_progress)?;
        // ORDER: the checksum comes first. Otherwise an interrupted backup could leave a new backup beside the checksum
        // of an older one, and the restore would refuse it.
        checksum::write_beside(file, &sha256)?;
        put_in_place(&partial, file).inspect_err(|_| checksum::remove_beside(file))?;
        Ok(BackedUp { bytes, objects, revision, sha256 })
    })
}

/// Opens a store. Fails if no server has it open and it has lost acknowledged writes, since its backup would look
/// complete.
fn open_whole(data_dir: &Path) -> Result<Connection, OpenError> {
    let lock = match DirectoryLock::take(data_dir) {
        Ok(lock) => Some(lock),
        // A running server has checked the store, and its log changes meanwhile.
        Err(OpenError::InUse { .. }) => None,
        Err(other) => return Err(other),
    };
    // ORDER: this runs before SQLite opens the files, since SQLite would roll back a journal of another store.
    let losses = lock.as_ref().map(|_| Losses::before_opening(data_dir, false)).transpose()?;
    let source = open_other(data_dir)?;
    check_format(&source, &data_dir.join(DATABASE_FILE))?;
    if let Some(mut losses) = losses {
        losses.check_content(&source)?;
    }
    Ok(source)
}

/// Marks a copy of an open store as a closed store. Stores of an older format have no such mark.
fn forget_server(file: &Path) -> rusqlite::Result<()> {
    let connection = Connection::open(file)?;
    if schema::format(&connection)? == schema::FORMAT {
        losses::forget(&connection, false)?;
    }
    connection.close().map_err(|(_, error)| error)
}

/// Restores a backup into the store of a data directory. Other files of a server in that directory, such as its keys,
/// stay. `bump` is added to the revision of the copy. It must exceed the number of writes after the backup.
///
/// # Errors
/// `data_dir` contains a store or is in use, or `file` is not a complete store of a known format. Also when `file` does
/// not have the checksum in the file beside it, or `on_progress` ends the work. No store is then left.
pub fn restore(
    file: &Path,
    data_dir: &Path,
    bump: u64,
    on_progress: &mut OnProgress<'_>,
) -> Result<Restored, OpenError> {
    fs::metadata(file).map_err(OpenError::io(file))?;
    let (bytes, sha256) = checksum::of_file(file, on_progress)?;
    let compared = checksum::compare_beside(file, &sha256)?;
    let source =
        Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(OpenError::sqlite(file))?;
    check_whole(&source, file)?;
    let is_new = !data_dir.exists();
    private::make_directory(data_dir).map_err(OpenError::io(data_dir))?;
    let lock = DirectoryLock::take(data_dir)?;
    let restored = restore_into(data_dir, &source, bump, on_progress).inspect_err(|_| {
        if is_new {
            // The first error is returned.
            let _ = lock.remove(data_dir);
        }
    });
    let (objects, at, revision) = restored?;
    Ok(Restored { backup: BackedUp { bytes, objects, revision: at, sha256 }, compared, revision })
}

/// Creates the store of a directory that has none. Returns the number of objects, the revision of the backup, and that
/// of the store.
fn restore_into(
    data_dir: &Path,
    source: &Connection,
    bump: u64,
    on_progress: &mut OnProgress<'_>,
) -> Result<(u64, Revision, Revision), OpenError> {
    let (target, marked) = (data_dir.join(DATABASE_FILE), beside(&data_dir.join(DATABASE_FILE), MARK));
    for entry in fs::read_dir(data_dir).map_err(OpenError::io(data_dir))? {
        let name = entry.map_err(OpenError::io(data_dir))?.file_name();
        // The database, its log and the index of the log must not exist. The mark of the lost store may, and shows the
        // revisions that the store has used. A partial file is from an interrupted restore.
        let is_of_store = name.to_string_lossy().starts_with(DATABASE_FILE);
        let is_partial = name.to_string_lossy().starts_with(&format!("{DATABASE_FILE}{PARTIAL}"));
        if is_of_store && !is_partial && Some(name.as_os_str()) != marked.file_name() {
            return Err(OpenError::HoldsStore {
                directory: data_dir.into(),
                file: name.to_string_lossy().into_owned(),
            });
        }
    }
    let given_out = losses::marked_revision(data_dir)?.unwrap_or(Revision::ZERO);
    let partial = beside(&target, PARTIAL);
    remove_partial(&partial)?;
    whole_or_absent(&partial, || {
        copy(source, &partial, on_progress)?;
        let (objects, at) = refuse_damaged(&partial, on_progress)?;
        let revision = make_new_store(&partial, given_out, bump).map_err(OpenError::sqlite(&partial))?;
        // ORDER: the mark is removed before the store exists. The store would otherwise be below the mark.
        remove_if_there(&marked)?;
        put_in_place(&partial, &target)?;
        Ok((objects, at, revision))
    })
}

fn check_whole(source: &Connection, file: &Path) -> Result<(), OpenError> {
    check_format(source, file).map_err(|error| match error {
        OpenError::Sqlite { source, .. } if source.sqlite_error_code() == Some(rusqlite::ErrorCode::NotADatabase) => {
            OpenError::NotAStore { file: file.into() }
        }
        other => other,
    })?;
    let finding: String =
        source.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(OpenError::sqlite(file))?;
    if finding == "ok" { Ok(()) } else { Err(OpenError::Damaged { file: file.into(), finding }) }
}

/// Fails if a row of a copy does not match its checksum or is missing. Returns the number of objects and the newest
/// revision.
fn refuse_damaged(file: &Path, on_progress: &mut OnProgress<'_>) -> Result<(u64, Revision), OpenError> {
    let connection =
        Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(OpenError::sqlite(file))?;
    let findings = check::rows(&connection, on_progress).map_err(OpenError::sqlite(file))?;
    if let Some(finding) = findings.into_iter().next() {
        return Err(OpenError::Damaged { file: file.into(), finding });
    }
    let objects = schema::count_objects(&connection).map_err(OpenError::sqlite(file))?;
    let revision = schema::newest_revision(&connection).map_err(OpenError::sqlite(file))?;
    Ok((objects, revision))
}

/// Runs the code that creates the file `partial`. Removes the file if the code fails.
fn whole_or_absent<T>(partial: &Path, make: impl FnOnce() -> Result<T, OpenError>) -> Result<T, OpenError> {
    make().inspect_err(|_| {
        // The first error is returned. A partial file is of no use.
        let _ = remove_partial(partial);
    })
}

/// Copies a database into a new file that needs no log.
fn copy(source: &Connection, file: &Path, on_progress: &mut OnProgress<'_>) -> Result<(), OpenError> {
    private::make_file(file).map_err(OpenError::io(file))?;
    copy_pages(source, file, on_progress).map_err(OpenError::sqlite(file))
}

fn copy_pages(source: &Connection, file: &Path, on_progress: &mut OnProgress<'_>) -> rusqlite::Result<()> {
    let mut target = Connection::open(file)?;
    // The transaction keeps all steps at one snapshot. Without it the copy would restart whenever the server writes
    // between two steps.
    let snapshot = source.unchecked_transaction()?;
    schema::newest_revision(&snapshot)?;
    {
        let backup = Backup::new(&snapshot, &mut target)?;
        loop {
            let step = backup.step(PAGES_IN_A_STEP)?;
            let pages = backup.progress();
            let bytes = |pages: i32| u64::from(pages.unsigned_abs()) * u64::from(schema::PAGE_SIZE);
            let done = pages.pagecount - pages.remaining;
            work::report(on_progress, WorkStage::Copying, bytes(done), bytes(pages.pagecount))?;
            match step {
                StepResult::Done => break,
                StepResult::More => {}
                // The files of the target belong to this process, and a reader of the source does not wait for a writer.
                _ => return Err(work::busy()),
            }
        }
    }
    drop(snapshot);
    target.query_row("PRAGMA journal_mode = DELETE", [], |_| Ok(()))?;
    target.close().map_err(|(_, error)| error)
}

/// Converts a copy to a separate store. Its revisions start above those of the copy and those that the lost store has
/// used.
fn make_new_store(file: &Path, given_out: Revision, bump: u64) -> rusqlite::Result<Revision> {
    let mut connection = Connection::open(file)?;
    schema::bring_up(&mut connection)?;
    losses::forget(&connection, true)?;
    let known = schema::newest_revision(&connection)?.max(given_out);
    let least = Revision::new(known.get().saturating_add(bump));
    let revision = schema::raise_revision(&mut connection, least)?;
    connection.close().map_err(|(_, error)| error)?;
    Ok(revision)
}

/// Fails if the file exists, so that a mistyped name does not overwrite an older backup.
fn refuse_existing(file: &Path) -> Result<(), OpenError> {
    match fs::symlink_metadata(file) {
        Ok(_) => Err(OpenError::Exists { file: file.into() }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(OpenError::io(file)(error)),
    }
}

/// Removes an incomplete file and SQLite's files beside it. SQLite would roll back a journal into the next file of this
/// name.
fn remove_partial(partial: &Path) -> Result<(), OpenError> {
    ["-journal", LOG, "-shm"].iter().try_for_each(|end| remove_if_there(&beside(partial, end)))?;
    remove_if_there(partial)
}

fn remove_if_there(file: &Path) -> Result<(), OpenError> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(OpenError::io(file)(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Makes a complete file durable and renames it.
fn put_in_place(partial: &Path, file: &Path) -> Result<(), OpenError> {
    File::open(partial).and_then(|opened| opened.sync_all()).map_err(OpenError::io(partial))?;
    fs::rename(partial, file).map_err(OpenError::io(file))?;
    let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    sync_directory(directory)
}
