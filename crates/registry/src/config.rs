//! Settings of the generic verbs, as the operator sets them.
//!
//! Another crate parses the command line. Settings are plain values here, so that tests can change them. Names of
//! resources in settings are resolved against a catalogue that the caller passes.

mod inherent;
mod releases;
mod served;
mod service_ranges;

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use keelson_access::TokenSeal;
use keelson_meta::{FeatureGates, GroupResource, Release};
use keelson_query::Path;
use keelson_resources::{Catalogue, Resource, ResourceStorage, Text};

use crate::quota::LimitedResource;
pub use inherent::BuiltinStagePlugin;
pub use service_ranges::{AddressRange, Family, PortRange, ServiceRanges, Subrange};

/// Settings of a [`crate::Registry`].
#[derive(Clone, Debug)]
pub struct RegistryConfig {
    /// The feature gates, with the release of Kubernetes whose API the server has. [`RegistryConfig::emulate`] sets the
    /// release.
    pub gates: FeatureGates,
    /// True if lists are served in chunks: the feature gate `APIListChunking` of KEP-365. If false, `limit` and
    /// `continue` are ignored, and no response has a continue token.
    pub chunking: bool,
    /// Resources (`secrets`, `roles.rbac.authorization.k8s.io`) that are never chunked, because a continue token shows
    /// the name of an object.
    pub unchunked: HashSet<String>,
    /// The chunking of lists for callers who may not list the whole range of the URL.
    pub partial_rights: PartialRights,
    /// Seals continue tokens. `None`: a token shows the key at which the next chunk begins.
    pub token_seal: Option<Arc<TokenSeal>>,
    /// True if `limit` applies at `resourceVersion=0` even without a `resourceVersionMatch`.
    pub limit_at_any_version: bool,
    /// Resources that are stored in another version than their default, with that version. The last entry of a resource
    /// counts. [`RegistryConfig::store_as`] fills it.
    pub storage_versions: Vec<(GroupResource, Text)>,
    /// Built-in group versions that are not served. Objects stored in them stay readable. [`RegistryConfig::serve`]
    /// fills it.
    pub unserved: HashSet<(String, String)>,
    /// Group versions that are served although they are off by default. [`RegistryConfig::serve`] fills it.
    pub demanded: HashSet<(String, String)>,
    /// Switches of single resources (group, version, plural): true if the resource is served in that version. They
    /// override the switch of the version. [`RegistryConfig::serve`] fills it.
    pub single_resources: BTreeMap<(String, String, String), bool>,
    /// True if the StorageVersion API is served, which shows the storage version on each server and whether all servers
    /// agree: the feature gate `StorageVersionAPI` of KEP-2339.
    pub storage_version_api: bool,
    /// True if storage states (`migration.k8s.io/v1alpha1`) are served and maintained. They need the StorageVersion
    /// API.
    pub storage_states: bool,
    /// True if no object is written before a controller has published its storage version. Servers with the
    /// StorageVersion API have such a controller.
    pub publishes_encodings: bool,
    /// True if quotas are charged: the admission plugin `ResourceQuota`.
    pub quotas: bool,
    /// True if a create also creates its missing namespace: the admission plugin `NamespaceAutoProvision`.
    pub provides_namespaces: bool,
    /// Resources that may be used only in namespaces with a quota that covers them.
    pub limited_resources: Vec<LimitedResource>,
    /// The disabled admission plugins, among those that are built into the stages of a write.
    pub left_out: Vec<BuiltinStagePlugin>,
    /// The seconds for which a pod tolerates a node that is not ready, and one that is unreachable, unless it states
    /// others.
    pub toleration_seconds: [i64; 2],
    /// True if containers may be privileged.
    pub allow_privileged: bool,
    /// True if lists omit objects that cannot be read. If false, such a list fails.
    pub skip_unreadable: bool,
    /// The paths that are always indexed, by resource (`pods`, `deployments.apps`). Queries find objects by an index
    /// without a scan. [`RegistryConfig::index`] fills it.
    pub indexes: BTreeMap<String, Vec<Path>>,
    /// The least number of objects to scan for which a search builds an index of the searched values.
    pub search_from: usize,
    /// Limits on the work for one chunk.
    pub bounds: ListBounds,
    /// The ranges of service addresses and node ports. Servers on the same store must have the same ranges.
    pub service_ranges: ServiceRanges,
    /// The longest time that a read or a deletion waits for the store's newest revision before it answers 503. Stores
    /// wait for a write for the same time.
    pub store_wait: Duration,
    /// The longest time that a read waits for a revision that the cache has not reached, before it answers 504.
    pub revision_wait: Duration,
    /// The interval between bookmarks of a watch that requests them.
    pub bookmark_interval: Duration,
    /// The shortest duration of a watch without a requested timeout. The longest is twice that.
    pub min_watch_timeout: Duration,
}

/// The chunking of lists for callers who may list the selected objects, but not the whole range of the URL (KEP-365). A
/// continue token may show the name of an object that such a caller may not see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PartialRights {
    /// As for other callers: a token shows the last scanned key, selected or not.
    #[default]
    AsOthers,
    /// No chunking: the response has the whole list, whatever its limit.
    Whole,
    /// A token shows the next selected key. The server scans for that key, however far away it is.
    NextVisible,
}

impl FromStr for PartialRights {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "as-others" => Ok(Self::AsOthers),
            "none" => Ok(Self::Whole),
            "next-visible" => Ok(Self::NextVisible),
            _ => Err(format!("{name:?} is none of as-others, none and next-visible")),
        }
    }
}

/// Formats the setting as its flag accepts it.
impl fmt::Display for PartialRights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AsOthers => "as-others",
            Self::Whole => "none",
            Self::NextVisible => "next-visible",
        })
    }
}

/// A scan of fewer objects needs no index: it takes some milliseconds.
const SEARCH_FROM: usize = 1000;

/// Limits of one chunk.
#[derive(Clone, Copy, Debug)]
pub struct ListBounds {
    /// The largest number of entries that a list with a limit and a selector scans. It then returns the selected ones
    /// so far, with a token.
    pub scan: usize,
}

impl RegistryConfig {
    /// The release of Kubernetes whose API the server has.
    pub fn release(&self) -> Release {
        self.gates.release()
    }

    /// Sets the release, with its feature gates at their defaults.
    pub fn emulate(&mut self, release: Release) {
        self.gates = FeatureGates::for_release(release);
    }

    /// Adds the indexes of a setting such as `pods=spec.nodeName,status.phase`.
    ///
    /// # Errors
    /// A message about the part that cannot be parsed.
    pub fn index(&mut self, setting: &str) -> Result<(), String> {
        let (resource, paths) = setting.split_once('=').ok_or("RESOURCE=PATH,... is expected")?;
        let indexes = self.indexes.entry(resource.to_owned()).or_default();
        for path in paths.split(',') {
            let path = Path::parse("index", path).map_err(|error| error.to_string())?;
            if !path.is_single() {
                return Err(format!("{path} has many values, and an index one of each object"));
            }
            indexes.push(path);
        }
        Ok(())
    }

    /// Stores a resource in another version than its default: `horizontalpodautoscalers.autoscaling=v1`. Objects in
    /// other versions stay readable, and a change rewrites them. `kubernetes=1.34` stores every resource in a version
    /// that servers of that Kubernetes release can read. `catalogue` has the resources that settings may name.
    ///
    /// # Errors
    /// A message if the resource or its version does not exist.
    pub fn store_as(&mut self, catalogue: &Catalogue, setting: &str) -> Result<(), String> {
        if let Some(release) = setting.strip_prefix("kubernetes=") {
            self.storage_versions.extend(releases::readable_by(release, catalogue)?);
            return Ok(());
        }
        let form = || format!("{setting:?} is not of the form resource.group=version");
        let (name, version) = setting.split_once('=').ok_or_else(form)?;
        let (plural, group) = name.split_once('.').unwrap_or((name, ""));
        let resource = catalogue.resource(group, plural).ok_or(format!("there is no resource {name:?}"))?;
        match &resource.storage {
            // Objects of two groups must stay in the storage group, whose fields select them.
            ResourceStorage::Persisted { group: stored, .. } if stored == group => {}
            ResourceStorage::Persisted { .. } | ResourceStorage::Virtual => {
                return Err(format!("the form in which {name} are stored can't be chosen"));
            }
        }
        let Some(version) = resource.version(version) else {
            let known: Vec<&str> = resource.versions.iter().map(|version| &*version.name).collect();
            return Err(format!("{name} have no version {version:?}; known versions are {}", known.join(", ")));
        };
        self.storage_versions.push((resource.group_resource(), version.name.clone()));
        Ok(())
    }

    /// The configured storage version of a resource, if it is not the default.
    pub fn storage_version(&self, resource: &Resource) -> Option<&Text> {
        let is_known =
            |known: &GroupResource| (&*known.group, &*known.resource) == (&*resource.group, &*resource.plural);
        self.storage_versions.iter().rfind(|(known, _)| is_known(known)).map(|(_, version)| version)
    }
}

impl Default for RegistryConfig {
    fn default() -> Self {
        Self {
            gates: FeatureGates::default(),
            chunking: true,
            unchunked: HashSet::new(),
            partial_rights: PartialRights::default(),
            token_seal: None,
            limit_at_any_version: false,
            storage_versions: Vec::new(),
            unserved: HashSet::new(),
            demanded: HashSet::new(),
            single_resources: BTreeMap::new(),
            storage_version_api: true,
            storage_states: false,
            publishes_encodings: false,
            quotas: true,
            provides_namespaces: false,
            limited_resources: Vec::new(),
            left_out: Vec::new(),
            toleration_seconds: [300; 2],
            allow_privileged: true,
            skip_unreadable: false,
            indexes: BTreeMap::new(),
            search_from: SEARCH_FROM,
            bounds: ListBounds::default(),
            service_ranges: ServiceRanges::default(),
            store_wait: Duration::from_secs(10),
            revision_wait: Duration::from_secs(3),
            bookmark_interval: Duration::from_mins(1),
            min_watch_timeout: Duration::from_mins(30),
        }
    }
}

impl Default for ListBounds {
    /// 100,000 entries: about 10 ms of one core.
    fn default() -> Self {
        Self { scan: 100_000 }
    }
}
