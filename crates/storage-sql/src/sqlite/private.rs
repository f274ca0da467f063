//! Files and directories for the owner alone. A store contains every Secret of the cluster, and so does its copy.
//!
//! SQLite gives the files beside a database (its log, the log's index, a journal) the mode of the database. A database created here
//! before SQLite opens it therefore keeps them all private.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
/// The mode bits of all users but the owner.
const OTHERS: u32 = 0o077;

/// Makes a directory, and those above it, unless they are there. One that is there keeps its mode: it is the
/// operator's.
pub(crate) fn make_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path)
}

/// Opens a file to read and write, made if it is absent. One that others may open is closed to them.
pub(crate) fn open_file(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(FILE_MODE).open(path)?;
    close_to_others(path)?;
    Ok(file)
}

/// Makes a file that is not there yet.
pub(crate) fn make_file(path: &Path) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(path).map(drop)
}

/// Makes a database's file if it is absent, and closes it, and what SQLite keeps beside it, to others.
pub(crate) fn prepare_database(file: &Path) -> io::Result<()> {
    open_file(file)?;
    ["-wal", "-shm", "-journal"].into_iter().try_for_each(|suffix| close_to_others(&beside(file, suffix)))
}

/// The name of a file beside another.
pub(crate) fn beside(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Takes all rights from others. A file that is not there needs nothing.
fn close_to_others(path: &Path) -> io::Result<()> {
    let mode = match fs::metadata(path) {
        Ok(found) => found.permissions().mode(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if mode & OTHERS == 0 { Ok(()) } else { fs::set_permissions(path, Permissions::from_mode(mode & !OTHERS)) }
}
