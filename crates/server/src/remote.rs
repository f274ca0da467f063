//! Finds the aggregated server for a request: maps group versions of APIServices to connections.
//!
//! The table is built again when APIServices change. It holds the connections to servers, which last across requests
//! and are closed with the last APIService that names their server.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use futures::future::BoxFuture;
use http::StatusCode;
use keelson_access::{Pki, RequestHeaders};
use keelson_aggregator::{Aggregator, ApiService, ApiServices, PeerForwarding, PeerServers};
use keelson_http::proxy::{IdentityHeaders, Remote, RemoteServers};
use keelson_outbound::{ClientCertificate, Outbound, Upstream};

/// The client certificate for aggregated servers.
pub(crate) fn certificate(pki: &Pki) -> ClientCertificate {
    let client = pki.front_proxy.client.clone();
    ClientCertificate { certificate_pem: client.certificate_pem, key_pem: client.key_pem }
}

/// The header fields that aggregated servers trust, as the servers on the store publish them.
pub(crate) struct PublishedFields(ArcSwap<IdentityHeaders>);

impl PublishedFields {
    /// Starts with the fields of this server.
    pub(crate) fn new(headers: &RequestHeaders) -> Arc<Self> {
        Arc::new(Self(ArcSwap::from_pointee(believed(headers))))
    }

    /// The currently trusted fields.
    pub(crate) fn current(&self) -> Arc<IdentityHeaders> {
        self.0.load_full()
    }

    /// Replaces the fields by the newly published ones.
    pub(crate) fn publish(&self, headers: &RequestHeaders) {
        self.0.store(Arc::new(believed(headers)));
    }
}

fn believed(headers: &RequestHeaders) -> IdentityHeaders {
    let names = headers.username.iter().chain(&headers.uid).chain(&headers.group);
    IdentityHeaders::new(names.filter_map(|name| name.parse().ok()).collect(), headers.extra_prefix.clone())
}

/// All aggregated servers.
pub(crate) struct AggregatedServers {
    aggregator: Arc<Aggregator>,
    outbound: Arc<Outbound>,
    table: ArcSwap<Table>,
    fields: Arc<PublishedFields>,
    peers: Option<Arc<PeerServers>>,
}

/// The server of each group version, for one generation of the APIServices.
#[derive(Default)]
struct Table {
    generation: u64,
    /// Servers by group, then by version. Few groups have more than a few versions.
    groups: HashMap<String, Vec<(String, Remote)>>,
}

impl AggregatedServers {
    pub(crate) fn new(
        aggregator: Arc<Aggregator>,
        outbound: Arc<Outbound>,
        fields: Arc<PublishedFields>,
        peers: Option<Arc<PeerServers>>,
    ) -> Self {
        Self { aggregator, outbound, table: ArcSwap::default(), fields, peers }
    }

    /// The server of a version. `None` for a version that this server serves.
    fn remote(&self, current: &ApiServices, group: &str, version: &str) -> Option<Remote> {
        current.remote(group, version)?;
        let mut table = self.table.load_full();
        if table.generation != current.generation() {
            let mut groups: HashMap<String, Vec<(String, Remote)>> = HashMap::new();
            for (service, remote) in current.remotes() {
                let remote = Remote {
                    upstream: self.outbound.upstream(remote),
                    is_available: service.is_available(),
                    is_peer: false,
                };
                groups.entry(service.group.clone()).or_default().push((service.version.clone(), remote));
            }
            // ORDER: the old table is held until the new one has found its connections, so that connections in use stay
            // open.
            table = Arc::new(Table { generation: current.generation(), groups });
            self.table.store(table.clone());
        }
        let versions = table.groups.get(group)?;
        versions.iter().find(|(known, _)| known == version).map(|(_, remote)| remote.clone())
    }
}

impl RemoteServers for AggregatedServers {
    fn find(&self, group: &str, version: &str) -> Option<Remote> {
        let current = self.aggregator.current();
        let is_settled = |service: &Arc<ApiService>| service.remote().is_none() || service.is_available();
        match current.get(group, version) {
            Some(service) if is_settled(service) => self.remote(&current, group, version),
            // The table's follower receives changes of APIServices slightly later than readers of the cache.
            Some(_) | None => self.remote(&self.aggregator.current_about(group, version), group, version),
        }
    }

    fn find_newest<'s>(&'s self, group: &'s str, version: &'s str) -> BoxFuture<'s, Option<Remote>> {
        Box::pin(async move {
            let known = self.aggregator.current();
            // A local version usually stays local. It changes only when an APIService with a server is created for it.
            if known.get(group, version).is_some_and(|service| service.remote().is_none()) {
                return None;
            }
            let newest = self.aggregator.newest_about(group, version).await;
            self.remote(&newest, group, version)
        })
    }

    fn find_peer(&self, group: &str, version: &str, resource: &str) -> Option<Arc<Upstream>> {
        self.peers.as_ref()?.find(group, version, resource)
    }

    fn note_peer_answer(&self, group: &str, version: &str, resource: &str, code: StatusCode) {
        let Some(peers) = &self.peers else { return };
        let [group, version, resource] = [group, version, resource].map(str::to_owned);
        peers.note_rerouted(PeerForwarding { group, version, resource, code: code.as_u16() });
    }

    fn believed(&self) -> Arc<IdentityHeaders> {
        self.fields.current()
    }
}
