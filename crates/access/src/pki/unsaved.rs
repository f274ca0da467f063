//! Key and certificate files as one transaction: written when a start succeeds, and removed again when it fails.
//!
//! A failed start leaves no files behind, however late it fails. If servers create keys in one directory at the same
//! moment, the first one succeeds: under a lock, each checks that the files are unchanged since it read them.

use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::files::{self, Durability};
use super::{PkiError, file_error, load, write};

/// Files that are not yet written.
#[derive(Default)]
#[must_use = "keys that are not saved are lost with the process"]
pub struct PendingFiles {
    /// The data directory and its directory of keys; empty for servers in memory.
    directories: Vec<PathBuf>,
    /// The files in the order of writing.
    files: Vec<NewFile>,
    /// True to write all files without waiting for the disk.
    pub(super) no_fsync: bool,
}

/// A file to write.
struct NewFile {
    path: PathBuf,
    content: String,
    durability: Durability,
    /// The content that the new one replaces.
    before: Option<String>,
}

/// The written files. They can be removed until the start has succeeded.
#[derive(Default)]
#[must_use = "the files of a failed start must be removed"]
pub struct WrittenFiles {
    /// The directories that did not exist before.
    directories: Vec<PathBuf>,
    files: Vec<NewFile>,
}

impl PendingFiles {
    /// Creates an empty transaction for a data directory.
    pub(super) fn below(data_dir: &Path, keys: &Path) -> Self {
        Self { directories: vec![data_dir.to_owned(), keys.to_owned()], ..Self::default() }
    }

    /// Adds a file to write, in place of any existing one.
    pub(super) fn keep(&mut self, path: PathBuf, content: &str, durability: Durability) -> Result<(), PkiError> {
        let before = load(&path)?;
        self.files.push(NewFile { path, content: content.to_owned(), durability, before });
        Ok(())
    }

    /// Adds a file that can be recreated, unless it already has this content.
    ///
    /// # Errors
    /// The existing file cannot be read.
    pub fn keep_note(&mut self, path: PathBuf, content: &str) -> Result<(), PkiError> {
        if load(&path)?.as_deref() == Some(content) {
            return Ok(());
        }
        self.keep(path, content, Durability::Replaceable)
    }

    /// Writes the files.
    ///
    /// # Errors
    /// A directory or file cannot be created, or another server has created keys meanwhile. Nothing is left behind
    /// then.
    pub fn save(self) -> Result<WrittenFiles, PkiError> {
        let mut saved = WrittenFiles::default();
        match self.write(&mut saved) {
            Ok(()) => Ok(saved),
            Err(error) => {
                saved.take_back();
                Err(error)
            }
        }
    }

    /// Returns true if a new authority or token key is among the files.
    pub fn makes_keys(&self) -> bool {
        self.files.iter().any(|made| made.durability == Durability::Durable && made.before.is_none())
    }

    /// Sorts keys before the files that are created from them.
    fn sort(&mut self) {
        self.files.sort_by_key(|made| made.durability == Durability::Replaceable);
    }

    /// The file names in the order of writing.
    #[cfg(test)]
    pub(super) fn names_in_order(mut self) -> Vec<String> {
        self.sort();
        let name = |made: &NewFile| made.path.file_name().map(|name| name.to_string_lossy().into_owned());
        self.files.iter().filter_map(name).collect()
    }

    fn write(mut self, saved: &mut WrittenFiles) -> Result<(), PkiError> {
        // ORDER: keys come first. A certificate without its authority would look like a lost key.
        self.sort();
        for directory in self.directories.iter().filter(|directory| !directory.exists()) {
            saved.directories.push(directory.clone());
        }
        for directory in &self.directories {
            files::ensure_directory(directory).map_err(|source| file_error(directory, source))?;
        }
        // ORDER: the lock is held from the check until the last file is written, so that no other server writes in
        // between.
        let _lock = self.directories.last().map(|keys| lock(keys)).transpose()?;
        for NewFile { path, before, .. } in self.files.iter().filter(|made| made.durability == Durability::Durable) {
            if load(path)? != *before {
                return Err(PkiError::MadeMeanwhile { path: path.clone() });
            }
        }
        for made in self.files {
            let durability = if self.no_fsync { Durability::Replaceable } else { made.durability };
            match write(&made.path, &made.content, durability) {
                Ok(()) => saved.files.push(made),
                // A server must be able to start with a full disk, so that objects can be deleted.
                Err(PkiError::File { path, source })
                    if made.durability == Durability::Replaceable && source.kind() == ErrorKind::StorageFull =>
                {
                    tracing::warn!(error = %source, "{} can't be written, and the next start makes it", path.display());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl WrittenFiles {
    /// Removes the new files and restores the replaced ones.
    pub fn take_back(self) {
        for NewFile { path, content, durability, before } in self.files.into_iter().rev() {
            let undone = match (load(&path), before) {
                (Ok(now), _) if now.as_deref() != Some(content.as_str()) => Ok(()),
                (Ok(_), Some(before)) => write(&path, &before, durability),
                (Ok(_), None) => fs::remove_file(&path).map_err(|source| file_error(&path, source)),
                (Err(error), _) => Err(error),
            };
            if let Err(error) = undone {
                tracing::warn!(%error, "removing a file of a failed start failed");
            }
        }
        // ORDER: the lock is held, so that no other server starts to write into the directories. Directories that are
        // not empty stay.
        if let Some(Ok(_lock)) = self.directories.last().map(|last| lock(last)) {
            for directory in self.directories.iter().rev() {
                let _ = fs::remove_dir(directory);
            }
        }
    }
}

/// Locks the directory of keys against other servers. Has no effect on file systems without locks.
fn lock(keys: &Path) -> Result<File, PkiError> {
    let opened = File::open(keys).map_err(|source| file_error(keys, source))?;
    match opened.try_lock() {
        Err(TryLockError::WouldBlock) => Err(PkiError::MadeMeanwhile { path: keys.to_owned() }),
        Ok(()) | Err(TryLockError::Error(_)) => Ok(opened),
    }
}
