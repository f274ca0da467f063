//! The engines in which a server keeps its objects: memory, and those that features of this crate bring along.
//!
//! A program that asks for none has none compiled in.

#[cfg(feature = "sqlite")]
use std::path::PathBuf;
use std::sync::Arc;

use keelson_storage::Store;
use keelson_storage::memory::MemoryStore;
use keelson_supervision::Supervisor;

use crate::builder::StartError;

/// Where the objects of a server are kept.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Storage {
    /// In memory: everything is gone when the server stops.
    #[default]
    Memory,
    /// In SQLite, in this directory, which no other server may use at the same time.
    #[cfg(feature = "sqlite")]
    Sqlite(PathBuf),
    /// In PostgreSQL (`postgres://...`): a database that servers of the same resources may share, and nobody else.
    #[cfg(feature = "postgres")]
    Postgres(String),
    /// In etcd (`etcd://...`), below a prefix that servers of the same resources may share, and nobody else.
    #[cfg(feature = "etcd")]
    Etcd(String),
}

impl Storage {
    /// Reads `memory:`, `sqlite:DIRECTORY`, `postgres://...` or `etcd://...`, as far as features bring the engines along.
    ///
    /// # Errors
    /// [`StartError::Storage`] for any other text, without repeating it: it may hold a password.
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

    /// Whether other servers can use it at the same time.
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

    /// Opens it.
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
    fn what_names_no_store_is_refused_without_repeating_a_password() {
        for bad in ["", "memory", "memory:x", "sqlite:", "mysql://a:secret@b"] {
            let refused = Storage::parse(bad).unwrap_err().to_string();
            assert!(!refused.contains("secret"), "{refused}");
        }
        assert!(matches!(Storage::parse("memory:"), Ok(Storage::Memory)));
    }
}
