//! Certificate and key files as one transaction: they are put in place when a start succeeds, and removed again when it fails.
//!
//! A start that is refused leaves nothing behind, also where it is refused late. Of servers that make keys in one directory at the
//! same moment the first keeps its own: each looks, while no other writes, whether all is as it found it.

use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::files::{self, Durability};
use super::{PkiError, file_error, load, write};

/// Files that were made and are not written yet.
#[derive(Default)]
#[must_use = "keys that are not saved are lost with the process"]
pub struct Unsaved {
    /// The data directory, and the one for keys in it. None where nothing is kept.
    directories: Vec<PathBuf>,
    /// In the order in which they are to be written.
    files: Vec<Made>,
}

/// A file that is to be written.
struct Made {
    path: PathBuf,
    content: String,
    durability: Durability,
    /// What was there when it was made.
    before: Option<String>,
}

/// What was written, until it is sure that the server stays.
#[derive(Default)]
#[must_use = "of a start that is refused nothing is to be left"]
pub struct Saved {
    /// Those that were not there before.
    directories: Vec<PathBuf>,
    files: Vec<Made>,
}

impl Unsaved {
    /// Nothing yet, to be written to the keys in a data directory.
    pub(super) fn below(data_dir: &Path, keys: &Path) -> Self {
        Self { directories: vec![data_dir.to_owned(), keys.to_owned()], files: Vec::new() }
    }

    /// Notes a file that is to be written in the place of what is there.
    pub(super) fn keep(&mut self, path: PathBuf, content: &str, durability: Durability) -> Result<(), PkiError> {
        let before = load(&path)?;
        self.files.push(Made { path, content: content.to_owned(), durability, before });
        Ok(())
    }

    /// Notes a file that can be made again, unless the file says the same already.
    ///
    /// # Errors
    /// When the file is there and cannot be read.
    pub fn keep_note(&mut self, path: PathBuf, content: &str) -> Result<(), PkiError> {
        if load(&path)?.as_deref() == Some(content) {
            return Ok(());
        }
        self.keep(path, content, Durability::Replaceable)
    }

    /// Writes them.
    ///
    /// # Errors
    /// When a directory or file cannot be made, or another server has made keys meanwhile. Nothing is left behind then.
    pub fn save(self) -> Result<Saved, PkiError> {
        let mut saved = Saved::default();
        match self.write(&mut saved) {
            Ok(()) => Ok(saved),
            Err(error) => {
                saved.take_back();
                Err(error)
            }
        }
    }

    /// Returns true where an authority or the key of tokens is among them that was not there before.
    pub fn makes_keys(&self) -> bool {
        self.files.iter().any(|made| made.durability == Durability::Durable && made.before.is_none())
    }

    /// Puts keys before all that is made of them.
    fn sort(&mut self) {
        self.files.sort_by_key(|made| made.durability == Durability::Replaceable);
    }

    /// The names of the files in the order in which they are written.
    #[cfg(test)]
    pub(super) fn names_in_order(mut self) -> Vec<String> {
        self.sort();
        let name = |made: &Made| made.path.file_name().map(|name| name.to_string_lossy().into_owned());
        self.files.iter().filter_map(name).collect()
    }

    fn write(mut self, saved: &mut Saved) -> Result<(), PkiError> {
        // ORDER: a certificate without its authority is taken for a sign of a loss.
        self.sort();
        for directory in self.directories.iter().filter(|directory| !directory.exists()) {
            saved.directories.push(directory.clone());
        }
        for directory in &self.directories {
            files::ensure_directory(directory).map_err(|source| file_error(directory, source))?;
        }
        // ORDER: nobody else writes here from the look to the last file.
        let _lock = self.directories.last().map(|keys| lock(keys)).transpose()?;
        for Made { path, before, .. } in self.files.iter().filter(|made| made.durability == Durability::Durable) {
            if load(path)? != *before {
                return Err(PkiError::MadeMeanwhile { path: path.clone() });
            }
        }
        for made in self.files {
            match write(&made.path, &made.content, made.durability) {
                Ok(()) => saved.files.push(made),
                // A server that starts on a full disk is the way to delete something there.
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

impl Saved {
    /// Takes away what was written, and puts what was there before in its place.
    pub fn take_back(self) {
        for Made { path, content, durability, before } in self.files.into_iter().rev() {
            let undone = match (load(&path), before) {
                (Ok(now), _) if now.as_deref() != Some(content.as_str()) => Ok(()),
                (Ok(_), Some(before)) => write(&path, &before, durability),
                (Ok(_), None) => fs::remove_file(&path).map_err(|source| file_error(&path, source)),
                (Err(error), _) => Err(error),
            };
            if let Err(error) = undone {
                tracing::warn!(%error, "a file of a server that does not start is left behind");
            }
        }
        // ORDER: not while another is about to write into them. Those that it has written into stay.
        if let Some(Ok(_lock)) = self.directories.last().map(|last| lock(last)) {
            for directory in self.directories.iter().rev() {
                let _ = fs::remove_dir(directory);
            }
        }
    }
}

/// Keeps others from writing keys here; on file systems without locks it keeps nobody.
fn lock(keys: &Path) -> Result<File, PkiError> {
    let opened = File::open(keys).map_err(|source| file_error(keys, source))?;
    match opened.try_lock() {
        Err(TryLockError::WouldBlock) => Err(PkiError::MadeMeanwhile { path: keys.to_owned() }),
        Ok(()) | Err(TryLockError::Error(_)) => Ok(opened),
    }
}
