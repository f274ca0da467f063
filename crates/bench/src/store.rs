//! The stores that servers are measured on: their own, one that a URL names, or a private PostgreSQL or etcd that goes with the
//! measurement.

use anyhow::{Context as _, Result};
use keelson_teststores::{EtcdServer, PostgresServer};

/// Settings of a PostgreSQL that is there to work; those of the private one for tests keep it small.
const POSTGRES: [(&str, &str); 3] =
    [("shared_buffers", "1GB"), ("max_wal_size", "4GB"), ("autovacuum_naptime", "1min")];
/// Flags of such an etcd, as `docs/how-to/stores/etcd.md` has them.
const ETCD: [&str; 2] = ["--quota-backend-bytes=8589934592", "--max-request-bytes=4194304"];

/// Where the servers keep objects.
pub(crate) enum BenchStore {
    /// Each in its data directory.
    Embedded,
    /// All in this one, which has to be empty.
    Given(String),
    /// Each in a database of this PostgreSQL.
    Postgres(Box<PostgresServer>),
    /// Each below a prefix in this etcd.
    Etcd(Box<EtcdServer>),
}

impl BenchStore {
    /// Reads `--store`, and starts what it asks for.
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

    /// What a server is given as `--store` to have a store by this name for itself, where it can.
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

    /// Whether rows can be inserted past the servers.
    pub(crate) fn is_postgres(&self) -> bool {
        match self {
            Self::Postgres(_) => true,
            Self::Given(url) => url.starts_with("postgres"),
            Self::Embedded | Self::Etcd(_) => false,
        }
    }

    /// For the head of the table.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Embedded => "the embedded store",
            Self::Given(_) => "a store of the user's own",
            Self::Postgres(_) => "a private PostgreSQL on the same machine",
            Self::Etcd(_) => "a private etcd of one member on the same machine",
        }
    }
}
