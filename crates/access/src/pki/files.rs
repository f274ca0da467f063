//! Private files and directories, for the owner alone. A file is written completely or not at all.
//!
//! A file is written beside its place and renamed, so a crash leaves the old or the new one. Access by others is
//! removed.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
/// The largest file that is read, in bytes.
const MOST_BYTES: u64 = 1024 * 1024;

/// Creates a directory and its parents for the owner alone. Closes an existing one to others.
///
/// # Errors
/// Errors of the file system.
pub fn ensure_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path)?;
    fs::set_permissions(path, Permissions::from_mode(DIRECTORY_MODE))
}

/// The effect of a power failure on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// None: the old or the new content is there.
    Durable,
    /// The file may be lost, because it can be made again. Saves a wait for the disk.
    Replaceable,
}

/// Writes a file for the owner alone. Readers see the old content or the new, never a part.
///
/// # Errors
/// Errors of the file system.
pub fn write_private(path: &Path, content: &[u8], durability: Durability) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    // A file left by a crash may have other permissions.
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(&temporary)?;
    if let Err(error) = file.write_all(content) {
        // Leaves nothing behind on a full disk.
        let _ = fs::remove_file(&temporary);
        return Err(error);
    }
    match durability {
        Durability::Replaceable => fs::rename(&temporary, path),
        Durability::Durable => {
            // ORDER: the content is on disk before the rename, and the rename before the return.
            file.sync_all()?;
            fs::rename(&temporary, path)?;
            File::open(directory)?.sync_all()
        }
    }
}

/// Reads a file if it is there. It has to be a regular file: reading a named pipe would wait for a writer for ever.
///
/// # Errors
/// Those of the file system, except that it does not exist. What is no such file, or is larger than [`MOST_BYTES`].
pub fn read_if_exists(path: &Path) -> io::Result<Option<String>> {
    let found = match fs::metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let unfit = |why: String| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    if found.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !found.is_file() {
        return unfit("it is no regular file".to_owned());
    }
    if found.len() > MOST_BYTES {
        return unfit(format!("it has {} bytes, and {MOST_BYTES} are read at most", found.len()));
    }
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_file_or_has_no_end_is_refused_and_not_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ca.key");
        assert!(read_if_exists(&path).unwrap().is_none());
        fs::write(&path, "key").unwrap();
        assert_eq!(read_if_exists(&path).unwrap().as_deref(), Some("key"));
        File::options().write(true).open(&path).unwrap().set_len(1 << 36).unwrap();
        let refused = read_if_exists(&path).unwrap_err().to_string();
        assert!(refused.contains("68719476736 bytes"), "{refused}");
        fs::remove_file(&path).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let refused = read_if_exists(&path).unwrap_err().to_string();
        assert!(refused.contains("no regular file"), "{refused}");
        assert!(read_if_exists(directory.path()).is_err());
    }
}
