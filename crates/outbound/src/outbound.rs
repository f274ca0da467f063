//! All hosts that the server calls, with their shared connections and limits.
//!
//! All clients of one host with the same authorities share its connections and limits, however many webhooks name the
//! host. A host without clients is dropped with its connections.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use keelson_meta::{Random, host_port};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::budget::ByteBudget;
use crate::client_config::{CallUrl, ClientConfig, Destination};
use crate::credentials::Credentials;
use crate::dialer::{Dialer, Endpoint, Trust, Ways};
use crate::egress::{Egress, EgressNetwork};
use crate::presented::{ClientCertificate, ClientCertificateState};
use crate::proxy::Proxy;
use crate::remote_service::{RemoteService, service_host};
use crate::rest_client::{Host, READING_BYTES, RestClient};
use crate::services::Services;
use crate::stats::OutboundStats;
use crate::upstream::{ForwardLimits, Upstream};

/// All outgoing calls of a server.
pub struct Outbound {
    services: Arc<dyn Services>,
    random: Arc<dyn Random>,
    proxies: Proxies,
    /// The certificate for aggregated servers and peers.
    certificate: Option<Arc<ClientCertificateState>>,
    /// The servers for forwarded requests, each for as long as a client uses it.
    upstreams: Mutex<HashMap<HostKey, Weak<Upstream>>>,
    /// The hosts for calls, by host and bundle of authorities, each for as long as it has clients.
    hosts: Mutex<HashMap<HostKey, Weak<Host>>>,
    read_budget: ByteBudget,
    /// Permits for connections that carry forwarded requests.
    forwarding_permits: Arc<Semaphore>,
    /// Permits for all other connections.
    call_permits: Arc<Semaphore>,
    forward_limits: ForwardLimits,
    stats: OutboundStats,
}

/// The proxies of outgoing calls.
#[derive(Debug, Default)]
pub struct Proxies {
    /// The proxies by network. They take precedence.
    pub egress: Arc<Egress>,
    /// The proxy of the environment, for hosts that are no services.
    pub environment: Option<Proxy>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct HostKey {
    authority: String,
    endpoint: Endpoint,
    ca_bundle: Vec<u8>,
    insecure_skip_tls_verify: bool,
    as_front_proxy: bool,
    /// The network of the host; `None` for a direct connection.
    network: Option<EgressNetwork>,
    /// The client certificate for this host only.
    certificate: Option<ClientCertificate>,
}

impl Outbound {
    /// The default limit of open connections.
    pub const CONNECTIONS: usize = 4096;

    /// Creates the calls of a server. `services` resolves services; other hosts are reached through the proxy, if there
    /// is one.
    pub fn new(services: Arc<dyn Services>, random: Arc<dyn Random>, proxy: Option<Proxy>) -> Arc<Self> {
        let proxies = Proxies { environment: proxy, ..Proxies::default() };
        Self::with_certificate(services, random, proxies, None, Self::CONNECTIONS)
    }

    /// Creates the calls of a server with a certificate for aggregated servers only, and a limit of connections. Half
    /// of the connections are reserved for forwarded requests, and the rest for webhooks and other calls.
    pub fn with_certificate(
        services: Arc<dyn Services>,
        random: Arc<dyn Random>,
        proxies: Proxies,
        certificate: Option<&ClientCertificate>,
        connections: usize,
    ) -> Arc<Self> {
        let permits = || Arc::new(Semaphore::new((connections / 2).clamp(1, Semaphore::MAX_PERMITS)));
        Arc::new(Self {
            services,
            random,
            proxies,
            certificate: certificate.map(ClientCertificateState::new),
            upstreams: Mutex::default(),
            hosts: Mutex::default(),
            read_budget: ByteBudget::new(READING_BYTES),
            forwarding_permits: permits(),
            call_permits: permits(),
            forward_limits: ForwardLimits::default(),
            stats: OutboundStats::default(),
        })
    }

    /// Replaces the certificate for aggregated servers on new connections.
    pub fn change_certificate(&self, certificate: &ClientCertificate) {
        if let Some(presented) = &self.certificate {
            presented.change(certificate);
        }
    }

    /// A client for a configuration. Opens no connection yet.
    ///
    /// # Errors
    /// The configuration has no valid destination.
    pub fn client(&self, config: &ClientConfig) -> Result<RestClient, String> {
        self.client_as(config, None, None)
    }

    /// A client for a configuration that sends these credentials with each request.
    ///
    /// # Errors
    /// Errors of [`Self::client`].
    pub fn client_with(&self, config: &ClientConfig, credentials: &Credentials) -> Result<RestClient, String> {
        let client = self.client_as(config, None, credentials.certificate.clone())?;
        Ok(client.with_headers(credentials.headers.clone()))
    }

    /// A client for a configuration with another server name in the certificate, and with a client certificate.
    ///
    /// # Errors
    /// Errors of [`Self::client`].
    pub fn client_as(
        &self,
        config: &ClientConfig,
        server_name: Option<&str>,
        certificate: Option<ClientCertificate>,
    ) -> Result<RestClient, String> {
        // As upstream, services are called through the egress network `cluster`, and URLs through `controlplane`.
        let network = match &config.destination {
            Destination::Url(_) => Some(EgressNetwork::ControlPlane),
            Destination::Service { .. } => Some(EgressNetwork::Cluster),
            Destination::Server { .. } => None,
        };
        self.client_of(config, server_name, certificate, network)
    }

    /// A client for a configuration in this network, or for a direct connection.
    ///
    /// # Errors
    /// Errors of [`Self::client`].
    pub fn client_in(&self, config: &ClientConfig, network: Option<EgressNetwork>) -> Result<RestClient, String> {
        self.client_of(config, None, None, network)
    }

    fn client_of(
        &self,
        config: &ClientConfig,
        server_name: Option<&str>,
        certificate: Option<ClientCertificate>,
        network: Option<EgressNetwork>,
    ) -> Result<RestClient, String> {
        let (authority, endpoint, path) = match &config.destination {
            Destination::Url(url) => place(CallUrl::parse(url)?, server_name),
            Destination::Service { namespace, name, port, path } => {
                let endpoint = Endpoint::Service { namespace: namespace.clone(), name: name.clone(), port: *port };
                (format!("{}:{port}", service_host(namespace, name)), endpoint, clean_path(path))
            }
            Destination::Server { host, port, server_name } => {
                let endpoint = Endpoint::Server { host: host.clone(), port: *port, name: server_name.clone() };
                (host_port(host, *port), endpoint, "/".to_owned())
            }
        };
        let ClientConfig { destination, ca_bundle, insecure_skip_tls_verify } = config.clone();
        let as_front_proxy = matches!(destination, Destination::Server { .. });
        let key =
            HostKey { authority, endpoint, ca_bundle, insecure_skip_tls_verify, as_front_proxy, network, certificate };
        Ok(RestClient::new(self.host(key), path))
    }

    /// The addresses of a service's port: hosts and ports in the order to try, at least one.
    ///
    /// # Errors
    /// The service has no usable address, in upstream's words.
    pub fn locate(&self, namespace: &str, name: &str, port: u16) -> Result<Vec<(String, u16)>, String> {
        self.services.addresses(namespace, name, port)
    }

    /// Returns true if the operator set a route for a service, so that the service need not be in the store.
    pub fn is_routed(&self, namespace: &str, name: &str) -> bool {
        self.services.is_routed(namespace, name)
    }

    /// A server for forwarded requests. Opens no connection yet. Clients of the same server share its connections and
    /// limits.
    pub fn upstream(&self, service: &RemoteService) -> Arc<Upstream> {
        let RemoteService { namespace, name, port, ca_bundle, insecure_skip_tls_verify } = service.clone();
        self.upstream_of(HostKey {
            authority: format!("{}:{port}", service.server_name()),
            endpoint: Endpoint::Service { namespace, name, port },
            ca_bundle,
            insecure_skip_tls_verify,
            as_front_proxy: true,
            network: Some(EgressNetwork::Cluster),
            certificate: None,
        })
    }

    /// A server for forwarded requests at an address, whose certificate has this name and one of these authorities
    /// (PEM).
    pub fn upstream_at(&self, address: SocketAddr, server_name: &str, ca_bundle: &[u8]) -> Arc<Upstream> {
        let (host, port) = (address.ip().to_string(), address.port());
        self.upstream_of(HostKey {
            authority: host_port(&host, port),
            endpoint: Endpoint::Server { host, port, name: server_name.to_owned() },
            ca_bundle: ca_bundle.to_owned(),
            insecure_skip_tls_verify: false,
            as_front_proxy: true,
            network: None,
            certificate: None,
        })
    }

    /// A server for forwarded requests at an `https` URL, optionally with another name in its certificate. Connections
    /// to it present this client certificate, or none.
    ///
    /// # Errors
    /// The configuration has no URL of the form `https://host[/path]`.
    pub fn upstream_by_url(
        &self,
        config: &ClientConfig,
        server_name: Option<&str>,
        certificate: Option<ClientCertificate>,
    ) -> Result<Arc<Upstream>, String> {
        let Destination::Url(url) = &config.destination else { return Err("a URL is expected".to_owned()) };
        let (authority, endpoint, _path) = place(CallUrl::parse(url)?, server_name);
        Ok(self.upstream_of(HostKey {
            authority,
            endpoint,
            ca_bundle: config.ca_bundle.clone(),
            insecure_skip_tls_verify: config.insecure_skip_tls_verify,
            as_front_proxy: false,
            network: None,
            certificate,
        }))
    }

    fn upstream_of(&self, key: HostKey) -> Arc<Upstream> {
        let mut upstreams = self.upstreams.lock();
        if let Some(known) = upstreams.get(&key).and_then(Weak::upgrade) {
            return known;
        }
        upstreams.retain(|_, upstream| upstream.strong_count() > 0);
        let permits = self.forwarding_permits.clone();
        let ways = Ways { environment: None, ..self.ways(&key) };
        let dialer = Dialer::new(key.endpoint.clone(), self.trust(&key), self.services.clone(), ways, permits);
        let upstream = Arc::new(Upstream::new(key.authority.clone(), &dialer, self.forward_limits.clone()));
        upstreams.insert(key, Arc::downgrade(&upstream));
        upstream
    }

    fn ways(&self, key: &HostKey) -> Ways {
        Ways {
            egress: key.network.and_then(|network| self.proxies.egress.proxy(network)).cloned(),
            environment: self.proxies.environment.clone(),
        }
    }

    fn trust(&self, key: &HostKey) -> Trust {
        Trust {
            ca_bundle: key.ca_bundle.clone(),
            insecure_skip_tls_verify: key.insecure_skip_tls_verify,
            faults: match key.as_front_proxy {
                true => self.stats.aggregated_certificates().clone(),
                false => self.stats.webhook_certificates().clone(),
            },
            certificate: match &key.certificate {
                Some(certificate) => Some(ClientCertificateState::new(certificate)),
                None => self.certificate.clone().filter(|_| key.as_front_proxy),
            },
        }
    }

    fn host(&self, key: HostKey) -> Arc<Host> {
        let mut hosts = self.hosts.lock();
        if let Some(known) = hosts.get(&key).and_then(Weak::upgrade) {
            return known;
        }
        hosts.retain(|_, host| host.strong_count() > 0);
        let dialer = Dialer::new(
            key.endpoint.clone(),
            self.trust(&key),
            self.services.clone(),
            self.ways(&key),
            self.call_permits.clone(),
        );
        let (budget, meter) = (self.read_budget.clone(), self.stats.of_host(&key.authority));
        let host = match key.endpoint {
            Endpoint::Host { .. } => Host::multiplexed(key.authority.clone(), &dialer, budget, meter),
            Endpoint::Service { .. } | Endpoint::Server { .. } => {
                Host::new(key.authority.clone(), dialer, budget, meter)
            }
        };
        let host = Arc::new(host);
        hosts.insert(key, Arc::downgrade(&host));
        host
    }

    /// The counts of calls.
    pub fn stats(&self) -> &OutboundStats {
        &self.stats
    }

    /// The egress proxies.
    pub fn egress(&self) -> &Arc<Egress> {
        &self.proxies.egress
    }

    /// Randomness for unique request names.
    pub fn random(&self) -> &dyn Random {
        &*self.random
    }
}

impl fmt::Debug for Outbound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbound").field("services", &self.services).finish_non_exhaustive()
    }
}

/// The authority, endpoint and path of a URL, optionally with another name in the certificate.
fn place(url: CallUrl, server_name: Option<&str>) -> (String, Endpoint, String) {
    let CallUrl { authority, host, port, path } = url;
    let endpoint = match server_name {
        Some(name) => Endpoint::Server { host, port, name: name.to_owned() },
        None => Endpoint::Host { host, port },
    };
    (authority, endpoint, path)
}

/// Cleans a path as Go's client does: single slashes, none at the end, no segments that lead upwards.
pub fn clean_path(path: &str) -> String {
    let mut segments: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                segments.pop();
            }
            segment => segments.push(segment),
        }
    }
    format!("/{}", segments.join("/"))
}

#[cfg(test)]
mod tests {
    use super::clean_path;

    #[test]
    fn paths_are_cleaned() {
        let check = |path: &str, expected: &str| assert_eq!(clean_path(path), expected, "{path}");
        check("", "/");
        check("/", "/");
        check("/convert", "/convert");
        check("a//b/./c/../d/", "/a/b/d");
        check("/../..", "/");
    }
}
