//! The discovery and OpenAPI documents of a server, with the built-in schemas and kinds that they share.
//!
//! The documents include the resources of aggregated servers and peers, which `http/pages/documentation.rs` merges.

use std::sync::{Arc, OnceLock};

use keelson_aggregator::{Aggregator, PeerServers};
use keelson_http::pages::{self, Documentation, OtherDocuments};
use keelson_meta::Release;
use keelson_openapi::{SharedDefinitions, VersionDescription};

use crate::builtin;

/// The other servers whose resources the documents include.
#[derive(Clone)]
pub(crate) struct OtherServers {
    /// The aggregated servers.
    pub(crate) aggregator: Arc<Aggregator>,
    /// The peers on the same store, if servers answer for each other.
    pub(crate) peers: Option<Arc<PeerServers>>,
}

/// The documents of this server, which has the API of a release, and of others. As upstream, `DeleteOptions` and
/// `WatchEvent` list every version of every kind in the catalogue.
pub(crate) fn documentation(release: Release, others: OtherServers) -> Documentation {
    static NEWEST: OnceLock<Arc<SharedDefinitions>> = OnceLock::new();
    static OLDER: OnceLock<Arc<SharedDefinitions>> = OnceLock::new();
    let shared = if release == Release::NEWEST { &NEWEST } else { &OLDER };
    let definitions = || {
        let versions = VersionDescription::all(builtin::catalogue_of(release));
        SharedDefinitions::new(builtin::schemas(release), &versions, release.git_version())
    };
    Documentation::new(shared.get_or_init(definitions).clone(), others)
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
