//! The settings of a server, as a value.
//!
//! The command line fills it from flags and variables, and tests change what they need. Clock and randomness are settings too, so
//! that a test can drive them.

use std::net::{IpAddr, SocketAddr};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use data_encoding::BASE32_NOPAD;
use keelson_access::pki::{Pki, PkiOptions};
use keelson_access::token::DEFAULT_ISSUER;
use keelson_access_config::{AuthorizationSource, AuthorizerEntry, AuthorizerKind};
use keelson_admission::{AdmissionConfiguration, Selection};
use keelson_cache::{DEFAULT_CHECK_INTERVAL, DEFAULT_VIEW_BYTES};
use keelson_controllers::{FlowObjects, IdentityConfig, QUARANTINE, Switches};
use keelson_http::filters::FlowLimits;
use keelson_http::listener::Limits;
use keelson_meta::random::SystemRandom;
use keelson_meta::{Clock, Random, SystemClock};
use keelson_outbound::{Outbound, Proxy, ServiceRoutes};
use keelson_registry::RegistryConfig;
use keelson_resources::{Catalogue, UnknownResource};
use keelson_storage::bounded;
use sha2::{Digest as _, Sha256};

use crate::audit::AuditConfig;
use crate::encryption::EncryptionConfig;
use crate::issuers::AuthenticationSources;
use crate::node_access::NodeOptions;
use crate::store::{StoreConfig, StoreRoom};

/// The number of hash bytes in derived server names.
const SERVER_ID_BYTES: usize = 16;

/// Settings of a server. `Config::default()` is a server on a free port of the loopback address that keeps nothing.
#[derive(Clone)]
pub struct Config {
    /// The address to listen on. Port 0 is any free port.
    pub bind: SocketAddr,
    /// The store of objects.
    pub store: StoreConfig,
    /// The directory of certificates, keys and the kubeconfig; `None` makes temporary ones.
    pub data_dir: Option<PathBuf>,
    /// The history window: the time for which lists continue and watches resume. Older history is compacted.
    pub history: Duration,
    /// True to continue without objects that the store is known to have lost: from the damaged place of its log on, or all of it.
    pub accept_loss: bool,
    /// The room that a store of this server's own may take.
    pub store_room: StoreRoom,
    /// The largest write in bytes, an object with its keys: the same on every store, so that each can take another's place.
    pub max_object_bytes: usize,
    /// The largest size of past objects in the cache, in bytes; older ones are read from the store.
    pub history_bytes: u64,
    /// The largest size of all views (orders, groups and indexes of queries), in bytes. While one is built they may take twice as
    /// much.
    pub view_bytes: u64,
    /// The interval of comparisons of the cache with the store, which repair differences; `None` for never.
    pub cache_check_interval: Option<Duration>,
    /// The name of this server among others, in its log, its lease and the metric `keelson_server_info`: a DNS subdomain.
    pub server_id: String,
    /// The time for which this server's lease is valid without a renewal, in whole seconds.
    pub identity_duration: Duration,
    /// The interval of renewals.
    pub identity_interval: Duration,
    /// True to start even if running servers on the store sign with keys that it does not accept, or the other way round.
    pub allow_other_keys: bool,
    /// Certificates: extra names for the serving certificate, or files of one's own.
    pub pki: PkiOptions,
    /// The keys and certificates of an earlier server, which one without a data directory takes over instead of new ones.
    pub made_pki: Option<Pki>,
    /// The time that a node may be missing before its pods are ended.
    pub node_quarantine: Duration,
    /// The issuer of service account tokens: a URL, which is also their audience.
    pub service_account_issuer: String,
    /// A file of tokens with their users: `token,user,uid,"group1,group2"`.
    pub token_file: Option<PathBuf>,
    /// A file of keys that seal continue tokens, one a line: the first one seals, all open.
    pub token_key_file: Option<PathBuf>,
    /// True if bootstrap tokens are accepted: secrets of their type in `kube-system`.
    pub bootstrap_tokens: bool,
    /// True if requests without credentials are accepted as those of `system:anonymous`, which is also the default. The
    /// authentication configuration may set it too.
    pub anonymous: Option<bool>,
    /// True if the console is served.
    pub console: bool,
    /// Whose tokens are believed besides.
    pub authentication: AuthenticationSources,
    /// The authorizers, in this order. Members of `system:masters` may do everything without them.
    pub authorization: AuthorizationSource,
    /// Which plugins of admission are asked of each write.
    pub admission: Selection,
    /// The settings of these plugins.
    pub admission_configuration: AdmissionConfiguration,
    /// The audit policy and its backends.
    pub audit: AuditConfig,
    /// The encryption of objects in the store.
    pub encryption: EncryptionConfig,
    /// Settings of the verbs.
    pub registry: RegistryConfig,
    /// The address at which others reach the server, where it is not the one that it listens on.
    pub advertise_address: Option<IpAddr>,
    /// The certificates that sign those of the other servers on the store (PEM): with them servers answer for each other.
    pub peer_ca_file: Option<PathBuf>,
    /// The address at which other servers reach this one, where clients reach it at another.
    pub peer_advertise_ip: Option<IpAddr>,
    /// The port at which they do.
    pub peer_advertise_port: Option<u16>,
    /// The largest number of open connections, a part of the process's limit.
    pub connections: usize,
    /// The largest number of outgoing connections to webhooks and aggregated servers, a part of the same.
    pub outbound_connections: usize,
    /// Connections to kubelets, pods and services.
    pub nodes: NodeOptions,
    /// The time that a client may read nothing of a response before it is reset.
    pub unread: Duration,
    /// The number of bytes of replaced objects that the snapshots of lists in flight may keep.
    pub pinned_bytes: u64,
    /// True if another server of this process has created the default objects in this store, so that this one need not check them.
    pub bootstrapped: bool,
    /// The limits of concurrent requests.
    pub flow: FlowLimits,
    /// The time between two looks at the default flow schemas and priority levels.
    pub flow_object_interval: Duration,
    /// Services that are reached elsewhere than at their endpoints.
    pub service_routes: ServiceRoutes,
    /// The proxy by which others than services are called; `None` for no proxy, whatever the environment says.
    pub proxy: Option<Proxy>,
    /// Which controllers run.
    pub controllers: Switches,
    /// The time that requests in flight may take to end when the server stops.
    pub shutdown_grace: Duration,
    /// The time that a connection without a request stays open then, for its client to read the announcement.
    pub parting: Duration,
    /// Wall-clock time.
    pub clock: Arc<dyn Clock>,
    /// Randomness for uids, names and keys.
    pub random: Arc<dyn Random>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            bind: SocketAddr::from(([127, 0, 0, 1], 0)),
            store: StoreConfig::Memory,
            data_dir: None,
            history: Duration::from_mins(5),
            accept_loss: false,
            store_room: StoreRoom::default(),
            max_object_bytes: bounded::DEFAULT_BOUND,
            history_bytes: 256 * 1024 * 1024,
            view_bytes: DEFAULT_VIEW_BYTES,
            cache_check_interval: Some(DEFAULT_CHECK_INTERVAL),
            server_id: "keelson".to_owned(),
            identity_duration: IdentityConfig::DURATION,
            identity_interval: IdentityConfig::INTERVAL,
            allow_other_keys: false,
            pki: PkiOptions::default(),
            made_pki: None,
            node_quarantine: QUARANTINE,
            service_account_issuer: DEFAULT_ISSUER.to_owned(),
            token_file: None,
            token_key_file: None,
            bootstrap_tokens: false,
            anonymous: None,
            console: true,
            authentication: AuthenticationSources::default(),
            authorization: AuthorizationSource::Flags(
                [AuthorizerKind::Node, AuthorizerKind::Rbac].map(AuthorizerEntry::new).to_vec(),
            ),
            admission: Selection::default(),
            admission_configuration: AdmissionConfiguration::default(),
            audit: AuditConfig::default(),
            encryption: EncryptionConfig::default(),
            registry: RegistryConfig::default(),
            advertise_address: None,
            peer_ca_file: None,
            peer_advertise_ip: None,
            peer_advertise_port: None,
            connections: Limits::default().connections,
            outbound_connections: Outbound::CONNECTIONS,
            nodes: NodeOptions::default(),
            unread: Limits::default().unread,
            pinned_bytes: Limits::default().pinned_bytes,
            bootstrapped: false,
            flow: FlowLimits::default(),
            flow_object_interval: FlowObjects::INTERVAL,
            service_routes: ServiceRoutes::default(),
            proxy: None,
            controllers: Switches::default(),
            shutdown_grace: Duration::from_secs(30),
            parting: Limits::default().parting,
            clock: Arc::new(SystemClock),
            random: Arc::new(SystemRandom),
        }
    }
}

impl Config {
    /// A name for a server that was given none: the same at each start, and different for servers on one host with
    /// different data directories. It has the form of the names that the reference server derives.
    pub fn derived_server_id(data_dir: &Path) -> String {
        let mut hash = Sha256::new();
        for part in [Self::host_name().as_bytes(), b"keelson", data_dir.as_os_str().as_bytes()] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let digest = hash.finalize();
        format!("apiserver-{}", BASE32_NOPAD.encode(&digest[..SERVER_ID_BYTES]).to_ascii_lowercase())
    }

    /// The name of this host, as the system has it.
    pub fn host_name() -> String {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        match host.trim() {
            "" => "localhost".to_owned(),
            name => name.to_owned(),
        }
    }

    /// Has lists of a resource (`secrets`, `roles.rbac.authorization.k8s.io`) never chunked. Resources that show the same
    /// objects under other names are not chunked either: their tokens would tell the same. The catalogue is that of the
    /// resources which settings may name.
    ///
    /// # Errors
    /// When there is no such resource.
    pub fn never_chunk(&mut self, catalogue: &Catalogue, name: &str) -> Result<(), UnknownResource> {
        let resource = catalogue.named(name)?;
        let same = catalogue.collection_of(resource).map_or(&[][..], |collection| &collection.resources);
        for shown in same.iter().chain([resource]) {
            self.registry.unchunked.insert(shown.group_resource().to_string());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use keelson_meta::names::dns_subdomain_faults;

    use super::*;

    #[test]
    fn derived_names_stay_the_same_and_can_name_a_lease() {
        let name = Config::derived_server_id(Path::new("/foobar"));
        assert_eq!(name, Config::derived_server_id(Path::new("/foobar")));
        assert_ne!(name, Config::derived_server_id(Path::new("/foobaz")));
        assert!(dns_subdomain_faults(&name).is_empty() && name.len() == "apiserver-".len() + 26, "{name}");
    }

    fn check(name: &str, expect: &[&str]) {
        let mut config = Config::default();
        config.never_chunk(keelson_builtin::catalogue(), name).unwrap();
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
            assert!(config.never_chunk(keelson_builtin::catalogue(), name).is_err(), "{name}");
        }
        assert!(config.registry.unchunked.is_empty());
    }
}
