//! The engines on which properties are tested, and their contents, which can be opened again.
//!
//! An engine that this machine does not have is skipped with a message.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use keelson_storage::Store;
use keelson_storage::memory::MemoryStore;
use keelson_storage_etcd::{EtcdConfig, EtcdStore};
use keelson_storage_sql::{PostgresConfig, PostgresStore, SqliteConfig, SqliteStore};
use keelson_teststores::{EtcdServer, PostgresServer};
use tempfile::TempDir;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Engine {
    Memory,
    Sqlite,
    /// Each store is a database of its own.
    Postgres(&'static PostgresServer),
    /// Each store has a prefix of its own; revisions and compactions are of the whole etcd, so a test has one to
    /// itself.
    Etcd(&'static EtcdServer),
}

impl Engine {
    /// `None` if this machine has no PostgreSQL.
    pub(crate) fn postgres() -> Option<Self> {
        PostgresServer::shared().map(Self::Postgres)
    }

    /// The etcd of one test. `None` if this machine has none.
    pub(crate) fn etcd(own: &'static OnceLock<Option<EtcdServer>>) -> Option<Self> {
        own.get_or_init(EtcdServer::start).as_ref().map(Self::Etcd)
    }
}

/// The contents of a store.
pub(crate) enum Home {
    Process(MemoryStore),
    Directory(TempDir),
    Postgres(String),
    Etcd(String),
}

impl Home {
    /// An empty one.
    pub(crate) fn new(engine: Engine) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("properties{}", NEXT.fetch_add(1, Ordering::Relaxed));
        match engine {
            Engine::Memory => Self::Process(MemoryStore::new()),
            Engine::Sqlite => Self::Directory(TempDir::new().unwrap()),
            Engine::Postgres(server) => Self::Postgres(server.create_database(&name)),
            Engine::Etcd(server) => Self::Etcd(format!("etcd://{}/{name}", server.endpoint())),
        }
    }

    pub(crate) async fn open(&self) -> Arc<dyn Store> {
        match self {
            Self::Process(store) => Arc::new(store.clone()),
            Self::Directory(directory) => {
                Arc::new(SqliteStore::open(SqliteConfig::directory(directory.path())).unwrap())
            }
            Self::Postgres(url) => Arc::new(PostgresStore::open(PostgresConfig::from_url(url).unwrap()).await.unwrap()),
            Self::Etcd(url) => Arc::new(EtcdStore::open(EtcdConfig::from_url(url).unwrap()).await.unwrap()),
        }
    }
}
