//! The file that contains the server's URL once the server is ready.
//!
//! A reader finds no file or a complete one. The start removes the file of an earlier server, and the end removes the
//! server's own.

use std::io::Write as _;
use std::path::{Path, PathBuf};

/// The file of a server that is ready. Dropping it removes the file.
pub(crate) struct ReadyFile(PathBuf);

impl ReadyFile {
    /// Removes the file of an earlier server.
    ///
    /// # Errors
    /// When the file exists and can't be removed.
    pub(crate) fn clear(path: &Path) -> std::io::Result<()> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Writes the file atomically.
    ///
    /// # Errors
    /// When it can't be written.
    pub(crate) fn write(path: &Path, url: &str) -> std::io::Result<Self> {
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut file = tempfile::Builder::new().prefix(".keelson-ready-").tempfile_in(directory)?;
        writeln!(file, "{url}")?;
        file.persist(path).map_err(|error| error.error)?;
        Ok(Self(path.to_owned()))
    }
}

impl Drop for ReadyFile {
    fn drop(&mut self) {
        // A file that remains would name a server that no longer runs.
        let _ = std::fs::remove_file(&self.0);
    }
}
