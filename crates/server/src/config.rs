//! What can be set about a server.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use keelson_access::pki::PkiOptions;
use keelson_meta::random::SystemRandom;
use keelson_meta::{Clock, Random, SystemClock};
use keelson_registry::RegistryConfig;

/// Settings of a server. `Config::default()` is a server on a free port of the loopback address that keeps nothing.
#[derive(Clone)]
pub struct Config {
    /// Where to listen. Port 0 is any free port.
    pub bind: SocketAddr,
    /// Where objects are kept.
    pub store: StoreConfig,
    /// Where certificates, keys and the kubeconfig are kept; `None` makes new ones that die with the server.
    pub data_dir: Option<PathBuf>,
    /// How long the past can be read: lists that continue, watches that resume. Older history is compacted.
    pub history: Duration,
    /// How many bytes of past objects the cache keeps at the most; what it forgets is read from the store.
    pub history_bytes: u64,
    /// The name of this server among others.
    pub server_id: String,
    /// Certificates: extra names for the serving certificate, or files of one's own.
    pub pki: PkiOptions,
    /// Settings of the verbs.
    pub registry: RegistryConfig,
    /// How long requests in flight may take to end when the server stops.
    pub shutdown_grace: Duration,
    /// Wall-clock time.
    pub clock: Arc<dyn Clock>,
    /// Randomness for uids, names and keys.
    pub random: Arc<dyn Random>,
}

/// Where objects are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreConfig {
    /// In memory only: everything is gone when the server stops.
    Memory,
    /// In SQLite, in this directory.
    Sqlite(PathBuf),
}

impl Default for Config {
    fn default() -> Self {
        Self {
            bind: SocketAddr::from(([127, 0, 0, 1], 0)),
            store: StoreConfig::Memory,
            data_dir: None,
            history: Duration::from_mins(5),
            history_bytes: 256 * 1024 * 1024,
            server_id: "keelson".to_owned(),
            pki: PkiOptions::default(),
            registry: RegistryConfig::default(),
            shutdown_grace: Duration::from_secs(30),
            clock: Arc::new(SystemClock),
            random: Arc::new(SystemRandom),
        }
    }
}

impl Config {
    /// A name for a server that was given none: the same at each start, and different for servers on one host with
    /// different data directories.
    pub fn derived_server_id(data_dir: &Path) -> String {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let host = match host.trim() {
            "" => "localhost",
            name => name,
        };
        let mut hasher = DefaultHasher::new();
        data_dir.hash(&mut hasher);
        format!("{host}-{:08x}", hasher.finish() as u32)
    }
}
