//! Aggregated servers as requests reach them: which APIService leads to which connections.
//!
//! The table is made anew when the APIServices have changed. It holds the ways to servers, so that their connections last from request
//! to request and go with the last APIService that names them.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use keelson_access::{Pki, RequestHeaders};
use keelson_aggregator::Aggregator;
use keelson_http::proxy::{BelievedFields, Remote, RemoteServers};
use keelson_outbound::{ClientCertificate, Outbound, UpstreamTarget};

/// The certificate by which aggregated servers know this one.
pub(crate) fn certificate(pki: &Pki) -> ClientCertificate {
    let client = pki.front_proxy.client.clone();
    ClientCertificate { certificate_pem: client.certificate_pem, key_pem: client.key_pem }
}

/// The header fields that aggregated servers believe, as the servers on the store publish them.
pub(crate) struct PublishedFields(ArcSwap<BelievedFields>);

impl PublishedFields {
    /// Those of one server.
    pub(crate) fn new(headers: &RequestHeaders) -> Arc<Self> {
        Arc::new(Self(ArcSwap::from_pointee(believed(headers))))
    }

    /// Takes in what is published now.
    pub(crate) fn publish(&self, headers: &RequestHeaders) {
        self.0.store(Arc::new(believed(headers)));
    }
}

fn believed(headers: &RequestHeaders) -> BelievedFields {
    let names = headers.username.iter().chain(&headers.uid).chain(&headers.group);
    BelievedFields::new(names.filter_map(|name| name.parse().ok()).collect(), headers.extra_prefix.clone())
}

/// All aggregated servers.
pub(crate) struct AggregatedServers {
    aggregator: Arc<Aggregator>,
    outbound: Arc<Outbound>,
    table: ArcSwap<Table>,
    fields: Arc<PublishedFields>,
}

/// Who serves what, as of one generation of the APIServices.
#[derive(Default)]
struct Table {
    generation: u64,
    /// By group, and by version: few groups have more than a few.
    groups: HashMap<String, Vec<(String, Remote)>>,
}

impl AggregatedServers {
    pub(crate) fn new(aggregator: Arc<Aggregator>, outbound: Arc<Outbound>, fields: Arc<PublishedFields>) -> Self {
        Self { aggregator, outbound, table: ArcSwap::default(), fields }
    }
}

impl RemoteServers for AggregatedServers {
    fn find(&self, group: &str, version: &str) -> Option<Remote> {
        let current = self.aggregator.current();
        current.remote(group, version)?;
        let mut table = self.table.load_full();
        if table.generation != current.generation() {
            let mut groups: HashMap<String, Vec<(String, Remote)>> = HashMap::new();
            for service in current.services() {
                let Some(remote) = service.remote() else { continue };
                let target = UpstreamTarget {
                    namespace: remote.namespace.clone(),
                    name: remote.name.clone(),
                    port: remote.port,
                    ca_bundle: remote.ca_bundle.clone(),
                    insecure_skip_tls_verify: remote.insecure_skip_tls_verify,
                };
                let remote = Remote { upstream: self.outbound.upstream(&target), is_available: service.is_available() };
                groups.entry(service.group.clone()).or_default().push((service.version.clone(), remote));
            }
            // ORDER: the ways of the table before are held until those of this one are known, so that connections last.
            table = Arc::new(Table { generation: current.generation(), groups });
            self.table.store(table.clone());
        }
        let versions = table.groups.get(group)?;
        versions.iter().find(|(known, _)| known == version).map(|(_, remote)| remote.clone())
    }

    fn believed(&self) -> Arc<BelievedFields> {
        self.fields.0.load_full()
    }
}
