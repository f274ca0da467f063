//! The stores of a server: parses their URLs, opens them, and measures them.
//!
//! Only this module names the storage engines. It turns their counts into metrics, so that the engines need not know
//! metrics. Messages never contain the password in a URL.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use futures::future::BoxFuture;
use keelson_http::metrics::Sample;
use keelson_meta::Revision;
use keelson_storage::memory::MemoryStore;
use keelson_storage::{Disk, Store, SystemDisk, copy};
use keelson_storage_etcd::{EtcdConfig, EtcdStore};
use keelson_storage_sql::{
    ACCEPTED_LOSS_MARGIN, DEFAULT_HISTORY_BYTES, PasswordSources, PostgresConfig, PostgresStore, SqliteConfig,
    SqliteStore,
};
use keelson_supervision::Supervisor;

use crate::data_directory::{RecordedStore, is_same};
use crate::metrics::{etcd_samples, memory_samples, postgres_samples, space_samples};

/// The directory of keys in the data directory.
const PKI_DIRECTORY: &str = "pki";

/// The engine and location of the store.
#[derive(Clone)]
pub enum StoreConfig {
    /// In memory only: all objects are lost when the server stops.
    Memory,
    /// In this memory store, which no other server uses.
    InMemory(MemoryStore),
    /// In SQLite, in this directory.
    Sqlite(PathBuf),
    /// In PostgreSQL, which many servers can share.
    Postgres(Box<PostgresConfig>),
    /// In etcd, which many servers can share.
    Etcd(Box<EtcdConfig>),
    /// In a store that the caller has opened, and that other servers in this process may use too.
    Shared(Arc<dyn Store>),
}

/// The size limits of a store that this server owns. PostgreSQL and etcd have limits of their own.
#[derive(Clone, Debug)]
pub struct StoreLimits {
    /// The maximum size of the embedded store in bytes. `None` for the size of its disk.
    pub quota: Option<u64>,
    /// The maximum size of past versions of objects in bytes, in the embedded store and in memory.
    pub history_bytes: u64,
    /// The size of the embedded store's reserve on its disk, in bytes. `None` for a part of the disk.
    pub reserve: Option<u64>,
    /// The disk of the embedded store.
    pub disk: Arc<dyn Disk>,
    /// Acknowledges writes to the embedded store before they are on the disk: for tests.
    pub unsafe_no_fsync: bool,
}

impl Default for StoreLimits {
    fn default() -> Self {
        Self {
            quota: None,
            history_bytes: DEFAULT_HISTORY_BYTES,
            reserve: None,
            disk: Arc::new(SystemDisk),
            unsafe_no_fsync: false,
        }
    }
}

/// Returns the metrics of a store.
pub(crate) type StoreMetrics = Box<dyn Fn() -> Vec<Sample> + Send + Sync>;

/// An open store. Its metrics do not keep it open.
pub(crate) struct Opened {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) metrics: StoreMetrics,
}

impl Opened {
    fn in_memory(store: MemoryStore, room: &StoreLimits) -> Self {
        let store = store.with_history_bytes(room.history_bytes);
        let measured = store.clone();
        Self { store: Arc::new(store), metrics: Box::new(move || memory_samples(&measured)) }
    }

    fn silent(store: Arc<dyn Store>) -> Self {
        Self { store, metrics: Box::new(Vec::new) }
    }
}

impl StoreConfig {
    /// Parses `memory:`, `sqlite:DIRECTORY`, `postgres://...` or `etcd://...`.
    ///
    /// # Errors
    /// Describes the invalid part, without passwords.
    pub fn parse(url: &str) -> anyhow::Result<Self> {
        match url.split_once(':') {
            Some(("memory", "")) => Ok(Self::Memory),
            Some(("sqlite", "")) => bail!("sqlite: needs a directory: write sqlite:DIRECTORY"),
            Some(("sqlite", directory)) => Ok(Self::Sqlite(directory.into())),
            Some(("postgres" | "postgresql", _)) => Ok(Self::Postgres(Box::new(PostgresConfig::from_url(url)?))),
            Some(("etcd", _)) => Ok(Self::Etcd(Box::new(EtcdConfig::from_url(url)?))),
            _ => bail!("unknown store; known are memory:, sqlite:DIRECTORY, postgres://... and etcd://..."),
        }
    }

    /// Adds the password for PostgreSQL if its URL has none: from this file, or from the environment variables of
    /// PostgreSQL's own programs.
    ///
    /// # Errors
    /// When the file cannot be read, or is set for another store.
    pub fn with_password(self, file: Option<&Path>) -> anyhow::Result<Self> {
        match self {
            Self::Postgres(config) => {
                let sources = PasswordSources { file: file.map(Path::to_owned), ..PasswordSources::of_environment() };
                Ok(Self::Postgres(Box::new(config.with_password_from(&sources)?)))
            }
            Self::Etcd(_) if file.is_some() => {
                bail!(
                    "a file with the password for etcd is named in the URL: etcd://HOST:2379?user=NAME&password-file=FILE"
                )
            }
            _ if file.is_some() => bail!("only PostgreSQL takes a file with a password"),
            other => Ok(other),
        }
    }

    /// Refuses to begin with an empty store if the key directory proves that there was one before, unless the loss is
    /// accepted. Then it returns the least revision of the new store.
    ///
    /// # Errors
    /// Names the missing store, and the possible solutions.
    pub(crate) fn check_there(&self, keys: Option<&Path>, accept_loss: bool) -> anyhow::Result<Revision> {
        let (Self::Sqlite(directory), Some(data_dir)) = (self, keys) else { return Ok(Revision::ZERO) };
        let (store, keys) = (SqliteConfig::file_in(directory), data_dir.join(PKI_DIRECTORY));
        // Without keys there is no proof of an earlier store.
        if !is_same(directory, data_dir) || !keys.exists() || store.metadata().is_ok_and(|found| found.len() > 0) {
            return Ok(Revision::ZERO);
        }
        let elsewhere = RecordedStore::read(data_dir).filter(|noted| *noted != RecordedStore::Here);
        let keys = keys.display();
        if accept_loss {
            tracing::warn!(store = %store.display(), "beginning with an empty store; the one of these keys is missing or empty");
            return Ok(Revision::new(ACCEPTED_LOSS_MARGIN));
        }
        if let Some(elsewhere) = elsewhere {
            bail!(
                "there are the keys of a server in {keys} that kept its objects in {elsewhere}: name that store with --store, or start with \
                 --accept-loss to begin with an empty embedded one"
            );
        }
        bail!(
            "there are the keys of a server in {keys}, and its store {} is gone: restore a backup with `keelson storage restore`, or start \
             with --accept-loss to begin with an empty store",
            store.display()
        );
    }

    /// Creates the store of [`StoreConfig::Memory`], so that the configuration has its handle.
    pub(crate) fn hold_memory(&mut self) {
        if matches!(self, Self::Memory) {
            *self = Self::InMemory(MemoryStore::new());
        }
    }

    /// Returns true if other servers may use the same store at the same time.
    pub fn is_shared(&self) -> bool {
        match self {
            Self::Memory | Self::InMemory(_) | Self::Sqlite(_) => false,
            Self::Postgres(_) | Self::Etcd(_) | Self::Shared(_) => true,
        }
    }

    /// Opens the store for a server, and raises its newest revision to at least `least`. Creates a missing store,
    /// unless it must exist.
    ///
    /// # Errors
    /// When the store cannot be opened, or contains an unfinished copy, or has lost data without `accept`.
    pub(crate) async fn open(
        &self,
        least: Revision,
        existing: bool,
        supervisor: &Supervisor,
        room: &StoreLimits,
        accept_loss: bool,
    ) -> anyhow::Result<Opened> {
        let how = Opening { least, accept_loss, existing, is_target: false };
        let opened = self.open_with(how, supervisor, room).await?;
        let unfinished = copy::is_unfinished(&*opened.store).await.context("looking into the store")?;
        ensure!(
            !unfinished,
            "a copy into this store did not finish: give `keelson storage copy` again, or remove the store to begin with an empty one"
        );
        Ok(opened)
    }

    /// Opens an existing store, complete or an unfinished copy. Creates none.
    ///
    /// # Errors
    /// When there is no store, or it cannot be opened.
    pub(crate) async fn open_existing(&self, supervisor: &Supervisor) -> anyhow::Result<Opened> {
        self.open_with(Opening { existing: true, ..Opening::default() }, supervisor, &StoreLimits::default()).await
    }

    /// Opens the store as the target of a copy, complete or an unfinished copy. Raises its newest revision to at least
    /// `least` if the engine can: etcd's revisions only count. A store that this creates is marked as an unfinished
    /// copy from the start.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub(crate) async fn open_target(&self, least: Revision, supervisor: &Supervisor) -> anyhow::Result<Opened> {
        let how = Opening { least, is_target: true, ..Opening::default() };
        self.open_with(how, supervisor, &StoreLimits::default()).await
    }

    fn open_with<'o>(
        &'o self,
        how: Opening,
        supervisor: &'o Supervisor,
        room: &'o StoreLimits,
    ) -> BoxFuture<'o, anyhow::Result<Opened>> {
        Box::pin(self.open_engine(how, supervisor, room))
    }

    async fn open_engine(&self, how: Opening, supervisor: &Supervisor, room: &StoreLimits) -> anyhow::Result<Opened> {
        let Opening { least, accept_loss, existing, is_target } = how;
        let first = is_target.then(copy::unfinished);
        Ok(match self {
            Self::Memory => Opened::in_memory(MemoryStore::starting_at(least.max(Revision::new(1))), room),
            Self::InMemory(store) => Opened::in_memory(store.clone(), room),
            Self::Sqlite(directory) => {
                let mut settings = SqliteConfig::directory(directory);
                settings.least_revision = least;
                settings.accept_loss = accept_loss;
                settings.existing = existing;
                settings.first = first;
                settings.supervisor = supervisor.clone();
                (settings.quota_bytes, settings.history_bytes) = (room.quota, room.history_bytes);
                (settings.reserve_bytes, settings.disk) = (room.reserve, room.disk.clone());
                settings.unsafe_no_fsync = room.unsafe_no_fsync;
                let opened = keelson_supervision::spawn_blocking(move || SqliteStore::open(settings)).await?;
                let store = opened.context("opening the store")?;
                let gauges = store.gauges();
                Opened { store: Arc::new(store), metrics: Box::new(move || space_samples(gauges.read())) }
            }
            Self::Postgres(config) => {
                let mut config = (**config).clone();
                config.least_revision = least;
                config.existing = existing;
                config.accept_loss = accept_loss;
                config.first = first;
                config.supervisor = supervisor.clone();
                let store = PostgresStore::open(config).await.context("opening the store in PostgreSQL")?;
                let counters = store.counters();
                Opened { store: Arc::new(store), metrics: Box::new(move || postgres_samples(counters.read())) }
            }
            // Opening etcd creates nothing.
            Self::Etcd(config) => {
                let store = EtcdStore::open((**config).clone()).await.context("opening the store in etcd")?;
                let counters = store.counters();
                Opened { store: Arc::new(store), metrics: Box::new(move || etcd_samples(counters.read())) }
            }
            Self::Shared(store) => Opened::silent(store.clone()),
        })
    }
}

/// The options for opening a store.
#[derive(Clone, Copy, Default)]
struct Opening {
    /// The least newest revision after opening.
    least: Revision,
    accept_loss: bool,
    /// True to return an error instead of creating a missing store.
    existing: bool,
    /// True if a copy is written into the store.
    is_target: bool,
}

/// Shows the engine and location of the store, never a password.
impl fmt::Display for StoreConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory | Self::InMemory(_) => f.write_str("memory"),
            Self::Sqlite(directory) => write!(f, "SQLite in {}", directory.display()),
            Self::Postgres(_) => f.write_str("PostgreSQL"),
            Self::Etcd(config) => write!(f, "etcd at {}{}", config.endpoints.join(","), config.prefix),
            Self::Shared(_) => f.write_str("a store of this process"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_named_by_a_url() {
        let shared = |url: &str| StoreConfig::parse(url).unwrap().is_shared();
        assert!(!shared("memory:") && !shared("sqlite:/var/lib/keelson"));
        assert!(shared("postgres://keelson@localhost/keelson") && shared("etcd://localhost:2379"));
    }

    #[test]
    fn invalid_store_urls_are_refused_without_their_password() {
        for bad in
            ["", "memory", "memory:x", "sqlite:", "mysql://a:secret@b", "etcd://a:secret@", "postgres://a:secret@[b"]
        {
            let refused = StoreConfig::parse(bad).err().map(|error| format!("{error:#}"));
            assert!(refused.is_some_and(|text| !text.contains("secret")), "{bad}");
        }
    }
}
