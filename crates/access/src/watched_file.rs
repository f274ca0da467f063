//! A file that is checked at intervals and reloaded after changes.
//!
//! Checking modification time and size is cheap and works on every file system, unlike change notifications. If the new
//! content is invalid, the previous content stays.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use arc_swap::{ArcSwap, Guard};

/// The interval between checks.
pub(crate) const LOOK: Duration = Duration::from_secs(1);

/// The reason why a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file system returned an error.
    #[error("{0}: {1}")]
    Unreadable(PathBuf, std::io::Error),
    /// The file is larger than this limit in bytes.
    #[error("{0} has more than {1} bytes")]
    TooLarge(PathBuf, u64),
}

/// The parsed content of a file.
pub(crate) trait Contents: Sized + Send + Sync + 'static {
    /// The name of the entries in log lines, in plural.
    const NAME: &str;
    /// The reason why the content is invalid.
    type Error: Display + Send + 'static;

    /// Reads and parses the file.
    fn read(file: &Path) -> Result<Self, Self::Error>;

    /// The number of entries.
    fn count(&self) -> usize;
}

/// The numbers of reloads by outcome. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct FileReads(Arc<[AtomicU64; 2]>);

impl FileReads {
    /// Counts a reload.
    pub fn note(&self, succeeded: bool) {
        self.0[usize::from(!succeeded)].fetch_add(1, Ordering::Relaxed);
    }

    /// The numbers of successful and failed reloads.
    pub fn counts(&self) -> [(&'static str, u64); 2] {
        let [succeeded, failed] = &*self.0;
        [("success", succeeded.load(Ordering::Relaxed)), ("failure", failed.load(Ordering::Relaxed))]
    }
}

/// A file with its parsed content.
pub(crate) struct ParsedFile<C> {
    file: PathBuf,
    current: ArcSwap<C>,
    reads: FileReads,
}

impl<C: Contents> ParsedFile<C> {
    /// Reads the file.
    pub(crate) fn read(file: &Path) -> Result<Self, C::Error> {
        Ok(Self { file: file.to_owned(), current: ArcSwap::from_pointee(C::read(file)?), reads: FileReads::default() })
    }

    /// The file.
    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// The counts of reloads.
    pub(crate) fn reads(&self) -> &FileReads {
        &self.reads
    }

    /// The content of the last successful read.
    pub(crate) fn current(&self) -> Guard<Arc<C>> {
        self.current.load()
    }

    /// Reloads the file after changes. Never returns.
    pub(crate) async fn follow(&self) {
        let mut changes = FileChanges::new(&self.file).await;
        loop {
            changes.changed().await;
            self.read_again().await;
        }
    }

    async fn read_again(&self) {
        let (name, file) = (C::NAME, self.file.clone());
        let read = keelson_supervision::spawn_blocking(move || C::read(&file)).await;
        self.reads.note(matches!(read, Ok(Ok(_))));
        match read {
            Ok(Ok(contents)) => {
                tracing::info!(count = contents.count(), file = %self.file.display(), "the {name} were reloaded");
                self.current.store(Arc::new(contents));
            }
            Ok(Err(error)) => tracing::error!(%error, "the {name} are invalid; the previous ones stay in use"),
            Err(error) => tracing::error!(%error, "reading {name} failed; the previous ones stay in use"),
        }
    }
}

/// Detects changes of files. The caller reads them.
#[derive(Debug)]
pub struct FileChanges {
    files: Vec<PathBuf>,
    known: Vec<Option<(SystemTime, u64)>>,
}

impl FileChanges {
    /// Starts to detect changes of a file.
    pub async fn new(file: &Path) -> Self {
        Self::of_all(vec![file.to_owned()]).await
    }

    /// Starts to detect changes of these files.
    pub async fn of_all(files: Vec<PathBuf>) -> Self {
        let known = modified(&files).await;
        Self { files, known }
    }

    /// Waits until a file has changed since the last check.
    pub async fn changed(&mut self) {
        loop {
            tokio::time::sleep(LOOK).await;
            let now = modified(&self.files).await;
            if now != self.known {
                self.known = now;
                return;
            }
        }
    }
}

/// Reads a file of at most `most` bytes.
///
/// # Errors
/// The file is larger, or cannot be read.
pub fn read_bounded(file: &Path, most: u64) -> Result<Vec<u8>, FileError> {
    let unreadable = |error| FileError::Unreadable(file.to_owned(), error);
    if std::fs::metadata(file).map_err(unreadable)?.len() > most {
        return Err(FileError::TooLarge(file.to_owned(), most));
    }
    std::fs::read(file).map_err(unreadable)
}

async fn modified(files: &[PathBuf]) -> Vec<Option<(SystemTime, u64)>> {
    let mut all = Vec::with_capacity(files.len());
    for file in files {
        let metadata = tokio::fs::metadata(file).await.ok();
        all.push(metadata.and_then(|metadata| Some((metadata.modified().ok()?, metadata.len()))));
    }
    all
}
