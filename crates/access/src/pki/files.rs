//! Private files and directories, readable only by their owner. A file is written completely or not at all.
//!
//! The content goes to a temporary file, which is then renamed. So a crash leaves the old or the new file. Permissions
//! of other users are removed.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
/// The largest file that is read, in bytes.
const MOST_BYTES: u64 = 1024 * 1024;

/// Creates a directory and its parents, accessible only by the owner. Removes permissions of others from an existing
/// one.
///
/// # Errors
/// Errors of the file system.
pub fn ensure_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path)?;
    fs::set_permissions(path, Permissions::from_mode(DIRECTORY_MODE))
}

/// The effect of a power failure on a written file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The file has the old or the new content.
    Durable,
    /// The file may be lost, because it can be created again. Avoids a wait for the disk.
    Replaceable,
}

/// Writes a file that only the owner can read. Readers see the old or the new content, never a part.
///
/// # Errors
/// Errors of the file system.
pub fn write_private(path: &Path, content: &[u8], durability: Durability) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    // A temporary file of a crashed server may have other permissions.
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(&temporary)?;
    if let Err(error) = file.write_all(content) {
        // Removes the temporary file, for example after a full disk.
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

/// Reads a file if it exists. It must be a regular file, since reading a named pipe could block forever.
///
/// # Errors
/// Errors of the file system, except that the file does not exist. Also if it is not a regular file, or is larger than
/// [`MOST_BYTES`].
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
        return unfit("it is not a regular file".to_owned());
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
    fn directories_and_endless_files_are_refused() {
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
        assert!(refused.contains("not a regular file"), "{refused}");
        assert!(read_if_exists(directory.path()).is_err());
    }
}
