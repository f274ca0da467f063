//! The data directory: its lock, and a note with the store that its servers use.
//!
//! A server with its store elsewhere locks the directory too, since its keys and its kubeconfig are there. The note
//! contains no user name and no password. With it, commands and starts distinguish a missing store from an empty one,
//! and the earlier store from the current one.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use keelson_meta::Revision;
use keelson_storage::copy;
use keelson_storage_sql::{ACCEPTED_LOSS_MARGIN, DirectoryLock, OpenError, PostgresError, SqliteConfig};
use keelson_supervision::Supervisor;

use crate::config::Config;
use crate::store::{Opened, StoreConfig};

/// The longest wait of a start for a data directory that another process has locked. A forked child process holds the
/// lock too until it executes its program.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);
/// The pause between two attempts to lock the directory.
const LOCK_POLL: Duration = Duration::from_millis(20);

/// The file with the note.
pub(crate) const NOTE: &str = "keelson.store";

/// The store of a data directory's servers, as noted at their last start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RecordedStore {
    Memory,
    /// SQLite in the data directory itself, even if that is moved.
    Here,
    Sqlite(PathBuf),
    Postgres(String),
    Etcd(String),
}

impl RecordedStore {
    /// The note for a store. `None` for a store that was opened elsewhere.
    pub(crate) fn for_config(store: &StoreConfig, data_dir: &Path) -> Option<Self> {
        match store {
            StoreConfig::Memory | StoreConfig::InMemory(_) => Some(Self::Memory),
            StoreConfig::Sqlite(directory) if is_same(directory, data_dir) => Some(Self::Here),
            StoreConfig::Sqlite(directory) => {
                Some(Self::Sqlite(std::path::absolute(directory).unwrap_or_else(|_| directory.clone())))
            }
            StoreConfig::Postgres(config) => Some(Self::Postgres(config.place())),
            StoreConfig::Etcd(config) => Some(Self::Etcd(format!("{}{}", config.endpoints.join(","), config.prefix))),
            StoreConfig::Shared(_) => None,
        }
    }

    /// Reads the note of a data directory. `None` if it cannot be read.
    pub(crate) fn read(data_dir: &Path) -> Option<Self> {
        let text = keelson_access::pki::files::read_if_exists(&data_dir.join(NOTE)).ok()??;
        let (kind, place) = text.trim_end().split_once(' ').unwrap_or((text.trim_end(), ""));
        match (kind, place) {
            ("memory", "") => Some(Self::Memory),
            ("sqlite", "") => Some(Self::Here),
            ("sqlite", directory) if !directory.is_empty() => Some(Self::Sqlite(directory.into())),
            ("postgres", place) if !place.is_empty() => Some(Self::Postgres(place.to_owned())),
            ("etcd", place) if !place.is_empty() => Some(Self::Etcd(place.to_owned())),
            _ => None,
        }
    }

    /// The content of the note's file.
    pub(crate) fn to_line(&self) -> String {
        match self {
            Self::Memory => "memory\n".to_owned(),
            Self::Here => "sqlite\n".to_owned(),
            Self::Sqlite(directory) => format!("sqlite {}\n", directory.display()),
            Self::Postgres(place) => format!("postgres {place}\n"),
            Self::Etcd(place) => format!("etcd {place}\n"),
        }
    }

    /// The tool that replaces commands which only the embedded store supports.
    fn instead(&self) -> String {
        match self {
            Self::Memory => "a store in memory ends with its server, and `kubectl get` is all that reads it".to_owned(),
            Self::Here => "give this directory".to_owned(),
            Self::Sqlite(directory) => format!("give --data-dir {}", directory.display()),
            Self::Postgres(_) => "use pg_dump for it, or `keelson storage copy` into an embedded store".to_owned(),
            Self::Etcd(_) => {
                "use `etcdctl snapshot save` for it, or `keelson storage copy` into an embedded store".to_owned()
            }
        }
    }
}

impl fmt::Display for RecordedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory"),
            Self::Here => f.write_str("SQLite in the data directory"),
            Self::Sqlite(directory) => write!(f, "SQLite in {}", directory.display()),
            Self::Postgres(place) => write!(f, "PostgreSQL at {place}"),
            Self::Etcd(place) => write!(f, "etcd at {place}"),
        }
    }
}

/// Refuses a data directory whose servers use another store, for commands that read the embedded store.
///
/// # Errors
/// Names the store in use, and the tool for it.
pub(crate) fn check_embedded(data_dir: &Path) -> anyhow::Result<()> {
    let directory = data_dir.display();
    let has_store = SqliteConfig::file_in(data_dir).exists();
    let noted = RecordedStore::read(data_dir).filter(|noted| *noted != RecordedStore::Here);
    let Some(noted) = noted else {
        ensure!(
            has_store,
            "there is no embedded store in {directory}: --data-dir names the directory of the server, and servers on PostgreSQL or etcd \
             have none"
        );
        return Ok(());
    };
    let instead = noted.instead();
    ensure!(
        has_store,
        "there is no embedded store in {directory}; its servers keep their objects in {noted}: {instead}"
    );
    bail!(
        "the servers of {directory} keep their objects in {noted}, and the embedded store there is an earlier one: {instead}; to read the \
         earlier one, remove {NOTE} from the directory first"
    );
}

/// Logs a warning if the store of this server differs from that of earlier servers on its data directory.
pub(crate) fn warn_of_other_store(config: &Config) {
    let Some(data_dir) = &config.data_dir else { return };
    if let (Some(before), Some(now)) =
        (RecordedStore::read(data_dir), RecordedStore::for_config(&config.store, data_dir))
        && before != now
    {
        tracing::warn!(%before, %now, "the server that ran on this data directory before kept its objects in another store");
    }
}

/// Opens the store of a server. If earlier servers of the data directory used a persistent store, the store must exist
/// and contain objects. This holds for another configured store too, since a mistyped name must not begin a new
/// cluster.
///
/// # Errors
/// When the store cannot be opened, or is missing or empty without `accept_loss`.
pub(crate) async fn open_store(config: &Config, least: Revision, supervisor: &Supervisor) -> anyhow::Result<Opened> {
    let (store, room, accept) = (&config.store, &config.store_room, config.accept_loss);
    let both = config.data_dir.as_deref().and_then(|data_dir| {
        let (noted, now) = (RecordedStore::read(data_dir)?, RecordedStore::for_config(store, data_dir)?);
        // A store in memory is new at each start.
        (noted != RecordedStore::Memory && now != RecordedStore::Memory).then_some((noted, now))
    });
    let Some((noted, now)) = both else {
        return store.open(least, false, supervisor, room, accept).await;
    };
    let lost = || {
        let (holds_none, way) = if noted == now {
            ("it holds none".to_owned(), "restore a backup there")
        } else {
            (
                format!("{now} holds none"),
                "name that store with --store, or copy its objects with `keelson storage copy`",
            )
        };
        format!(
            "the servers of this data directory kept their objects in {noted}, and {holds_none}: {way}, or start with --accept-loss to \
             begin with an empty store"
        )
    };
    let opened = match store.open(least, !accept, supervisor, room, accept).await {
        Err(error) if is_missing(&error) => return Err(error.context(lost())),
        opened => opened?,
    };
    if least > Revision::ZERO || copy::holds_objects(&*opened.store).await.context("looking into the store")? {
        return Ok(opened);
    }
    ensure!(accept, lost());
    tracing::warn!(store = %now, before = %noted, "beginning with an empty store in place of the one of before");
    // Some stores can be opened only once at a time, and closing one waits for its threads.
    keelson_supervision::spawn_blocking(|| drop(opened)).await?;
    store.open(Revision::new(ACCEPTED_LOSS_MARGIN), false, supervisor, room, accept).await
}

/// Returns true for an error because the store does not exist.
fn is_missing(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(OpenError::NoStore { .. }))
        || matches!(error.downcast_ref(), Some(PostgresError::NoStore))
}

/// The lock of a data directory by a server whose store does not lock it.
#[must_use = "the directory is given up when this is dropped"]
pub(crate) struct OwnDirectory {
    lock: Option<DirectoryLock>,
    /// The directory, if it was created for this server.
    made: Option<PathBuf>,
}

impl OwnDirectory {
    /// Locks the data directory: exclusively, or together with others if servers share the store. Waits a moment for a
    /// server that is about to end.
    ///
    /// # Errors
    /// When another server has locked it.
    pub(crate) async fn take(config: &Config) -> anyhow::Result<Self> {
        let Some(directory) = &config.data_dir else { return Ok(Self { lock: None, made: None }) };
        let take = match &config.store {
            // The store has locked it.
            StoreConfig::Sqlite(store) if is_same(store, directory) => return Ok(Self { lock: None, made: None }),
            StoreConfig::Sqlite(_) | StoreConfig::Memory | StoreConfig::InMemory(_) => DirectoryLock::take,
            StoreConfig::Postgres(_) | StoreConfig::Etcd(_) | StoreConfig::Shared(_) => DirectoryLock::share,
        };
        let made = (!directory.exists()).then(|| directory.clone());
        let begun = Instant::now();
        loop {
            match take(directory) {
                Err(OpenError::InUse { .. }) if begun.elapsed() < LOCK_PATIENCE => tokio::time::sleep(LOCK_POLL).await,
                taken => return Ok(Self { lock: Some(taken.context("taking the data directory")?), made }),
            }
        }
    }

    /// Releases the directory of a start that failed. Removes it if it was created for this server and is empty.
    pub(crate) fn take_back(self) {
        if let (Some(lock), Some(directory)) = (self.lock, self.made) {
            // A failure leaves an empty directory.
            let _ = lock.remove(&directory);
        }
    }
}

/// Returns true if both paths are the same directory.
pub(crate) fn is_same(one: &Path, other: &Path) -> bool {
    let resolved = |path: &Path| path.canonicalize().or_else(|_| std::path::absolute(path)).ok();
    one == other || resolved(one).is_some_and(|one| resolved(other) == Some(one))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_reads_back_and_names_no_password() {
        let directory = tempfile::TempDir::new().unwrap();
        assert_eq!(RecordedStore::read(directory.path()), None);
        for (url, expected) in [
            ("memory:", "memory"),
            ("sqlite:/srv/a store", "SQLite in /srv/a store"),
            ("sqlite:/srv/data", "SQLite in the data directory"),
            (
                "postgres://me:secret@db.example.org:5433,other/objects",
                "PostgreSQL at db.example.org:5433,other/objects",
            ),
            ("etcd://me:secret@a:2379,b:2379", "etcd at a:2379,b:2379/registry"),
        ] {
            let noted = RecordedStore::for_config(&StoreConfig::parse(url).unwrap(), Path::new("/srv/data")).unwrap();
            assert_eq!(noted.to_string(), expected);
            assert!(!noted.to_line().contains("secret"), "{url}");
            std::fs::write(directory.path().join(NOTE), noted.to_line()).unwrap();
            assert_eq!(RecordedStore::read(directory.path()), Some(noted));
        }
        for nothing in ["", "memory of something", "postgres", "sql\u{0}"] {
            std::fs::write(directory.path().join(NOTE), nothing).unwrap();
            assert_eq!(RecordedStore::read(directory.path()), None, "{nothing:?}");
        }
    }
}
