//! The stores of measured servers: embedded, given by a URL, or a private PostgreSQL or etcd.
//!
//! A private one is started for the measurement and ends with it.

use anyhow::{Context as _, Result};
use keelson_teststores::{EtcdServer, PostgresServer};

/// Settings of a production PostgreSQL. The private one for tests is kept small.
const POSTGRES: [(&str, &str); 3] =
    [("shared_buffers", "1GB"), ("max_wal_size", "4GB"), ("autovacuum_naptime", "1min")];
/// Flags of a production etcd, as in `docs/how-to/stores/etcd.md`.
const ETCD: [&str; 2] = ["--quota-backend-bytes=8589934592", "--max-request-bytes=4194304"];

/// The store of the servers' objects.
pub(crate) enum BenchStore {
    /// Each server in its data directory.
    Embedded,
    /// All servers use this store, which must be empty.
    Given(String),
    /// Each server has a database of this PostgreSQL.
    Postgres(Box<PostgresServer>),
    /// Each server has a key prefix in this etcd.
    Etcd(Box<EtcdServer>),
}

impl BenchStore {
    /// Parses `--store` and starts a private store if requested.
    pub(crate) fn open(store: Option<&str>) -> Result<Self> {
        Ok(match store {
            None => Self::Embedded,
            Some("postgres") => {
                let settings = POSTGRES.iter();
                let builder =
                    settings.fold(PostgresServer::builder(), |builder, (name, value)| builder.setting(name, value));
                Self::Postgres(Box::new(builder.start().context("there is no PostgreSQL here to start")?))
            }
            Some("etcd") => {
                let builder = ETCD.iter().fold(EtcdServer::builder(), |builder, flag| builder.arg(*flag));
                Self::Etcd(Box::new(builder.start().context("there is no etcd here to start")?))
            }
            Some(url) => Self::Given(url.to_owned()),
        })
    }

    /// The `--store` URL of a server's own store with this name, if supported.
    pub(crate) fn url(&self, name: &str) -> Option<String> {
        match self {
            Self::Embedded => None,
            Self::Given(url) => Some(url.clone()),
            Self::Postgres(server) => Some(server.create_database(name)),
            Self::Etcd(server) => Some(format!("etcd://{}/{name}", server.endpoint())),
        }
    }

    pub(crate) const fn is_embedded(&self) -> bool {
        matches!(self, Self::Embedded)
    }

    /// Returns true if rows can be inserted directly.
    pub(crate) fn is_postgres(&self) -> bool {
        match self {
            Self::Postgres(_) => true,
            Self::Given(url) => url.starts_with("postgres"),
            Self::Embedded | Self::Etcd(_) => false,
        }
    }

    /// The name in the head of the table.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Embedded => "the embedded store",
            Self::Given(_) => "a store of the user's own",
            Self::Postgres(_) => "a private PostgreSQL on the same machine",
            Self::Etcd(_) => "a private etcd of one member on the same machine",
        }
    }
}
