//! The errors of a data directory and of SQLite, for operators.
//!
//! The errors name the file and the remedy. Clients see only the kind of the `StoreError`.

use std::io::{self, ErrorKind};
use std::path::PathBuf;

use keelson_storage::StoreError;
use rusqlite::ErrorCode;

use crate::sqlite::sum::{ADVICE, Damage};
use crate::sqlite::work;

/// The reason for which a data directory can't be opened, backed up or restored.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another server uses the directory. Two servers would destroy each other's data.
    #[error("the data directory {} is in use by another keelson server{}", directory.display(), process_of(owner))]
    InUse {
        /// The data directory.
        directory: PathBuf,
        /// The process number that the other server has written to the lock file, if it can be read.
        owner: Option<u32>,
    },
    /// A newer keelson wrote the store in a format that this one does not know.
    #[error(
        "{} has storage format {found}, and this keelson knows formats up to {known}: start the newer keelson that \
         wrote it, or restore a backup made by this version",
        file.display()
    )]
    NewerFormat {
        /// The database file.
        file: PathBuf,
        /// The format of the store.
        found: i32,
        /// The newest format that this release knows.
        known: i32,
    },
    /// The file is a database of another program.
    #[error("{} is not a keelson store", file.display())]
    NotAStore {
        /// The file.
        file: PathBuf,
    },
    /// A restore would overwrite a store.
    #[error(
        "the data directory {} holds a store ({file}): move it away, or restore the backup into another directory",
        directory.display()
    )]
    HoldsStore {
        /// The data directory.
        directory: PathBuf,
        /// The file of the existing store.
        file: String,
    },
    /// A backup would overwrite a file.
    #[error("{} exists already: a backup is written to a new file", file.display())]
    Exists {
        /// The existing file.
        file: PathBuf,
    },
    /// The file is damaged.
    #[error("{} is damaged: {finding}", file.display())]
    Damaged {
        /// The database file.
        file: PathBuf,
        /// The fault, and the remedy.
        finding: String,
    },
    /// A damaged place in the log makes the rest of the log unreadable.
    #[error(
        "{}: {finding}; what they wrote was acknowledged and is lost: restore a backup with `keelson storage restore`, or start \
         with --accept-loss to go on without it",
        file.display()
    )]
    Torn {
        /// The log.
        file: PathBuf,
        /// The damaged place.
        finding: String,
    },
    /// Acknowledged writes are missing, or a file that records them is.
    #[error(
        "the store in {} has lost something: {finding}; put the missing files back, restore a backup with `keelson storage restore`, or \
         start with --accept-loss to go on without what is lost",
        directory.display()
    )]
    Lost {
        /// The data directory.
        directory: PathBuf,
        /// The loss, and the evidence of it.
        finding: String,
    },
    /// A restore was interrupted.
    #[error(
        "a restore into {} did not finish: give `keelson storage restore` again, or remove {}{} from it to begin with an empty store",
        directory.display(), crate::sqlite::open::DATABASE_FILE, crate::sqlite::open::PARTIAL
    )]
    UnfinishedRestore {
        /// The data directory.
        directory: PathBuf,
    },
    /// A copy was interrupted before it had created its store.
    #[error(
        "a copy into this store did not finish: give `keelson storage copy` again, or remove {} to begin with an empty one",
        directory.display()
    )]
    UnfinishedCopy {
        /// The data directory.
        directory: PathBuf,
    },
    /// A store had to exist, and there is none.
    #[error("there is no embedded store in {}: {} is {}", directory.display(), crate::sqlite::open::DATABASE_FILE, absent(*empty))]
    NoStore {
        /// The data directory.
        directory: PathBuf,
        /// True if the database file exists and is empty.
        empty: bool,
    },
    /// The backup does not have the checksum that was written beside it.
    #[error("{} has the checksum {found}, and {} has {noted}: the backup is damaged or another one", file.display(), beside.display())]
    OtherChecksum {
        /// The backup.
        file: PathBuf,
        /// The file with the checksum.
        beside: PathBuf,
        /// The SHA-256 checksum of the backup.
        found: String,
        /// The one in that file.
        noted: String,
    },
    /// The caller ended the work.
    #[error("interrupted")]
    Interrupted,
    /// An operation of the file system failed.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A call of SQLite failed.
    #[error("{}: {source}", path.display())]
    Sqlite {
        /// The database file.
        path: PathBuf,
        /// The cause.
        source: rusqlite::Error,
    },
}

fn absent(empty: bool) -> &'static str {
    if empty { "empty" } else { "missing" }
}

fn process_of(owner: &Option<u32>) -> String {
    owner.map(|id| format!(" (process {id})")).unwrap_or_default()
}

impl OpenError {
    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }

    pub(crate) fn sqlite(path: impl Into<PathBuf>) -> impl FnOnce(rusqlite::Error) -> Self {
        let path = path.into();
        move |source| match Damage::from_error(&source) {
            _ if work::is_interrupted(&source) => Self::Interrupted,
            Some(damage) => Self::Damaged { file: path, finding: damage.to_string() },
            None => Self::Sqlite { path, source },
        }
    }
}

impl From<OpenError> for StoreError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::InUse { .. }
            | OpenError::Io { .. }
            | OpenError::HoldsStore { .. }
            | OpenError::NoStore { .. }
            | OpenError::UnfinishedRestore { .. }
            | OpenError::UnfinishedCopy { .. }
            | OpenError::Interrupted
            | OpenError::Exists { .. } => Self::Unavailable(error.to_string()),
            OpenError::NewerFormat { .. }
            | OpenError::NotAStore { .. }
            | OpenError::OtherChecksum { .. }
            | OpenError::Damaged { .. }
            | OpenError::Lost { .. }
            | OpenError::Torn { .. } => Self::Corrupt(error.to_string()),
            OpenError::Sqlite { ref source, .. } if is_damage(source) => Self::Corrupt(error.to_string()),
            OpenError::Sqlite { .. } => Self::Unavailable(error.to_string()),
        }
    }
}

/// The store error of a failed statement.
pub(crate) fn store_error(error: &rusqlite::Error) -> StoreError {
    if let Some(damage) = Damage::from_error(error) {
        return StoreError::Corrupt(damage.to_string());
    }
    match error.sqlite_error_code() {
        _ if is_damage(error) => StoreError::Corrupt(format!("{error}; {ADVICE}")),
        Some(ErrorCode::DiskFull) => disk_full(),
        _ => StoreError::Unavailable(error.to_string()),
    }
}

/// The error of a write for which even the reserve has no space.
pub(crate) fn disk_full() -> StoreError {
    StoreError::Full(
        "the disk is full, and so is its reserve: nothing is written before there is room on the disk".to_owned(),
    )
}

/// Returns true for the error of a full disk, or of an exceeded disk quota.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

/// The error of every call after the store was closed or its writer has ended.
pub(crate) fn stopped() -> StoreError {
    StoreError::Unavailable("the store has been closed".to_owned())
}

/// Returns true if the file itself is damaged, so that a retry does not help.
fn is_damage(error: &rusqlite::Error) -> bool {
    match error {
        rusqlite::Error::SqliteFailure(failure, _) => {
            matches!(failure.code, ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
        }
        rusqlite::Error::FromSqlConversionFailure(..)
        | rusqlite::Error::IntegralValueOutOfRange(..)
        | rusqlite::Error::InvalidColumnType(..)
        | rusqlite::Error::Utf8Error(..) => true,
        _ => false,
    }
}
