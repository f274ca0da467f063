//! The documents that describe what this server serves: discovery and OpenAPI, put together anew when the surface changes.
//!
//! This is where the documents meet the surface and the schemas. The crates that make them know only descriptions, one for each
//! version of a group; what was made of a version is kept as long as its resources stay as they are, so that one change among
//! thousands renders one version.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use keelson_aggregator::Aggregator;
use keelson_discovery::{DiscoveredResource, Documents, Freshness, SourceOrder, VersionSource};
use keelson_http::pages::ServedDocuments;
use keelson_http::version::GIT_VERSION;
use keelson_openapi::{Descriptions, ResourceDescription, Shared, VersionDescription};
use keelson_registry::{KindVersion, ServedResource, Surface};
use keelson_resources::{Catalogue, Text};
use keelson_schema::Schemas;
use parking_lot::Mutex;

/// The documents of whatever is served.
pub(crate) struct Documentation {
    shared: Arc<Shared>,
    aggregator: Arc<Aggregator>,
    /// The documents that were asked for last, with what they are of.
    current: ArcSwapOption<(Generations, Arc<ServedDocuments>)>,
    /// What was made of each version of a group.
    known: Mutex<HashMap<(Text, Text), Version>>,
}

/// What documents are of: a surface, and what aggregated servers serve.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Generations {
    surface: u64,
    aggregated: u64,
}

/// A version of a group, with what was made of it.
#[derive(Clone)]
struct Version {
    resources: Vec<Arc<ServedResource>>,
    discovery: Arc<keelson_discovery::Fragment>,
    openapi: Arc<keelson_openapi::Fragment>,
}

impl Documentation {
    /// Nothing is rendered yet. The definitions of all kinds come from these schemas, and the catalogue has the kinds whose every
    /// version `DeleteOptions` and `WatchEvent` go by, as in the reference server.
    pub(crate) fn new(catalogue: &Catalogue, schemas: &'static Schemas, aggregator: Arc<Aggregator>) -> Self {
        let shared = Shared::new(schemas, &VersionDescription::all(catalogue), GIT_VERSION);
        Self { shared, aggregator, current: ArcSwapOption::empty(), known: Mutex::default() }
    }

    /// The documents of a surface, or of a newer one, and of what aggregated servers are known to serve.
    ///
    /// Cost: two atomic increments where nothing has changed; else some comparisons for each resource, and the rendering of the
    /// versions that did change.
    pub(crate) fn of(&self, surface: &Surface) -> Arc<ServedDocuments> {
        let aggregated = self.aggregator.discovered();
        let wanted = Generations { surface: surface.generation(), aggregated: aggregated.generation() };
        let newest = || {
            let current = self.current.load();
            let (of, documents) = &**current.as_ref()?;
            let is_new = of.surface >= wanted.surface && of.aggregated >= wanted.aggregated;
            is_new.then(|| documents.clone())
        };
        if let Some(documents) = newest() {
            return documents;
        }
        let mut known = self.known.lock();
        // Somebody may have made them meanwhile.
        if let Some(documents) = newest() {
            return documents;
        }
        let mut next = HashMap::new();
        for (name, resources) in versions(surface) {
            let kept = known.remove(&name).filter(|version| same(&version.resources, &resources));
            let version = kept.unwrap_or_else(|| Version::new(&name, resources));
            next.insert(name, version);
        }
        *known = next;
        let local = known.values().map(|version| version.discovery.clone());
        let discovery: Vec<_> = local.chain(aggregated.fragments().cloned()).collect();
        let openapi: Vec<_> = known.values().map(|version| version.openapi.clone()).collect();
        let documents = Arc::new(ServedDocuments {
            discovery: Documents::assemble(&discovery),
            openapi: Descriptions::assemble(&self.shared, &openapi).with_foreign(aggregated.descriptions().cloned()),
        });
        self.current.store(Some(Arc::new((wanted, documents.clone()))));
        documents
    }
}

/// The resources of each version of each group, by their plural names.
fn versions(surface: &Surface) -> HashMap<(Text, Text), Vec<Arc<ServedResource>>> {
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
            DiscoveredResource::of(resource, version, stored_as.map(|kind| kind.version.as_str()))
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
                ResourceDescription::of(resource, version)
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
