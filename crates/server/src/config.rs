//! What can be set about a server.

use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use keelson_access::pki::PkiOptions;
use keelson_cache::DEFAULT_CHECK_INTERVAL;
use keelson_access::token::DEFAULT_ISSUER;
use keelson_meta::random::SystemRandom;
use keelson_meta::{Clock, Random, SystemClock};
use keelson_registry::RegistryConfig;
use keelson_resources::{Catalogue, UnknownResource};
use keelson_storage::Store;

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
    /// How often the cache is compared with the store, and repaired where they differ; `None` is never.
    pub cache_check_interval: Option<Duration>,
    /// The name of this server among others, in its log and in the metric `keelson_server_info`.
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
#[derive(Clone)]
    /// Who the tokens of service accounts say signed them: a URL, which is also their audience.
    pub service_account_issuer: String,
pub enum StoreConfig {
    /// In memory only: everything is gone when the server stops.
    Memory,
    /// In SQLite, in this directory.
    Sqlite(PathBuf),
    /// In a store that was opened elsewhere and that other servers in this process may use too.
    Shared(Arc<dyn Store>),
}

impl Default for Config {
    fn default() -> Self {
        Self {
            bind: SocketAddr::from(([127, 0, 0, 1], 0)),
            store: StoreConfig::Memory,
            data_dir: None,
            history: Duration::from_mins(5),
            history_bytes: 256 * 1024 * 1024,
            cache_check_interval: Some(DEFAULT_CHECK_INTERVAL),
            server_id: "keelson".to_owned(),
            pki: PkiOptions::default(),
            registry: RegistryConfig::default(),
            shutdown_grace: Duration::from_secs(30),
            clock: Arc::new(SystemClock),
            random: Arc::new(SystemRandom),
        }
    }
}
            service_account_issuer: DEFAULT_ISSUER.to_owned(),

impl Config {
    /// A name for a server that was given none: the same at each start, and different for servers on one host with
    /// different data directories.
    pub fn derived_server_id(data_dir: &Path) -> String {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let host = match host.trim() {
            "" => "localhost",
            name => name,
        };
        format!("{host}-{:08x}", fnv1a(data_dir.as_os_str().as_bytes()))
    }

    /// Has lists of a resource (`secrets`, `roles.rbac.authorization.k8s.io`) never chunked. Resources that show the same
    /// objects under other names are not chunked either: their tokens would tell the same.
    ///
    /// # Errors
    /// When there is no such resource.
    pub fn never_chunk(&mut self, name: &str) -> Result<(), UnknownResource> {
        let catalogue = Catalogue::builtin();
        let resource = catalogue.named(name)?;
        let same = catalogue.collection_of(resource).map_or(&[][..], |collection| &collection.resources);
        for shown in same.iter().chain([&resource]) {
            self.registry.unchunked.insert(shown.group_resource().to_string());
        }
        Ok(())
    }
}

/// The hash FNV-1a of 32 bits, which is the same in every release: a server's name must not change with an update.
fn fnv1a(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values are from the authors' test vectors (draft-eastlake-fnv, appendix C).
    #[test]
    fn derived_names_stay_the_same() {
        for (text, hash) in [("", 0x811c_9dc5), ("a", 0xe40c_292c), ("foobar", 0xbf9c_f968)] {
            assert_eq!(fnv1a(text.as_bytes()), hash, "{text}");
        }
        let name = Config::derived_server_id(Path::new("/foobar"));
        assert_eq!(name, Config::derived_server_id(Path::new("/foobar")));
        assert_ne!(name, Config::derived_server_id(Path::new("/foobaz")));
    }

    fn check(name: &str, expect: &[&str]) {
        let mut config = Config::default();
        config.never_chunk(name).unwrap();
        let mut unchunked: Vec<_> = config.registry.unchunked.into_iter().collect();
        unchunked.sort();
        assert_eq!(unchunked, expect, "{name}");
    }

    #[test]
    fn a_resource_is_unchunked_under_all_its_names() {
        check("secrets", &["secrets"]);
        check("roles.rbac.authorization.k8s.io", &["roles.rbac.authorization.k8s.io"]);
        check("events", &["events", "events.events.k8s.io"]);
        check("events.events.k8s.io", &["events", "events.events.k8s.io"]);
    }

    #[test]
    fn what_is_no_resource_is_refused() {
        let mut config = Config::default();
        for name in ["secretz", "Secret", "secrets.v1", " secrets", ""] {
            assert!(config.never_chunk(name).is_err(), "{name}");
        }
        assert!(config.registry.unchunked.is_empty());
    }
}
