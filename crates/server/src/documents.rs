//! The discovery and OpenAPI documents of a server, with the built-in schemas and kinds that they share.
//!
//! The documents include the resources of aggregated servers and peers, which `http/pages/documentation.rs` merges.

use std::sync::{Arc, OnceLock};

use keelson_aggregator::{Aggregator, PeerServers};
use keelson_http::pages::{self, Documentation, OtherDocuments};
use keelson_meta::Release;
use keelson_openapi::{SharedDefinitions, VersionDescription};
use keelson_registry::Registry;

use crate::builtin;
use crate::fork::Inherited;

/// The other servers whose resources the documents include.
#[derive(Clone)]
pub(crate) struct OtherServers {
    /// The aggregated servers.
    pub(crate) aggregator: Arc<Aggregator>,
    /// The peers on the same store, if servers answer for each other.
    pub(crate) peers: Option<Arc<PeerServers>>,
}

/// The documents of this server, which has the API of the registry's release, and of others. A fork begins with those of
/// its origin. As upstream, `DeleteOptions` and `WatchEvent` list every version of every kind in the catalogue.
pub(crate) fn documentation(
    registry: &Registry,
    others: OtherServers,
    inherited: Option<&Inherited>,
) -> Arc<Documentation> {
    static NEWEST: OnceLock<Arc<SharedDefinitions>> = OnceLock::new();
    static OLDER: OnceLock<Arc<SharedDefinitions>> = OnceLock::new();
    let release = registry.config().release();
    let shared = if release == Release::NEWEST { &NEWEST } else { &OLDER };
    let definitions = || {
        let versions = move || VersionDescription::all(builtin::catalogue_of(release));
        SharedDefinitions::deferred(builtin::schemas(release), versions, release.git_version())
    };
    let documentation = Documentation::new(shared.get_or_init(definitions).clone(), others);
    Arc::new(match inherited {
        Some(inherited) => documentation.inheriting(&inherited.documents, &registry.surface()),
        None => documentation,
    })
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
