//! Copies of a store, and stores made of copies.
//!
//! A backup is taken beside a running server: it reads one snapshot, and writes continue. A restored store starts above every
//! revision that the lost one can have used, so that no client sees a revision go back. It refuses reads below: watches and
//! continue tokens from before the loss are too old.

use std::fs::{self, File};
use std::path::Path;

use keelson_meta::Revision;
use rusqlite::backup::Backup;
use rusqlite::{Connection, OpenFlags};

use crate::sqlite::check;
use crate::sqlite::error::OpenError;
use crate::sqlite::losses::{self, Losses};
use crate::sqlite::mark::MARK;
use crate::sqlite::open::{
    DATABASE_FILE, DirectoryLock, LOG, PARTIAL, check_format, check_there, open_other, sync_directory,
};
use crate::sqlite::private::{self, beside};
use crate::sqlite::schema;

/// Copies the store in `data_dir`, whether or not a server runs on it, to `file`, which appears when the copy is whole
/// and durable, readable by its owner alone.
///
/// The copy is of one moment: everything that was acknowledged before the call is in it.
///
/// # Errors
/// When there is no store, or the file exists or can't be written.
pub fn backup(data_dir: &Path, file: &Path) -> Result<(), OpenError> {
    check_there(data_dir)?;
    refuse_existing(file)?;
    let source = open_whole(data_dir)?;
    let partial = beside(file, PARTIAL);
    remove_partial(&partial)?;
    whole_or_absent(&partial, || {
        copy(&source, &partial)?;
        // A copy of what is damaged would only be found out when it is needed.
        refuse_damaged(&partial)?;
        forget_server(&partial).map_err(OpenError::sqlite(&partial))?;
        put_in_place(&partial, file)
    })
}

/// Opens a store. Refuses one without a server that has lost acknowledged writes: a backup of it would pass for a whole one.
fn open_whole(data_dir: &Path) -> Result<Connection, OpenError> {
    let lock = match DirectoryLock::take(data_dir) {
        Ok(lock) => Some(lock),
        // A running server has looked at it, and its log grows meanwhile.
        Err(OpenError::InUse { .. }) => None,
        Err(other) => return Err(other),
    };
    // ORDER: before SQLite opens the files. It would roll a journal back that is none of this store.
    let losses = lock.as_ref().map(|_| Losses::before_opening(data_dir, false)).transpose()?;
    let source = open_other(data_dir)?;
    check_format(&source, &data_dir.join(DATABASE_FILE))?;
    if let Some(mut losses) = losses {
        losses.check_content(&source)?;
    }
    Ok(source)
}

/// Makes a copy of an open store one of a store that is closed. One of an older format says neither.
fn forget_server(file: &Path) -> rusqlite::Result<()> {
    let connection = Connection::open(file)?;
    if schema::format(&connection)? == schema::FORMAT {
        losses::forget(&connection, false)?;
    }
    connection.close().map_err(|(_, error)| error)
}

/// Restores a backup into the store of a data directory. Other files of a server there, such as its keys, stay. `bump` is added to
/// the revision of the copy; it must exceed the number of writes after the backup. Returns the revision at which the restored store
/// starts.
///
/// # Errors
/// `data_dir` contains a store or is in use, or `file` is not a whole store of a known format.
pub fn restore(file: &Path, data_dir: &Path, bump: u64) -> Result<Revision, OpenError> {
    fs::metadata(file).map_err(OpenError::io(file))?;
    let source =
        Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(OpenError::sqlite(file))?;
    check_whole(&source, file)?;
    let is_new = !data_dir.exists();
    private::make_directory(data_dir).map_err(OpenError::io(data_dir))?;
    let lock = DirectoryLock::take(data_dir)?;
    restore_into(data_dir, &source, bump).inspect_err(|_| {
        if is_new {
            // The first error is the one to report.
            let _ = lock.remove(data_dir);
        }
    })
}

/// Makes the store of a directory that has none.
fn restore_into(data_dir: &Path, source: &Connection, bump: u64) -> Result<Revision, OpenError> {
    let (target, marked) = (data_dir.join(DATABASE_FILE), beside(&data_dir.join(DATABASE_FILE), MARK));
    for entry in fs::read_dir(data_dir).map_err(OpenError::io(data_dir))? {
        let name = entry.map_err(OpenError::io(data_dir))?.file_name();
        // The database, its log and its index, whichever of them is left. The mark of the lost store says which revisions it gave out,
        // and a part of a store is of a restore that was interrupted.
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
        copy(source, &partial)?;
        refuse_damaged(&partial)?;
        let revision = make_new_store(&partial, given_out, bump).map_err(OpenError::sqlite(&partial))?;
        // ORDER: the mark goes before the store is there, which would be below it otherwise.
        remove_if_there(&marked)?;
        put_in_place(&partial, &target)?;
        Ok(revision)
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

/// Refuses a copy with a row that does not fit its checksum, or that is gone.
fn refuse_damaged(file: &Path) -> Result<(), OpenError> {
    let connection =
        Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(OpenError::sqlite(file))?;
    let findings = check::rows(&connection).map_err(OpenError::sqlite(file))?;
    match findings.into_iter().next() {
        Some(finding) => Err(OpenError::Damaged { file: file.into(), finding }),
        None => Ok(()),
    }
}

/// Does what makes a file of `partial`, which is gone again if that fails.
fn whole_or_absent<T>(partial: &Path, make: impl FnOnce() -> Result<T, OpenError>) -> Result<T, OpenError> {
    make().inspect_err(|_| {
        // The first error counts; a partial file is only in the way.
        let _ = remove_partial(partial);
    })
}

/// Copies a database into a new file that needs no log beside it.
fn copy(source: &Connection, file: &Path) -> Result<(), OpenError> {
    private::make_file(file).map_err(OpenError::io(file))?;
    copy_pages(source, file).map_err(OpenError::sqlite(file))
}

fn copy_pages(source: &Connection, file: &Path) -> rusqlite::Result<()> {
    let mut target = Connection::open(file)?;
    // All pages in one step: a copy in several starts anew whenever the server has written between two of them.
    Backup::new(source, &mut target)?.step(-1)?;
    target.query_row("PRAGMA journal_mode = DELETE", [], |_| Ok(()))?;
    target.close().map_err(|(_, error)| error)
}

/// Makes a copy a store of its own, above the revisions of the copy and above those that a lost store has given out.
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

/// An older backup is never lost to a mistyped name.
fn refuse_existing(file: &Path) -> Result<(), OpenError> {
    match fs::symlink_metadata(file) {
        Ok(_) => Err(OpenError::Exists { file: file.into() }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(OpenError::io(file)(error)),
    }
}

/// Removes a file that is not whole, and what SQLite keeps beside it: a journal would be rolled back into the next one of its name.
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

/// Makes a whole file durable and gives it its name.
fn put_in_place(partial: &Path, file: &Path) -> Result<(), OpenError> {
    File::open(partial).and_then(|opened| opened.sync_all()).map_err(OpenError::io(partial))?;
    fs::rename(partial, file).map_err(OpenError::io(file))?;
    let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    sync_directory(directory)
}
