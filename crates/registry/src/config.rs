//! Settings of the generic verbs, as the operator gave them.
//!
//! They are read from the command line above, and are values here, so that tests change what they need. Names of resources in
//! them are resolved against a catalogue that is handed in.

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
use keelson_meta::GroupResource;
use keelson_query::Path;
use keelson_resources::{Catalogue, Resource, ResourceStorage, Text};

use crate::quota::LimitedResource;
pub use inherent::InherentPlugin;
pub use service_ranges::{AddressRange, Family, PortRange, ServiceRanges, Subrange};

/// Settings of a [`crate::Registry`].
#[derive(Clone, Debug)]
pub struct RegistryConfig {
    /// Whether lists are cut into chunks at all: the feature gate `APIListChunking` of KEP-365. Off, `limit` and
    /// `continue` are ignored and no token is ever given out.
    pub chunking: bool,
    /// Resources (`secrets`, `roles.rbac.authorization.k8s.io`) that are never chunked, because a token shows the name
    /// of an object.
    pub unchunked: HashSet<String>,
    /// How lists are cut for callers who may not list all of their range.
    pub partial_rights: PartialRights,
    /// What seals continue tokens; without one they show the key that comes next.
    pub token_seal: Option<Arc<TokenSeal>>,
    /// Whether `limit` is honoured at `resourceVersion=0` also when no `resourceVersionMatch` is stated.
    pub limit_at_any_version: bool,
    /// The resources that are stored in another version than the usual one, and in which; of several settings the last
    /// counts. [`RegistryConfig::store_as`] fills it.
    pub storage_versions: Vec<(GroupResource, Text)>,
    /// The built-in versions of groups that no client finds; what is stored of them is known all the same.
    /// [`RegistryConfig::serve`] fills it.
    pub unserved: HashSet<(String, String)>,
    /// Those that clients find though they are served only on demand. [`RegistryConfig::serve`] fills it.
    pub demanded: HashSet<(String, String)>,
    /// True for single resources (group, version, plural) that clients find, false for those that they do not, whatever holds for the
    /// version. [`RegistryConfig::serve`] fills it.
    pub single_resources: BTreeMap<(String, String, String), bool>,
    /// Whether it is served what each server stores and whether all agree: the feature gate `StorageVersionAPI` of KEP-2339.
    pub storage_version_api: bool,
    /// Whether the states of what is stored are served and kept (`migration.k8s.io/v1alpha1`), where storage versions are.
    pub storage_states: bool,
    /// Whether nothing is written before a controller has published in which version it is stored. Where that API is served, servers
    /// have such a controller.
    pub publishes_encodings: bool,
    /// Whether quotas are charged: the admission plugin `ResourceQuota`.
    pub quotas: bool,
    /// Whether a missing namespace is made for the first object in it: the admission plugin `NamespaceAutoProvision`.
    pub provides_namespaces: bool,
    /// The resources that may be used only where a quota covers them.
    pub limited_resources: Vec<LimitedResource>,
    /// The plugins of admission that are switched off, of those that are a part of how objects are written.
    pub left_out: Vec<InherentPlugin>,
    /// Whether lists leave out what can't be read, rather than fail.
    pub skip_unreadable: bool,
    /// The paths by which queries find the objects of a resource (`pods`, `deployments.apps`) without a look at all of them, from
    /// the first one on. [`RegistryConfig::index`] fills it.
    pub indexes: BTreeMap<String, Vec<Path>>,
    /// From how many objects on that a search would look into an index of what is searched is made for it.
    pub search_from: usize,
    /// How much work one chunk may be.
    pub bounds: ListBounds,
    /// What services are given addresses and node ports from. Servers that share a store share these.
    pub service_ranges: ServiceRanges,
    /// The longest time that a read or a deletion waits for the store's newest revision before it answers 503. Stores wait as long for
    /// writes.
    pub store_wait: Duration,
    /// How long a read waits for a revision that has not been seen yet before it answers 504.
    pub revision_wait: Duration,
    /// How often a watch that asked for bookmarks gets one.
    pub bookmark_interval: Duration,
    /// The shortest time a watch lasts when the client states none; the longest is twice that.
    pub min_watch_timeout: Duration,
}

/// How a list is cut into chunks for a caller who may list what it selects, but not all of the range of its URL (KEP-365): a token may
/// show the name of an object that the caller may not see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PartialRights {
    /// As for others: a token shows the last key that was looked at, selected or not.
    #[default]
    AsOthers,
    /// Not at all: the list is answered whole, whatever its limit.
    Whole,
    /// A token shows the next key that is selected. So it is looked for, however far away it is.
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

/// The name of the setting, as the flag takes it.
impl fmt::Display for PartialRights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AsOthers => "as-others",
            Self::Whole => "none",
            Self::NextVisible => "next-visible",
        })
    }
}

/// A look into fewer objects needs no index: it takes some milliseconds.
const SEARCH_FROM: usize = 1000;

/// Bounds of one chunk.
#[derive(Clone, Copy, Debug)]
pub struct ListBounds {
    /// How many entries a limited, selected list looks at before it returns what it has found, with a token.
    pub scan: usize,
}

impl RegistryConfig {
    /// Reads a setting such as `pods=spec.nodeName,status.phase`.
    ///
    /// # Errors
    /// What of it can't be read.
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

    /// Has a resource stored in another version than usual: `horizontalpodautoscalers.autoscaling=v1`. Objects that are
    /// stored in another version are read as before, and rewritten when they change. The catalogue is that of the resources
    /// which settings may name. `kubernetes=1.34` has all resources stored as servers of that release of Kubernetes can read them.
    ///
    /// # Errors
    /// Says what is wrong when there is no such resource, or it has no such version.
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
            // What is shared by two groups has to stay in the form by whose fields it is selected.
            ResourceStorage::Persisted { group: stored, .. } if stored == group => {}
            ResourceStorage::Persisted { .. } | ResourceStorage::Virtual => {
                return Err(format!("the form in which {name} are stored can't be chosen"));
            }
        }
        let Some(version) = resource.version(version) else {
            let known: Vec<&str> = resource.versions.iter().map(|version| &*version.name).collect();
            return Err(format!("{name} have no version {version:?}; there is: {}", known.join(", ")));
        };
        self.storage_versions.push((resource.group_resource(), version.name.clone()));
        Ok(())
    }

    /// The version in which a resource is stored, where that is not the usual one.
    pub fn storage_version(&self, resource: &Resource) -> Option<&Text> {
        let is_known =
            |known: &GroupResource| (&*known.group, &*known.resource) == (&*resource.group, &*resource.plural);
        self.storage_versions.iter().rfind(|(known, _)| is_known(known)).map(|(_, version)| version)
    }
}

impl Default for RegistryConfig {
    fn default() -> Self {
        Self {
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
