//! A file that says something, and is looked at now and then, to be read again when it has changed.
//!
//! Asking for the time and the size costs little and works on every file system, unlike being told of changes. What can't be read then
//! leaves what was read before.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use arc_swap::{ArcSwap, Guard};

/// How often it is looked at.
pub(crate) const LOOK: Duration = Duration::from_secs(1);

/// Why a file can't be read at all.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It can't be read.
    #[error("{0}: {1}")]
    Unreadable(PathBuf, std::io::Error),
    /// It has more than so many bytes.
    #[error("{0} has more than {1} bytes")]
    TooLarge(PathBuf, u64),
}

/// What a file can say.
pub(crate) trait Contents: Sized + Send + Sync + 'static {
    /// What it is called where it is told that it was read: a plural.
    const NAME: &str;
    /// Why a file does not say it.
    type Error: Display + Send + 'static;

    /// Reads it.
    fn read(file: &Path) -> Result<Self, Self::Error>;

    /// How many of them there are.
    fn count(&self) -> usize;
}

/// How often files were read again, by what came of it. A clone counts the same.
#[derive(Clone, Debug, Default)]
pub struct FileReads(Arc<[AtomicU64; 2]>);

impl FileReads {
    /// Counts one.
    pub fn note(&self, succeeded: bool) {
        self.0[usize::from(!succeeded)].fetch_add(1, Ordering::Relaxed);
    }

    /// How often what they said then counted, and how often it could not be used.
    pub fn counts(&self) -> [(&'static str, u64); 2] {
        let [succeeded, failed] = &*self.0;
        [("success", succeeded.load(Ordering::Relaxed)), ("failure", failed.load(Ordering::Relaxed))]
    }
}

/// What a file says, and the file.
pub(crate) struct Watched<C> {
    file: PathBuf,
    current: ArcSwap<C>,
    reads: FileReads,
}

impl<C: Contents> Watched<C> {
    /// Reads the file.
    pub(crate) fn read(file: &Path) -> Result<Self, C::Error> {
        Ok(Self { file: file.to_owned(), current: ArcSwap::from_pointee(C::read(file)?), reads: FileReads::default() })
    }

    /// The file.
    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// How often it was read again.
    pub(crate) fn reads(&self) -> &FileReads {
        &self.reads
    }

    /// What it said when it was read last.
    pub(crate) fn current(&self) -> Guard<Arc<C>> {
        self.current.load()
    }

    /// Reads the file again whenever it changes. Never ends.
    pub(crate) async fn follow(&self) {
        let mut changes = FileChanges::new(&self.file).await;
        loop {
            changes.changed().await;
            self.read_again().await;
        }
    }

    async fn read_again(&self) {
        let (name, file) = (C::NAME, self.file.clone());
        let read = tokio::task::spawn_blocking(move || C::read(&file)).await;
        self.reads.note(matches!(read, Ok(Ok(_))));
        match read {
            Ok(Ok(contents)) => {
                tracing::info!(count = contents.count(), file = %self.file.display(), "the {name} were read again");
                self.current.store(Arc::new(contents));
            }
            Ok(Err(error)) => tracing::error!(%error, "the {name} of before are kept"),
            Err(error) => tracing::error!(%error, "reading {name} failed; those of before are kept"),
        }
    }
}

/// The changes of files, for whoever reads them by himself.
#[derive(Debug)]
pub struct FileChanges {
    files: Vec<PathBuf>,
    known: Vec<Option<(SystemTime, u64)>>,
}

impl FileChanges {
    /// Those of a file from now on.
    pub async fn new(file: &Path) -> Self {
        Self::of_all(vec![file.to_owned()]).await
    }

    /// Those of any of these files from now on.
    pub async fn of_all(files: Vec<PathBuf>) -> Self {
        let known = modified(&files).await;
        Self { files, known }
    }

    /// Waits until one of the files is another than at the last look.
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

/// The bytes of a file, of which there are `most` at the most.
///
/// # Errors
/// When it has more, or can't be read.
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
