//! Private files: directories that only the owner enters, files that only the owner reads, written whole or not at all.
//!
//! A file is written beside its place and renamed, so that a crash leaves the old or the new one. Anybody else's access is
//! taken away.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// Makes a directory, and those above it, for the owner alone. An existing one is closed to others.
///
/// # Errors
/// Those of the file system.
pub fn ensure_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path)?;
    fs::set_permissions(path, Permissions::from_mode(DIRECTORY_MODE))
}

/// What a power failure may do to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Nothing: the old content or the new is there.
    Durable,
    /// Lose it, because it can be made again. Saves waiting for the disk.
    Replaceable,
}

/// Writes a file for the owner alone. Whoever reads it sees the old content or the new, never a part.
///
/// # Errors
/// Those of the file system.
pub fn write_private(path: &Path, content: &[u8], durability: Durability) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    // One that a crash left behind may have other permissions.
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(&temporary)?;
    if let Err(error) = file.write_all(content) {
        // Nothing is left behind on a full disk.
        let _ = fs::remove_file(&temporary);
        return Err(error);
    }
    match durability {
        Durability::Replaceable => fs::rename(&temporary, path),
        Durability::Durable => {
            // ORDER: the content is on disk before the name points at it, and the name before we go on.
            file.sync_all()?;
            fs::rename(&temporary, path)?;
            File::open(directory)?.sync_all()
        }
    }
}

/// Reads a file if it is there.
///
/// # Errors
/// Those of the file system, except that it does not exist.
pub fn read_if_exists(path: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
