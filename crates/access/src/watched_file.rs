//! A file that is looked at now and then, to be read again when it has changed.
//!
//! Asking for the time and the size costs little and works on every file system, unlike being told of changes.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// How often it is looked at.
pub(crate) const LOOK: Duration = Duration::from_secs(1);

/// A file whose changes are noticed.
pub(crate) struct WatchedFile {
    path: PathBuf,
    known: Option<(SystemTime, u64)>,
}

impl WatchedFile {
    /// The file as it is now.
    pub(crate) async fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), known: modified(path).await }
    }

    /// Waits until it is another than at the last look.
    pub(crate) async fn changed(&mut self) {
        loop {
            tokio::time::sleep(LOOK).await;
            let now = modified(&self.path).await;
            if now != self.known {
                self.known = now;
                return;
            }
        }
    }
}

async fn modified(file: &Path) -> Option<(SystemTime, u64)> {
    let metadata = tokio::fs::metadata(file).await.ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}
