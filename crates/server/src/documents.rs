//! The discovery and OpenAPI documents of a server, with the built-in schemas and kinds that they share.
//!
//! They include the resources of aggregated servers and peers, which `http/pages/documentation.rs` merges.

use std::sync::{Arc, OnceLock};

use keelson_aggregator::{Aggregator, PeerServers};
use keelson_http::pages::{self, Documentation, OtherDocuments};
use keelson_http::version::GIT_VERSION;
use keelson_openapi::{SharedDefinitions, VersionDescription};
use keelson_resources::Catalogue;
use keelson_schema::Schemas;

/// The definitions of the built-in kinds. All servers of a process share them, with the renderings that they keep.
static SHARED: OnceLock<Arc<SharedDefinitions>> = OnceLock::new();

/// The other servers whose resources the documents include.
#[derive(Clone)]
pub(crate) struct OtherServers {
    /// The aggregated servers.
    pub(crate) aggregator: Arc<Aggregator>,
    /// The peers on the same store, if servers answer for each other.
    pub(crate) peers: Option<Arc<PeerServers>>,
}

/// The documents of this server and of others. The definitions of all kinds come from these schemas. As upstream,
/// `DeleteOptions` and `WatchEvent` list every version of every kind in the catalogue.
pub(crate) fn documentation(
    catalogue: &'static Catalogue,
    schemas: &'static Schemas,
    others: OtherServers,
) -> Documentation {
    // The catalogue and the schemas are the only ones of the process.
    let shared =
        SHARED.get_or_init(|| SharedDefinitions::new(schemas, &VersionDescription::all(catalogue), GIT_VERSION));
    Documentation::new(shared.clone(), others)
}

impl pages::OtherServers for OtherServers {
    /// The sum, since it increases with each of the two generations.
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
