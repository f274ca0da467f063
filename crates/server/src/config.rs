//! The settings of a server, as a value.
//!
//! The command line sets it from flags and environment variables, and tests change single settings. Clock and
//! randomness are settings too, so that tests can control them.

use std::net::{IpAddr, SocketAddr};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use data_encoding::BASE32_NOPAD;
use http::HeaderValue;
use keelson_access::pki::{Pki, PkiOptions};
use keelson_access::token::DEFAULT_ISSUER;
use keelson_access_config::{AuthorizationSource, AuthorizerEntry, AuthorizerKind};
use keelson_admission::{AdmissionConfiguration, Selection};
use keelson_cache::{DEFAULT_CHECK_INTERVAL, DEFAULT_VIEW_BYTES, Packing};
use keelson_controllers::{FlowObjects, IdentityConfig, LeadershipTimes, QUARANTINE, Switches};
use keelson_http::diagnostics::Diagnostics;
use keelson_http::filters::{AllowedOrigins, FlowLimits};
use keelson_http::listener::{Accept, Limits};
use keelson_http::shutdown::ShutdownTimes;
use keelson_meta::random::SystemRandom;
use keelson_meta::{Clock, Random, SystemClock};
use keelson_outbound::{Egress, Outbound, Proxy, ServiceRoutes};
use keelson_registry::{RegistryConfig, TokenTimes};
use keelson_resources::{Catalogue, UnknownResource};
use keelson_storage::bounded;
use sha2::{Digest as _, Sha256};

use crate::audit::AuditConfig;
use crate::encryption::EncryptionConfig;
use crate::fork::Inherited;
use crate::issuers::AuthenticationSources;
use crate::node_access::NodeOptions;
use crate::store::{StoreConfig, StoreLimits};
use crate::traces::Traces;

/// The number of hash bytes in derived server names.
const SERVER_ID_BYTES: usize = 16;

/// Settings of a server. `Config::default()` is a server with a store in memory, on a free port of the loopback
/// address.
#[derive(Clone)]
pub struct Config {
    /// The address to listen on. Port 0 is any free port.
    pub bind: SocketAddr,
    /// Accepts connections in place of a TCP port. For tests and simulations.
    pub transport: Option<Arc<dyn Accept>>,
    /// The store of objects.
    pub store: StoreConfig,
    /// The directory of certificates, keys and the kubeconfig. `None` creates temporary ones.
    pub data_dir: Option<PathBuf>,
    /// The history window: the time for which continue tokens and watches can resume. Older history is compacted.
    pub history: Duration,
    /// True to continue without objects that the store has lost: those after a damaged place of its log, or all.
    pub accept_loss: bool,
    /// The size limits of a store that this server owns.
    pub store_room: StoreLimits,
    /// The maximum size of a write in bytes: an object with its keys. It is the same for every store, so that any store
    /// can replace another.
    pub max_object_bytes: usize,
    /// The maximum size of past objects in the cache, in bytes. Older ones are read from the store.
    pub history_bytes: u64,
    /// The maximum size of all views (orders, groups and indexes of queries), in bytes. Building a view may need twice
    /// its size.
    pub view_bytes: u64,
    /// The limits of uncompressed and compressed objects in the cache.
    pub packing: Packing,
    /// The interval at which the cache is compared with the store and differences are repaired. `None` for never.
    pub cache_check_interval: Option<Duration>,
    /// The name of this server in its log, its lease and the metric `keelson_server_info`: a DNS subdomain, unique on
    /// the store.
    pub server_id: String,
    /// The time for which this server's lease is valid without a renewal, in whole seconds.
    pub identity_duration: Duration,
    /// The interval of lease renewals.
    pub identity_interval: Duration,
    /// True to start even if this server does not accept the signing keys of running servers on the store, or they not
    /// its own.
    pub allow_other_keys: bool,
    /// Certificates: additional names for the serving certificate, or the operator's files.
    pub pki: PkiOptions,
    /// The keys and certificates of an earlier server. A server without a data directory uses them instead of new ones.
    pub made_pki: Option<Pki>,
    /// The time that a node may be missing before its pods are deleted.
    pub node_quarantine: Duration,
    /// The value of the header `Strict-Transport-Security` of responses.
    pub transport_security: Option<HeaderValue>,
    /// The limits of lifetimes of service account tokens.
    pub token_times: TokenTimes,
    /// The time after its last write at which an event is deleted. `None` keeps events.
    pub event_ttl: Option<Duration>,
    /// True if the service `kubernetes` gets the addresses of servers.
    pub publishes_endpoints: bool,
    /// The issuer of service account tokens: a URL.
    pub service_account_issuer: String,
    /// Further accepted issuers of service account tokens.
    pub further_issuers: Vec<String>,
    /// The audiences of this server; empty for the issuers.
    pub api_audiences: Vec<String>,
    /// The URL of the keys of tokens in the document for their verifiers, if it is not this server's.
    pub key_set_url: Option<String>,
    /// A file of tokens with their users: `token,user,uid,"group1,group2"`.
    pub token_file: Option<PathBuf>,
    /// A file with keys that encrypt continue tokens, one on each line. The first key encrypts, and all keys decrypt.
    pub token_key_file: Option<PathBuf>,
    /// True if bootstrap tokens are accepted: secrets of their type in `kube-system`.
    pub bootstrap_tokens: bool,
    /// True if requests without credentials are accepted as `system:anonymous`, which is also the default. The
    /// authentication configuration can set this too.
    pub anonymous: Option<bool>,
    /// True if the console is served.
    pub console: bool,
    /// Additional sources of accepted tokens.
    pub authentication: AuthenticationSources,
    /// The authorizers, in this order. Members of `system:masters` need no permission from them.
    pub authorization: AuthorizationSource,
    /// The enabled admission plugins.
    pub admission: Selection,
    /// The configuration of admission plugins.
    pub admission_configuration: AdmissionConfiguration,
    /// The audit policy and its backends.
    pub audit: AuditConfig,
    /// The encryption of objects in the store.
    pub encryption: EncryptionConfig,
    /// Settings of the verbs.
    pub registry: RegistryConfig,
    /// The recorded spans of the process, and their collector.
    pub traces: Option<Traces>,
    /// The sources of pages for diagnosis.
    pub diagnostics: Diagnostics,
    /// The host in the URLs of documents, with or without a port, if it is not the address.
    pub external_hostname: Option<String>,
    /// The address at which clients reach the server, if it is not the listening address.
    pub advertise_address: Option<IpAddr>,
    /// The authorities of the serving certificates of the other servers on the store (PEM). With it, servers forward
    /// requests to each other.
    pub peer_ca_file: Option<PathBuf>,
    /// The address at which other servers reach this one, if clients use another.
    pub peer_advertise_ip: Option<IpAddr>,
    /// The port at which other servers reach this one.
    pub peer_advertise_port: Option<u16>,
    /// The maximum number of open connections, a part of the process's descriptor limit.
    pub connections: usize,
    /// The maximum number of outgoing connections to webhooks and aggregated servers, a part of the same limit.
    pub outbound_connections: usize,
    /// Connections to kubelets, pods and services.
    pub nodes: NodeOptions,
    /// A response is reset if its client reads nothing for this time.
    pub unread: Duration,
    /// The maximum number of replaced bytes that the snapshots of lists in flight may keep in memory.
    pub pinned_bytes: u64,
    /// True if another server of this process has created the default objects in this store, so that this server skips
    /// them.
    pub bootstrapped: bool,
    /// The values that a fork shares with its origin.
    pub inherited: Option<Arc<Inherited>>,
    /// The limits of concurrent requests.
    pub flow: FlowLimits,
    /// The interval at which the default flow schemas and priority levels are checked.
    pub flow_object_interval: Duration,
    /// Services that are reached at other addresses than their endpoints.
    pub service_routes: ServiceRoutes,
    /// The proxy for outgoing calls to hosts other than services. `None` for no proxy, whatever the environment
    /// contains.
    pub proxy: Option<Proxy>,
    /// The egress proxies of the control plane, the cluster and etcd. They take precedence over the other proxy.
    pub egress: Arc<Egress>,
    /// The enabled controllers.
    pub controllers: Switches,
    /// The times of the election of the server that runs them.
    pub leadership: LeadershipTimes,
    /// The maximum number of concurrent requests on one HTTP/2 connection.
    pub streams: u32,
    /// The longest time until the headers of a response.
    pub request_timeout: Duration,
    /// The share of HTTP/2 requests after which the connection closes with GOAWAY.
    pub goaway_chance: f64,
    /// The origins whose pages may read responses. `None` for no other origin.
    pub origins: Option<AllowedOrigins>,
    /// The phases before the end of a server that [`RunningServer::drain`](crate::RunningServer::drain) runs.
    pub shutdown: ShutdownTimes,
    /// The longest time of requests in flight during a shutdown.
    pub shutdown_grace: Duration,
    /// The time that an idle connection stays open during a shutdown, so that its client can read the announcement.
    pub parting: Duration,
    /// Wall-clock time.
    pub clock: Arc<dyn Clock>,
    /// Randomness for uids, names and keys.
    pub random: Arc<dyn Random>,
}

impl Default for Config {
    fn default() -> Self {
        // SIZE: one list of defaults.
        Self {
            bind: SocketAddr::from(([127, 0, 0, 1], 0)),
            transport: None,
            store: StoreConfig::Memory,
            data_dir: None,
            history: Duration::from_mins(5),
            accept_loss: false,
            store_room: StoreLimits::default(),
            max_object_bytes: bounded::DEFAULT_BOUND,
            history_bytes: 256 * 1024 * 1024,
            view_bytes: DEFAULT_VIEW_BYTES,
            packing: Packing::default(),
            cache_check_interval: Some(DEFAULT_CHECK_INTERVAL),
            server_id: "keelson".to_owned(),
            identity_duration: IdentityConfig::DURATION,
            identity_interval: IdentityConfig::INTERVAL,
            allow_other_keys: false,
            pki: PkiOptions::default(),
            made_pki: None,
            node_quarantine: QUARANTINE,
            transport_security: None,
            token_times: TokenTimes::default(),
            event_ttl: None,
            publishes_endpoints: true,
            service_account_issuer: DEFAULT_ISSUER.to_owned(),
            further_issuers: Vec::new(),
            api_audiences: Vec::new(),
            key_set_url: None,
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
            traces: None,
            diagnostics: Diagnostics::default(),
            external_hostname: None,
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
            inherited: None,
            flow: FlowLimits::default(),
            flow_object_interval: FlowObjects::INTERVAL,
            service_routes: ServiceRoutes::default(),
            proxy: None,
            egress: Arc::default(),
            controllers: Switches::default(),
            leadership: LeadershipTimes::default(),
            streams: Limits::default().streams,
            request_timeout: Duration::from_secs(60),
            goaway_chance: 0.0,
            origins: None,
            shutdown: ShutdownTimes::default(),
            shutdown_grace: Duration::from_secs(30),
            parting: Limits::default().parting,
            clock: Arc::new(SystemClock),
            random: Arc::new(SystemRandom),
        }
    }
}

impl Config {
    /// The name of a server without a configured one. It is the same at each start, and different for servers on one
    /// host with different data directories. It has the form of the names that kube-apiserver derives.
    pub fn derived_server_id(data_dir: &Path) -> String {
        let mut hash = Sha256::new();
        for part in [Self::host_name().as_bytes(), b"keelson", data_dir.as_os_str().as_bytes()] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let digest = hash.finalize();
        format!("apiserver-{}", BASE32_NOPAD.encode(&digest[..SERVER_ID_BYTES]).to_ascii_lowercase())
    }

    /// The host and port in the URLs of documents of a server at this address.
    pub(crate) fn shown_host(&self, addr: SocketAddr) -> String {
        match &self.external_hostname {
            Some(host) if host.parse::<http::uri::Authority>().is_ok_and(|host| host.port().is_some()) => host.clone(),
            Some(host) => keelson_meta::host_port(host, addr.port()),
            None => addr.to_string(),
        }
    }

    /// The accepted issuers of service account tokens. The first one signs.
    pub(crate) fn token_issuers(&self) -> Vec<String> {
        std::iter::once(&self.service_account_issuer).chain(&self.further_issuers).cloned().collect()
    }

    /// The audiences of this server.
    pub(crate) fn audiences(&self) -> Vec<String> {
        if self.api_audiences.is_empty() { self.token_issuers() } else { self.api_audiences.clone() }
    }

    /// The host name of the system.
    pub fn host_name() -> String {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        match host.trim() {
            "" => "localhost".to_owned(),
            name => name.to_owned(),
        }
    }

    /// Disables chunking for lists of a resource (`secrets`, `roles.rbac.authorization.k8s.io`). Chunking is also
    /// disabled for resources that show the same objects under other names, since their continue tokens would reveal
    /// the same. `catalogue` contains the resources that settings may name.
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

    #[test]
    fn documents_name_the_external_host() {
        let shown = |host: Option<&str>| {
            let config = Config { external_hostname: host.map(str::to_owned), ..Config::default() };
            config.shown_host(SocketAddr::from(([192, 0, 2, 7], 6443)))
        };
        assert_eq!(shown(None), "192.0.2.7:6443");
        assert_eq!(shown(Some("api.example.org")), "api.example.org:6443");
        assert_eq!(shown(Some("api.example.org:443")), "api.example.org:443");
        assert_eq!(shown(Some("2001:db8::1")), "[2001:db8::1]:6443");
        assert_eq!(shown(Some("[2001:db8::1]:443")), "[2001:db8::1]:443");
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
    fn unknown_resources_are_refused() {
        let mut config = Config::default();
        for name in ["secretz", "Secret", "secrets.v1", " secrets", ""] {
            assert!(config.never_chunk(keelson_builtin::catalogue(), name).is_err(), "{name}");
        }
        assert!(config.registry.unchunked.is_empty());
    }
}
