//! The stores that several servers can share, and macros that run a test on each of them.
//!
//! The embedded store is not here, since it belongs to one server.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use keelson_storage::Store;
use keelson_storage::memory::MemoryStore;
use keelson_storage_etcd::{EtcdConfig, EtcdStore};
use keelson_storage_sql::{PostgresConfig, PostgresStore};
use keelson_testkit::{EtcdServer, PostgresServer};
use tokio::sync::Mutex;

/// A store, and the data for a server to connect to it.
pub(crate) enum Engine {
    /// In this process's memory.
    Memory(MemoryStore),
    /// A database of the PostgreSQL that all tests share.
    Postgres(String),
    /// A separate PostgreSQL for the test, which can be killed.
    MortalPostgres(String, Mutex<PostgresServer>),
    /// A separate etcd for the test, since revisions and compactions concern a whole etcd.
    Etcd(String, Mutex<EtcdServer>),
    /// An etcd of several members, which the test owns.
    EtcdMembers(String),
}

impl Engine {
    pub(crate) fn memory() -> Self {
        Self::Memory(MemoryStore::new())
    }

    pub(crate) fn postgres() -> Option<Self> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("servers{}", NEXT.fetch_add(1, Ordering::Relaxed));
        Some(Self::Postgres(PostgresServer::shared()?.create_database(&name)))
    }

    pub(crate) fn mortal_postgres() -> Option<Self> {
        let server = PostgresServer::start()?;
        Some(Self::MortalPostgres(server.url(), Mutex::new(server)))
    }

    pub(crate) fn etcd() -> Option<Self> {
        let server = EtcdServer::start()?;
        Some(Self::Etcd(format!("etcd://{}", server.endpoint()), Mutex::new(server)))
    }

    pub(crate) async fn open(&self) -> Arc<dyn Store> {
        match self {
            Self::Memory(store) => Arc::new(store.clone()),
            Self::Postgres(url) | Self::MortalPostgres(url, _) => {
                Arc::new(PostgresStore::open(PostgresConfig::from_url(url).unwrap()).await.unwrap())
            }
            Self::Etcd(url, _) | Self::EtcdMembers(url) => {
                Arc::new(EtcdStore::open(EtcdConfig::from_url(url).unwrap()).await.unwrap())
            }
        }
    }

    /// Opens the store as [`Engine::open`] does, through a proxy at this port.
    pub(crate) async fn open_by(&self, way: u16) -> Arc<dyn Store> {
        let url = self.url_by(way).await;
        match self {
            Self::Memory(_) => self.open().await,
            Self::Postgres(_) | Self::MortalPostgres(..) => {
                Arc::new(PostgresStore::open(PostgresConfig::from_url(&url).unwrap()).await.unwrap())
            }
            Self::Etcd(..) | Self::EtcdMembers(_) => {
                Arc::new(EtcdStore::open(EtcdConfig::from_url(&url).unwrap()).await.unwrap())
            }
        }
    }

    /// The URL for a server in another process, through a proxy at this port.
    pub(crate) async fn url_by(&self, way: u16) -> String {
        self.url().replace(&format!(":{}", self.port().await), &format!(":{way}"))
    }

    /// The port of a store that is a separate process of the test; 0 for others.
    pub(crate) async fn port(&self) -> u16 {
        match self {
            Self::Memory(_) | Self::Postgres(_) | Self::EtcdMembers(_) => 0,
            Self::MortalPostgres(_, server) => server.lock().await.port(),
            Self::Etcd(_, server) => server.lock().await.port(),
        }
    }

    /// The URL for a server in another process.
    pub(crate) fn url(&self) -> &str {
        match self {
            Self::Memory(_) => "memory:",
            Self::Postgres(url) | Self::MortalPostgres(url, _) | Self::Etcd(url, _) | Self::EtcdMembers(url) => url,
        }
    }

    /// Kills the store (kill -9) if it is a separate process of the test. Returns true in that case.
    pub(crate) async fn kill(&self) -> bool {
        match self {
            Self::Memory(_) | Self::Postgres(_) | Self::EtcdMembers(_) => return false,
            Self::MortalPostgres(_, server) => server.lock().await.kill(),
            Self::Etcd(_, server) => server.lock().await.kill(),
        }
        true
    }

    /// Starts a killed store.
    pub(crate) async fn start_again(&self) {
        match self {
            Self::Memory(_) | Self::Postgres(_) | Self::EtcdMembers(_) => {}
            Self::MortalPostgres(_, server) => server.lock().await.start_again(),
            Self::Etcd(_, server) => server.lock().await.start_again(),
        }
    }
}

/// Makes a test of each function for each engine. If this machine lacks an engine, the test ends at once, and the test
/// kit reports it.
macro_rules! on_every_engine {
    ($($test:ident),* $(,)?) => { $crate::engines::on_every_engine!(with postgres: $($test),*); };
    (mortal: $($test:ident),* $(,)?) => { $crate::engines::on_every_engine!(with mortal_postgres: $($test),*); };
    (with $postgres:ident: $($test:ident),*) => {
        mod memory {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    super::$test($crate::engines::Engine::memory()).await;
                }
            )*
        }
        $crate::engines::on_engine!(postgres, $postgres: $($test),*);
        $crate::engines::on_engine!(etcd, etcd: $($test),*);
    };
}

/// Makes the tests of one engine, which may be missing.
macro_rules! on_engine {
    ($module:ident, $make:ident: $($test:ident),*) => {
        mod $module {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    let Some(engine) = $crate::engines::Engine::$make() else { return };
                    super::$test(engine).await;
                }
            )*
        }
    };
}

pub(crate) use {on_engine, on_every_engine};
