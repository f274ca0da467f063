//! Requests to a peer: its discovery, and its OpenAPI documents of versions that this server does not serve.
//!
//! The requests for discovery and OpenAPI are repeated every few seconds, and a peer with unchanged documents only
//! answers 304. A peer may send false data, hang or stream without end. Time and size are therefore limited, and a
//! response beyond a limit is ignored.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use http::header::{ETAG, HeaderMap, HeaderValue, IF_NONE_MATCH};
use keelson_discovery::{Freshness, ServedVersion, served_versions};
use keelson_openapi::{ForeignDocument, ForeignPaths};
use keelson_outbound::{ByteBudget, ByteReservation, PEER_PROXIED, RestClient};
use keelson_supervision::warn_repeated;

use crate::aggregator::Aggregator;
use crate::api_service;
use crate::discovery::{DOCUMENT_BYTES, is_aggregated, read};
use crate::openapi::{self, INDEX, PublishedDocument, V2};
use crate::requester::SERVER;

/// The accepted document: the server's own resources, without those of its peers.
const ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;profile=nopeer";
/// The discovery paths.
const PATHS: [&str; 2] = ["/api", "/apis"];
/// The most built-in resources of a server: many times those of Kubernetes.
const RESOURCES: usize = 2_000;

/// A peer's OpenAPI documents of versions that this server does not serve.
#[derive(Clone, Default)]
pub(super) struct OpenApi {
    /// OpenAPI 3 documents, by paths such as `apis/apps/v1` and those of their groups.
    documents: HashMap<String, PublishedDocument>,
    /// The parts of its OpenAPI 2 document about these versions.
    parts: PublishedParts,
}

/// Parts of an OpenAPI 2 document, by the paths of versions.
#[derive(Clone, Default)]
struct PublishedParts {
    tag: Option<HeaderValue>,
    parts: BTreeMap<String, Arc<ForeignPaths>>,
    _reservation: Option<Arc<ByteReservation>>,
}

impl OpenApi {
    /// The OpenAPI 3 documents.
    pub(super) fn documents(&self) -> impl Iterator<Item = &Arc<ForeignDocument>> {
        self.documents.values().map(PublishedDocument::document)
    }

    /// The OpenAPI 2 parts.
    pub(super) fn parts(&self) -> impl Iterator<Item = &Arc<ForeignPaths>> {
        self.parts.parts.values()
    }
}

/// One discovery document of a server, without resources from the store.
#[derive(Clone, Default)]
pub(super) struct PeerDocument {
    tag: Option<HeaderValue>,
    pub(super) versions: Vec<Arc<ServedVersion>>,
    _reservation: Option<Arc<ByteReservation>>,
}

/// A peer with the context of a request.
pub(super) struct PeerRequest<'a> {
    pub(super) peer: &'a RestClient,
    pub(super) aggregator: &'a Aggregator,
    /// The budget for all kept documents.
    pub(super) kept: &'a ByteBudget,
}

impl PeerDocument {
    /// Removes the resources that this server also gets from the store. This server's own copy of them is newer.
    pub(super) fn leave_out_stored(&mut self, aggregator: &Aggregator) {
        let (surface, services) = (aggregator.registry().surface(), aggregator.current());
        self.versions.retain(|shown| {
            let is_custom = surface
                .resources_of(&shown.group)
                .any(|resource| !resource.is_builtin() && resource.version(&shown.version).is_some());
            !is_custom && services.remote(&shown.group, &shown.version).is_none()
        });
    }
}

impl PeerRequest<'_> {
    /// Fetches the two discovery documents: that of the core group, and that of all other groups.
    ///
    /// # Errors
    /// The reason of a failure.
    pub(super) async fn documents(&self, known: &[PeerDocument; 2]) -> Result<[PeerDocument; 2], String> {
        let ([core, groups], [core_path, groups_path]) = (known, PATHS);
        Ok([self.document(core_path, core).await?, self.document(groups_path, groups).await?])
    }

    async fn document(&self, path: &str, known: &PeerDocument) -> Result<PeerDocument, String> {
        let mut headers = HeaderMap::from_iter([(PEER_PROXIED, HeaderValue::from_static("true"))]);
        if let Some(tag) = known.tag.clone() {
            headers.insert(IF_NONE_MATCH, tag);
        }
        let answer = SERVER.get(self.peer, path, Some(ACCEPT), headers, DOCUMENT_BYTES).await;
        let answer = answer.map_err(|error| error.to_string())?;
        match answer.status {
            304 if known.tag.is_some() => return Ok(known.clone()),
            200 if is_aggregated(&answer.content_type) => {}
            status => return Err(format!("the response for {path} is {status}, not a discovery document")),
        }
        let tag = answer.headers.get(ETAG).cloned();
        let reservation = self.kept.hold(answer.body.len())?;
        let versions = read(answer, |value, _| served_versions(value)).await?;
        let versions = versions.into_iter().map(Arc::new).collect();
        let mut document = PeerDocument { tag, versions, _reservation: Some(Arc::new(reservation)) };
        document.leave_out_stored(self.aggregator);
        if document.versions.iter().map(|version| version.resources.len()).sum::<usize>() > RESOURCES {
            return Err(format!("it has more than {RESOURCES} resources"));
        }
        Ok(document)
    }

    /// Fetches its OpenAPI documents of versions that this server does not serve, one by one. After a failure, keeps
    /// the known documents and stops.
    pub(super) async fn openapi(&self, served: &[PeerDocument; 2], known: &OpenApi) -> OpenApi {
        let surface = self.aggregator.registry().surface();
        let served_here = |group: &str| {
            let versions = surface.resources_of(group).flat_map(|resource| resource.versions());
            let served = versions.filter(|known| !known.hidden);
            served.flat_map(|known| paths(group, known.name.as_ref())).collect::<BTreeSet<_>>()
        };
        let versions = served.iter().flat_map(|document| &document.versions);
        let current: Vec<_> = versions.filter(|version| version.freshness == Freshness::Current).collect();
        let unknown = |version: &&Arc<ServedVersion>| &paths_of(version) - &served_here(&version.group);
        let paths: BTreeSet<String> = current.iter().flat_map(unknown).collect();
        let of_versions = current.iter().map(|version| path_of_version(&version.group, &version.version));
        let of_versions: BTreeSet<String> = of_versions.filter(|path| paths.contains(path)).collect();
        let mut found = known.clone();
        found.documents.retain(|path, _| paths.contains(path));
        if of_versions.is_empty() {
            found.parts = PublishedParts::default();
        }
        if !paths.is_empty()
            && let Err(why) = self.published(paths, &mut found.documents).await
        {
            warn_repeated!(""; why, "a peer does not answer OpenAPI requests");
        }
        if !of_versions.is_empty() {
            match self.parts(of_versions, &known.parts).await {
                Ok(parts) => found.parts = parts,
                Err(why) => warn_repeated!(""; why, "a peer does not answer OpenAPI 2 requests"),
            }
        }
        found
    }

    /// Fetches the parts of its OpenAPI 2 document about these versions.
    async fn parts(&self, wanted: BTreeSet<String>, known: &PublishedParts) -> Result<PublishedParts, String> {
        let mut headers = HeaderMap::new();
        if let Some(tag) = known.tag.clone().filter(|_| known.parts.keys().eq(&wanted)) {
            headers.insert(IF_NONE_MATCH, tag);
        }
        let answer = SERVER.get(self.peer, V2, Some("application/json"), headers, openapi::DOCUMENT_BYTES).await;
        let answer = answer.map_err(|error| error.to_string())?;
        match answer.status {
            304 => return Ok(known.clone()),
            200 => {}
            status => return Err(format!("the answer of {V2:?} is {status}")),
        }
        let tag = answer.headers.get(ETAG).cloned();
        let reservation = self.kept.hold(answer.body.len())?;
        let names: Vec<String> = wanted.iter().cloned().collect();
        let parts = read(answer, move |document, _| ForeignPaths::of_document(document, &names)).await?;
        let parts: BTreeMap<_, _> = wanted.into_iter().zip(parts).collect();
        // Equal content keeps the old value, so that no document is built again.
        if parts == known.parts {
            return Ok(PublishedParts { tag, ..known.clone() });
        }
        Ok(PublishedParts { tag, parts, _reservation: Some(Arc::new(reservation)) })
    }

    async fn published(
        &self,
        paths: BTreeSet<String>,
        found: &mut HashMap<String, PublishedDocument>,
    ) -> Result<(), String> {
        let answer = SERVER.get(self.peer, INDEX, None, HeaderMap::new(), openapi::DOCUMENT_BYTES).await;
        let answer = answer.map_err(|error| error.to_string())?;
        if answer.status != 200 {
            return Err(format!("the answer of {INDEX:?} is {}", answer.status));
        }
        let index = read(answer, |index, _| Ok(index.clone())).await?;
        for path in paths {
            let known = found.get(&path);
            match openapi::of_version((self.peer, SERVER), &path, &index, known, self.kept).await? {
                Some(document) => found.insert(path, document),
                None => found.remove(&path),
            };
        }
        Ok(())
    }
}

/// The paths of the OpenAPI documents of a version and its group.
pub(super) fn paths_of(version: &ServedVersion) -> BTreeSet<String> {
    paths(&version.group, &version.version)
}

fn paths(group: &str, version: &str) -> BTreeSet<String> {
    let of_group = if group.is_empty() { "api".to_owned() } else { format!("apis/{group}") };
    BTreeSet::from([path_of_version(group, version), of_group])
}

fn path_of_version(group: &str, version: &str) -> String {
    api_service::version_path(group, version).split_off(1)
}
