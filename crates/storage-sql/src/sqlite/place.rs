//! Checks that the files of an open store still have their names. If the files are removed or replaced, the server
//! continues to write to files without names, and loses these writes when the process ends.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use keelson_supervision::error_repeated;

use crate::sqlite::open::{DATABASE_FILE, LOG};
use crate::sqlite::private::beside;

/// The files of a store as they were when it was opened.
#[derive(Debug)]
pub(crate) struct Places(Vec<Place>);

#[derive(Debug)]
struct Place {
    path: PathBuf,
    device: u64,
    number: u64,
}

impl Places {
    /// Records the database and its log. Both exist once the store is open.
    pub(crate) fn note(directory: &Path) -> io::Result<Self> {
        let database = directory.join(DATABASE_FILE);
        let places = [database.clone(), beside(&database, LOG)].map(|path| {
            let found = File::open(&path)?.metadata()?;
            Ok(Place { path, device: found.dev(), number: found.ino() })
        });
        places.into_iter().collect::<io::Result<_>>().map(Self)
    }

    /// Checks that the names still refer to the files.
    ///
    /// Cost: one system call for each file.
    ///
    /// # Errors
    /// The file and the remedy.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.0.iter().try_for_each(|place| match place.finding() {
            Some(finding) => Err(refusal(&place.path, finding)),
            None => Ok(()),
        })
    }
}

impl Place {
    fn finding(&self) -> Option<&'static str> {
        let is_this = |found: &Metadata| found.dev() == self.device && found.ino() == self.number;
        match self.path.metadata() {
            Ok(found) if !is_this(&found) => Some("was replaced"),
            // A database always has pages. The writer itself may empty the log.
            Ok(found) if found.len() == 0 && self.path.ends_with(DATABASE_FILE) => Some("was emptied"),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Some("was removed"),
            // The file system returns no information about the file.
            Ok(_) | Err(_) => None,
        }
    }
}

fn refusal(path: &Path, finding: &str) -> String {
    let (path, process) = (path.display(), std::process::id());
    error_repeated!(""; file = %path, process, "a file of the store {finding} while this server has it open: nothing is written until it is \
        back under its name, and what is there can still be read");
    format!(
        "{path} {finding} while the server has it open: put that file back under its name, or save the objects with `kubectl get` and \
         the files from /proc/{process}/fd before the server is stopped"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_and_replaced_files_are_reported_until_restored() {
        let directory = tempfile::TempDir::new().unwrap();
        let (database, log) = (directory.path().join(DATABASE_FILE), directory.path().join("keelson.db-wal"));
        let away = directory.path().join("away");
        std::fs::write(&database, "pages").unwrap();
        std::fs::write(&log, "").unwrap();
        let places = Places::note(directory.path()).unwrap();
        places.check().unwrap();
        for file in [&database, &log] {
            std::fs::rename(file, &away).unwrap();
            assert!(places.check().unwrap_err().contains("was removed"));
            std::fs::write(file, "pages").unwrap();
            assert!(places.check().unwrap_err().contains("was replaced"));
            std::fs::rename(&away, file).unwrap();
            places.check().unwrap();
        }
        std::fs::write(&database, "").unwrap();
        assert!(places.check().unwrap_err().contains("was emptied"));
    }
}
