//! The storage engines of a server: memory, and those enabled by this crate's features.
//!
//! Without features no other engine is compiled in.

#[cfg(feature = "sqlite")]
use std::path::PathBuf;
use std::sync::Arc;

use keelson_storage::Store;
use keelson_storage::memory::MemoryStore;
use keelson_supervision::Supervisor;

use crate::builder::StartError;

/// The storage of a server's objects.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Storage {
    /// In memory: all objects are gone when the server stops.
    #[default]
    Memory,
    /// In SQLite, in this directory, which only one server may use at a time.
    #[cfg(feature = "sqlite")]
    Sqlite(PathBuf),
    /// In PostgreSQL (`postgres://...`): a database for servers of the same resources only.
    #[cfg(feature = "postgres")]
    Postgres(String),
    /// In etcd (`etcd://...`): a prefix for servers of the same resources only.
    #[cfg(feature = "etcd")]
    Etcd(String),
}

impl Storage {
    /// Parses `memory:`, `sqlite:DIRECTORY`, `postgres://...` or `etcd://...`, as far as features enable the engines.
    ///
    /// # Errors
    /// [`StartError::Storage`] for any other text, which is not repeated, since it may hold a password.
    pub fn parse(url: &str) -> Result<Self, StartError> {
        match url.split_once(':') {
            Some(("memory", "")) => Ok(Self::Memory),
            #[cfg(feature = "sqlite")]
            Some(("sqlite", directory)) if !directory.is_empty() => Ok(Self::Sqlite(directory.into())),
            #[cfg(feature = "postgres")]
            Some(("postgres" | "postgresql", _)) => Ok(Self::Postgres(url.to_owned())),
            #[cfg(feature = "etcd")]
            Some(("etcd", _)) => Ok(Self::Etcd(url.to_owned())),
            _ => Err(StartError::Storage("the URL names no kind of store that was built in".to_owned())),
        }
    }

    /// Returns true if several servers can use it at the same time.
    pub(crate) fn is_shared(&self) -> bool {
        match self {
            Self::Memory => false,
            #[cfg(feature = "sqlite")]
            Self::Sqlite(_) => false,
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => true,
            #[cfg(feature = "etcd")]
            Self::Etcd(_) => true,
        }
    }

    /// Opens the store.
    pub(crate) async fn open(&self, supervisor: &Supervisor) -> Result<Arc<dyn Store>, StartError> {
        let _ = supervisor;
        Ok(match self {
            Self::Memory => Arc::new(MemoryStore::new()),
            #[cfg(feature = "sqlite")]
            Self::Sqlite(directory) => {
                let mut settings = keelson_storage_sql::SqliteConfig::directory(directory);
                settings.supervisor = supervisor.clone();
                let opening = tokio::task::spawn_blocking(move || keelson_storage_sql::SqliteStore::open(settings));
                Arc::new(keelson_supervision::outcome(opening).await.map_err(failed)?)
            }
            #[cfg(feature = "postgres")]
            Self::Postgres(url) => {
                let mut settings = keelson_storage_sql::PostgresConfig::from_url(url).map_err(failed)?;
                settings.supervisor = supervisor.clone();
                Arc::new(keelson_storage_sql::PostgresStore::open(settings).await.map_err(failed)?)
            }
            #[cfg(feature = "etcd")]
            Self::Etcd(url) => {
                let settings = keelson_storage_etcd::EtcdConfig::from_url(url).map_err(failed)?;
                Arc::new(keelson_storage_etcd::EtcdStore::open(settings).await.map_err(failed)?)
            }
        })
    }
}

#[cfg(any(feature = "sqlite", feature = "postgres", feature = "etcd"))]
fn failed(error: impl std::fmt::Display) -> StartError {
    StartError::Storage(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_store_urls_are_refused_without_their_password() {
        for bad in ["", "memory", "memory:x", "sqlite:", "mysql://a:secret@b"] {
            let refused = Storage::parse(bad).unwrap_err().to_string();
            assert!(!refused.contains("secret"), "{refused}");
        }
        assert!(matches!(Storage::parse("memory:"), Ok(Storage::Memory)));
    }
}
