//! The documents of a server, with the built-in schemas and kinds that they share.
//!
//! They include the resources of aggregated servers and peers; `http/pages/documentation.rs` joins them.

use std::sync::Arc;

use keelson_aggregator::{Aggregator, PeerServers};
use keelson_http::pages::{self, Documentation, OtherDocuments};
use keelson_http::version::GIT_VERSION;
use keelson_openapi::{SharedDefinitions, VersionDescription};
use keelson_resources::Catalogue;
use keelson_schema::Schemas;

/// The servers beside this one whose resources are described.
#[derive(Clone)]
pub(crate) struct OtherServers {
    /// The aggregated ones.
    pub(crate) aggregator: Arc<Aggregator>,
    /// The peers on the same store, where servers answer for each other.
    pub(crate) peers: Option<Arc<PeerServers>>,
}

/// The documents of whatever is served here and by others. The definitions of all kinds come from these schemas, and the
/// catalogue has the kinds whose every version `DeleteOptions` and `WatchEvent` go by, as in the reference server.
pub(crate) fn documentation(catalogue: &Catalogue, schemas: &'static Schemas, others: OtherServers) -> Documentation {
    let shared = SharedDefinitions::new(schemas, &VersionDescription::all(catalogue), GIT_VERSION);
    Documentation::new(shared, others)
}

impl pages::OtherServers for OtherServers {
    /// The sum of both numbers goes up with each of them.
    fn generation(&self) -> u64 {
        self.aggregator.discovery().generation() + self.peers.as_ref().map_or(0, |peers| peers.generation())
    }

    fn described(&self) -> OtherDocuments {
        let discovered = self.aggregator.discovery();
        let of_peers = self.peers.as_ref().map(|peers| peers.described()).unwrap_or_default();
        OtherDocuments {
            generation: discovered.generation() + of_peers.generation,
            discovery: discovered.fragments().cloned().collect(),
            openapi: discovered.descriptions().cloned().chain(of_peers.openapi).collect(),
            paths: discovered.paths().cloned().chain(of_peers.paths).collect(),
            peers: of_peers.discovery,
        }
    }
}
