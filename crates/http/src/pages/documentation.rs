//! Discovery and OpenAPI documents, rendered again when the surface changes.
//!
//! The crates of the documents get descriptions, one for each group version. The rendering of a version is cached until
//! its resources change, so that one change among thousands renders one version. The server adds the documents of other
//! servers ([`OtherServers`]).

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use keelson_discovery::{DiscoveredResource, Documents, Freshness, PeerDocuments, SourceOrder, VersionSource};
use keelson_openapi::{
    Descriptions, ForeignDocument, ForeignPaths, ResourceDescription, SharedDefinitions, VersionDescription,
};
use keelson_registry::{KindVersion, ServedApis, ServedResource};
use keelson_resources::Text;
use keelson_supervision::outcome;
use parking_lot::Mutex;

use super::ServedDocuments;

/// The other servers whose resources the documents include.
pub trait OtherServers: Send + Sync {
    /// The generation of their newest documents. The number increases with each change.
    fn generation(&self) -> u64;

    /// Their documents of that generation or a newer one.
    fn described(&self) -> OtherDocuments;
}

/// The documents of other servers.
#[derive(Debug, Default)]
pub struct OtherDocuments {
    /// The generation of these documents.
    pub generation: u64,
    /// Their resources.
    pub discovery: Vec<Arc<keelson_discovery::Fragment>>,
    /// The OpenAPI documents of aggregated servers, and those of peers for resources that only peers serve.
    pub openapi: Vec<Arc<ForeignDocument>>,
    /// Their OpenAPI 2 documents.
    pub paths: Vec<Arc<ForeignPaths>>,
    /// The discovery documents of peers.
    pub peers: Arc<PeerDocuments>,
}

impl OtherDocuments {
    /// Returns true if there are no other servers.
    fn is_empty(&self) -> bool {
        let Self { generation: _, discovery, openapi, paths, peers } = self;
        discovery.is_empty() && openapi.is_empty() && paths.is_empty() && peers.versions.is_empty()
    }
}

/// No other servers.
impl OtherServers for () {
    fn generation(&self) -> u64 {
        0
    }

    fn described(&self) -> OtherDocuments {
        OtherDocuments::default()
    }
}

/// The documents of all served resources.
pub struct Documentation {
    shared: Arc<SharedDefinitions>,
    others: Box<dyn OtherServers>,
    /// The newest documents, with their generations.
    current: ArcSwapOption<Newest>,
    /// The renderings of each group version.
    known: Mutex<HashMap<(Text, Text), Version>>,
    /// Held by the request that renders documents.
    making: tokio::sync::Mutex<()>,
}

/// The newest documents.
struct Newest {
    of: Generations,
    /// True if they describe no other servers.
    are_own: bool,
    documents: Arc<ServedDocuments>,
}

/// The documents of a server, for the start of a fork.
pub struct InheritedDocuments {
    /// Its surface.
    apis: Arc<ServedApis>,
    /// The documents of this surface, if they describe no other servers.
    current: Option<Arc<ServedDocuments>>,
    known: HashMap<(Text, Text), Version>,
}

/// The generations of the surface and of the other servers that documents describe.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Generations {
    surface: u64,
    others: u64,
}

/// A version of a group, with its renderings.
#[derive(Clone)]
struct Version {
    resources: Vec<Arc<ServedResource>>,
    discovery: Arc<keelson_discovery::Fragment>,
    openapi: Arc<keelson_openapi::Fragment>,
}

impl Documentation {
    /// Starts without any rendering.
    pub fn new(shared: Arc<SharedDefinitions>, others: impl OtherServers + 'static) -> Self {
        Self {
            shared,
            others: Box::new(others),
            current: ArcSwapOption::empty(),
            known: Mutex::default(),
            making: tokio::sync::Mutex::default(),
        }
    }

    /// The documents of a surface of this server, for the start of a fork.
    pub fn inheritable(&self, apis: &Arc<ServedApis>) -> InheritedDocuments {
        let current = self.current.load();
        let current = current.as_deref().filter(|newest| newest.are_own && newest.of.surface == apis.generation());
        let current = current.map(|newest| newest.documents.clone());
        InheritedDocuments { apis: apis.clone(), current, known: self.known.lock().clone() }
    }

    /// Begins with the documents of another server, as far as they describe this surface, which was made from that
    /// server's.
    #[must_use]
    pub fn inheriting(self, inherited: &InheritedDocuments, surface: &ServedApis) -> Self {
        let InheritedDocuments { apis, current, known } = inherited;
        let own = |resource: &Arc<ServedResource>| {
            let (group, plural) = (&*resource.group, &*resource.plural);
            let is_known = apis.resource(group, plural).is_some_and(|known| Arc::ptr_eq(known, resource));
            surface.resource(group, plural).filter(|_| is_known).cloned()
        };
        let own = |(name, version): (&(Text, Text), &Version)| {
            let resources = version.resources.iter().map(own).collect::<Option<Vec<_>>>()?;
            Some((name.clone(), Version { resources, ..version.clone() }))
        };
        *self.known.lock() = known.iter().filter_map(own).collect();
        let is_whole = surface.resources().count() == apis.resources().count();
        if let Some(documents) = current.as_ref().filter(|_| is_whole) {
            let others = self.others.described();
            if others.is_empty() {
                let of = Generations { surface: surface.generation(), others: others.generation };
                self.current.store(Some(Arc::new(Newest { of, are_own: true, documents: documents.clone() })));
            }
        }
        self
    }

    /// The documents of this surface or a newer one, and of other servers.
    ///
    /// Cost: two atomic increments if nothing changed. Otherwise a comparison of each resource, and rendering of the
    /// changed versions outside of the runtime's threads, for which concurrent requests wait.
    pub async fn documents(self: Arc<Self>, surface: Arc<ServedApis>) -> Arc<ServedDocuments> {
        if let Some(documents) = self.newest(&surface) {
            return documents;
        }
        let _first = self.making.lock().await;
        if let Some(documents) = self.newest(&surface) {
            return documents;
        }
        let documentation = self.clone();
        outcome(keelson_supervision::spawn_blocking(move || documentation.make(&surface))).await
    }

    /// The newest documents, if nothing has changed since.
    fn newest(&self, surface: &ServedApis) -> Option<Arc<ServedDocuments>> {
        let current = self.current.load();
        let Newest { of, documents, .. } = &**current.as_ref()?;
        let is_new = of.surface >= surface.generation() && of.others >= self.others.generation();
        is_new.then(|| documents.clone())
    }

    fn make(&self, surface: &ServedApis) -> Arc<ServedDocuments> {
        let mut known = self.known.lock();
        // A cancelled request may have rendered them meanwhile.
        if let Some(documents) = self.newest(surface) {
            return documents;
        }
        let mut next = HashMap::new();
        for (name, resources) in versions(surface) {
            let kept = known.remove(&name).filter(|version| same(&version.resources, &resources));
            let version = kept.unwrap_or_else(|| Version::new(&name, resources));
            next.insert(name, version);
        }
        *known = next;
        let others = self.others.described();
        let of = Generations { surface: surface.generation(), others: others.generation };
        let are_own = others.is_empty();
        let local = known.values().map(|version| version.discovery.clone());
        let discovery: Vec<_> = local.chain(others.discovery).collect();
        let openapi: Vec<_> = known.values().map(|version| version.openapi.clone()).collect();
        let documents = Arc::new(ServedDocuments {
            of_all_servers: others.peers.merge(&discovery).map(|merged| Documents::assemble(&merged)),
            discovery: Documents::assemble(&discovery),
            openapi: Descriptions::assemble(&self.shared, &openapi).with_foreign(others.openapi, others.paths),
        });
        self.current.store(Some(Arc::new(Newest { of, are_own, documents: documents.clone() })));
        documents
    }
}

impl std::fmt::Debug for Documentation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Documentation").finish_non_exhaustive()
    }
}

/// The resources of each version of each group, by their plural names.
fn versions(surface: &ServedApis) -> HashMap<(Text, Text), Vec<Arc<ServedResource>>> {
    let mut versions: HashMap<(Text, Text), Vec<Arc<ServedResource>>> = HashMap::new();
    for resource in surface.resources() {
        for version in resource.versions().iter().filter(|version| !version.hidden) {
            versions.entry((resource.group.clone(), version.name.clone())).or_default().push(resource.clone());
        }
    }
    versions.values_mut().for_each(|resources| resources.sort_by(|a, b| a.plural.cmp(&b.plural)));
    versions
}

fn same(before: &[Arc<ServedResource>], after: &[Arc<ServedResource>]) -> bool {
    before.len() == after.len() && before.iter().zip(after).all(|(before, after)| Arc::ptr_eq(before, after))
}

impl Version {
    fn new((group, version): &(Text, Text), resources: Vec<Arc<ServedResource>>) -> Self {
        let served = || resources.iter().filter_map(|resource| Some((resource, resource.version(version)?)));
        let highest = |priority: fn(&ServedResource, &KindVersion) -> u32| {
            served().map(|(resource, version)| priority(resource, version)).max().unwrap_or(0)
        };
        let discovered = |(resource, version): (&Arc<ServedResource>, &Arc<KindVersion>)| {
            if !resource.is_builtin() {
                return DiscoveredResource::of_custom(resource, version, resource.refuses_new().is_none());
            }
            let stored_as =
                resource.storage_kind().filter(|kind| resource.default_storage_kind().as_ref() != Some(*kind));
            DiscoveredResource::new(resource, version, stored_as.map(|kind| kind.version.as_str()))
        };
        let builtin = served().all(|(resource, _)| resource.is_builtin());
        let discovery = keelson_discovery::Fragment::new(VersionSource {
            group: group.clone(),
            version: version.clone(),
            group_priority: highest(|resource, _| resource.group_priority()),
            version_priority: highest(|_, version| version.priority()),
            order: if builtin { SourceOrder::BuiltIn } else { SourceOrder::Custom },
            freshness: Freshness::Current,
            resources: served().map(discovered).collect(),
        });
        let described = |(resource, version): (&Arc<ServedResource>, &Arc<KindVersion>)| {
            if resource.is_builtin() {
                ResourceDescription::new(resource, version).returning_deleted(version.returns_deleted())
            } else {
                ResourceDescription::of_custom(resource, version, version.document())
            }
        };
        let openapi = keelson_openapi::Fragment::new(VersionDescription {
            group: group.to_string(),
            version: version.to_string(),
            resources: served().map(described).collect(),
        });
        Self { resources, discovery, openapi }
    }
}
