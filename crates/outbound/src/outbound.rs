//! All hosts that are called, and what calls to all of them share.
//!
//! Those who call the same host with the same authorities share its connections and its bounds, however many webhooks lead there.
//! A host that nobody may call any more is forgotten with its connections.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};

use http::Uri;
use keelson_meta::Random;
use parking_lot::Mutex;

use crate::client_config::{ClientConfig, Destination};
use crate::dial::{ClientCertificate, Dialer, Goal, Trust};
use crate::peer::{Host, Peer, Reading};
use crate::proxy::Proxy;
use crate::services::Services;
use crate::stats::OutboundStats;
use crate::upstream::{Upstream, UpstreamTarget};

/// All that a server calls.
pub struct Outbound {
    services: Arc<dyn Services>,
    random: Arc<dyn Random>,
    proxy: Option<Proxy>,
    /// What aggregated servers are shown.
    certificate: Option<Arc<ClientCertificate>>,
    /// One for each server, as long as somebody passes requests on to it.
    upstreams: Mutex<HashMap<UpstreamTarget, Weak<Upstream>>>,
    /// One for each host and bundle, as long as somebody may call it, so that all who do share its connections and its bounds.
    hosts: Mutex<HashMap<HostKey, Weak<Host>>>,
    reading: Arc<Reading>,
    stats: OutboundStats,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct HostKey {
    authority: String,
    to: Goal,
    ca_bundle: Vec<u8>,
    insecure_skip_tls_verify: bool,
    as_front_proxy: bool,
}

impl Outbound {
    /// Calls those behind services where these lead, and others by a proxy where there is one.
    pub fn new(services: Arc<dyn Services>, random: Arc<dyn Random>, proxy: Option<Proxy>) -> Arc<Self> {
        Self::with_certificate(services, random, proxy, None)
    }

    /// The same that shows aggregated servers, and nobody else, who it is.
    pub fn with_certificate(
        services: Arc<dyn Services>,
        random: Arc<dyn Random>,
        proxy: Option<Proxy>,
        certificate: Option<ClientCertificate>,
    ) -> Arc<Self> {
        Arc::new(Self {
            services,
            random,
            proxy,
            certificate: certificate.map(Arc::new),
            upstreams: Mutex::default(),
            hosts: Mutex::default(),
            reading: Arc::default(),
            stats: OutboundStats::default(),
        })
    }

    /// Whoever a configuration says is called. Nothing is dialled yet.
    ///
    /// # Errors
    /// When the configuration names nobody who can be called.
    pub fn peer(&self, config: &ClientConfig) -> Result<Peer, String> {
        let (authority, to, path) = match &config.destination {
            Destination::Url(url) => {
                let uri: Uri = url.parse().map_err(|error| format!("Unparsable URL: {error}"))?;
                let (Some("https"), Some(authority), Some(host)) = (uri.scheme_str(), uri.authority(), uri.host())
                else {
                    return Err(format!("Unparsable URL: {url:?} is not of the form https://host[/path]"));
                };
                let host = host.trim_matches(['[', ']']).to_owned();
                let goal = Goal::Host { host, port: uri.port_u16().unwrap_or(443) };
                (authority.as_str().to_owned(), goal, clean(uri.path()))
            }
            Destination::Service { namespace, name, port, path } => {
                let goal = Goal::Service { namespace: namespace.clone(), name: name.clone(), port: *port };
                (format!("{name}.{namespace}.svc:{port}"), goal, clean(path))
            }
            Destination::Server { host, port, server_name } => {
                let goal = Goal::Server { host: host.clone(), port: *port, name: server_name.clone() };
                (authority(host, *port), goal, "/".to_owned())
            }
        };
        let ClientConfig { destination, ca_bundle, insecure_skip_tls_verify } = config.clone();
        let as_front_proxy = matches!(destination, Destination::Server { .. });
        let key = HostKey { authority, to, ca_bundle, insecure_skip_tls_verify, as_front_proxy };
        Ok(Peer::new(self.host(key), path))
    }

    /// Where a port of a service leads: hosts and ports, in the order in which they are to be tried, at least one.
    ///
    /// # Errors
    /// Why it leads nowhere, as upstream says it.
    pub fn locate(&self, namespace: &str, name: &str, port: u16) -> Result<Vec<(String, u16)>, String> {
        self.services.addresses(namespace, name, port)
    }

    /// Whether the operator said where a service is, so that nothing of it needs to be in the store.
    pub fn is_routed(&self, namespace: &str, name: &str) -> bool {
        self.services.is_routed(namespace, name)
    }

    /// A server to which requests are passed on. Nothing is dialled yet. Those who pass requests on to the same server share its
    /// connections and its bounds.
    pub fn upstream(&self, target: &UpstreamTarget) -> Arc<Upstream> {
        let mut upstreams = self.upstreams.lock();
        if let Some(known) = upstreams.get(target).and_then(Weak::upgrade) {
            return known;
        }
        upstreams.retain(|_, upstream| upstream.strong_count() > 0);
        let UpstreamTarget { namespace, name, port, ca_bundle, insecure_skip_tls_verify } = target.clone();
        let authority = format!("{name}.{namespace}.svc:{port}");
        let trust = Trust { ca_bundle, anybody: insecure_skip_tls_verify, certificate: self.certificate.clone() };
        let dialer = Dialer::new(Goal::Service { namespace, name, port }, trust, self.services.clone(), None);
        let upstream = Arc::new(Upstream::new(authority, &dialer));
        upstreams.insert(target.clone(), Arc::downgrade(&upstream));
        upstream
    }

    fn host(&self, key: HostKey) -> Arc<Host> {
        let mut hosts = self.hosts.lock();
        if let Some(known) = hosts.get(&key).and_then(Weak::upgrade) {
            return known;
        }
        hosts.retain(|_, host| host.strong_count() > 0);
        let certificate = self.certificate.clone().filter(|_| key.as_front_proxy);
        let trust = Trust { ca_bundle: key.ca_bundle.clone(), anybody: key.insecure_skip_tls_verify, certificate };
        let dialer = Dialer::new(key.to.clone(), trust, self.services.clone(), self.proxy.clone());
        let host = Arc::new(Host::new(key.authority.clone(), dialer, self.reading.clone()));
        hosts.insert(key, Arc::downgrade(&host));
        host
    }

    /// What was counted.
    pub fn stats(&self) -> &OutboundStats {
        &self.stats
    }

    pub(crate) fn random(&self) -> &dyn Random {
        &*self.random
    }
}

impl fmt::Debug for Outbound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbound").field("services", &self.services).finish_non_exhaustive()
    }
}

/// A host and a port as a URL has them.
fn authority(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// A path as Go's client has it: one slash between segments and none at the end, nothing that leads upwards.
fn clean(path: &str) -> String {
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
    use super::clean;

    #[test]
    fn paths_are_cleaned() {
        let check = |path: &str, expected: &str| assert_eq!(clean(path), expected, "{path}");
        check("", "/");
        check("/", "/");
        check("/convert", "/convert");
        check("a//b/./c/../d/", "/a/b/d");
        check("/../..", "/");
    }
}
