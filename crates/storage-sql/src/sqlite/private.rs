//! Files and directories that only the owner can read. A store and its copies contain every Secret of the cluster.
//!
//! SQLite gives the files beside a database (its log, the log's index, a journal) the mode of the database. This module
//! creates the database before SQLite opens it, so all these files are private.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
/// The mode bits of all users except the owner.
const OTHERS: u32 = 0o077;

/// Creates a directory and its parents if they are absent. An existing directory keeps the mode that the operator has
/// set.
pub(crate) fn make_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path)
}

/// Opens a file for reading and writing, and creates it if it is absent. Removes the access of other users.
pub(crate) fn open_file(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(FILE_MODE).open(path)?;
    close_to_others(path)?;
    Ok(file)
}

/// Creates a new file.
pub(crate) fn make_file(path: &Path) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(path).map(drop)
}

/// Creates the database file if it is absent. Removes other users' access to it and to SQLite's files beside it.
pub(crate) fn prepare_database(file: &Path) -> io::Result<()> {
    open_file(file)?;
    ["-wal", "-shm", "-journal"].into_iter().try_for_each(|suffix| close_to_others(&beside(file, suffix)))
}

/// The path of a file whose name is that of `file` with a suffix.
pub(crate) fn beside(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Removes all access of other users to a file, if it exists.
fn close_to_others(path: &Path) -> io::Result<()> {
    let mode = match fs::metadata(path) {
        Ok(found) => found.permissions().mode(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if mode & OTHERS == 0 { Ok(()) } else { fs::set_permissions(path, Permissions::from_mode(mode & !OTHERS)) }
}
