//! The file that says where a server is once it is ready.
//!
//! A reader finds no file or a whole one. A file of an earlier server is removed before the start, and the own one at the end.

use std::io::Write as _;
use std::path::{Path, PathBuf};

/// The file of a server that is ready; removed when this is dropped.
pub(crate) struct ReadyFile(PathBuf);

impl ReadyFile {
    /// Removes the file of an earlier server.
    ///
    /// # Errors
    /// When there is one that can't be removed.
    pub(crate) fn clear(path: &Path) -> std::io::Result<()> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Writes the file in one step.
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
        // A file that stays names a server that does not answer.
        let _ = std::fs::remove_file(&self.0);
    }
}
