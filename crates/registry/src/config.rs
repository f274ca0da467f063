//! Settings of the generic verbs, as the operator gave them.
//!
//! They are read from the command line above, and are values here, so that tests change what they need. Names of resources in
//! them are resolved against a catalogue that is handed in.

use std::collections::HashSet;
use std::time::Duration;

use keelson_meta::GroupResource;
use keelson_resources::{Catalogue, Resource, StorageKind, Text};

use crate::allocation::ServiceRanges;

/// Settings of a [`crate::Registry`].
#[derive(Clone, Debug)]
pub struct RegistryConfig {
    /// Whether lists are cut into chunks at all: the feature gate `APIListChunking` of KEP-365. Off, `limit` and
    /// `continue` are ignored and no token is ever given out.
    pub chunking: bool,
    /// Resources (`secrets`, `roles.rbac.authorization.k8s.io`) that are never chunked, because a token shows the name
    /// of an object.
    pub unchunked: HashSet<String>,
    /// Whether `limit` is honoured at `resourceVersion=0` also when no `resourceVersionMatch` is stated.
    pub limit_at_any_version: bool,
    /// The resources that are stored in another version than the usual one, and in which; of several settings the last
    /// counts. [`RegistryConfig::store_as`] fills it.
    pub storage_versions: Vec<(GroupResource, Text)>,
    /// Whether lists leave out what can't be read, rather than fail.
    pub skip_unreadable: bool,
    /// How much work one chunk may be.
    pub bounds: ListBounds,
    /// What services are given addresses and node ports from. Servers that share a store share these.
    pub service_ranges: ServiceRanges,
    /// How long a read waits for a revision that has not been seen yet before it answers 504.
    pub revision_wait: Duration,
    /// How often a watch that asked for bookmarks gets one.
    pub bookmark_interval: Duration,
    /// The shortest time a watch lasts when the client states none; the longest is twice that.
    pub min_watch_timeout: Duration,
}

/// Bounds of one chunk.
#[derive(Clone, Copy, Debug)]
pub struct ListBounds {
    /// How many entries a limited, selected list looks at before it returns what it has found, with a token.
    pub scan: usize,
}

impl RegistryConfig {
    /// Has a resource stored in another version than usual: `horizontalpodautoscalers.autoscaling=v1`. Objects that are
    /// stored in another version are read as before, and rewritten when they change. The catalogue is that of the resources
    /// which settings may name.
    ///
    /// # Errors
    /// Says what is wrong when there is no such resource, or it has no such version.
    pub fn store_as(&mut self, catalogue: &Catalogue, setting: &str) -> Result<(), String> {
        let form = || format!("{setting:?} is not of the form resource.group=version");
        let (name, version) = setting.split_once('=').ok_or_else(form)?;
        let (plural, group) = name.split_once('.').unwrap_or((name, ""));
        let resource = catalogue.resource(group, plural).ok_or(format!("there is no resource {name:?}"))?;
        match &resource.storage {
            // What is shared by two groups has to stay in the form by whose fields it is selected.
            StorageKind::Persisted { group: stored, .. } if stored == group => {}
            StorageKind::Persisted { .. } | StorageKind::Virtual => {
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
            limit_at_any_version: false,
            storage_versions: Vec::new(),
            skip_unreadable: false,
            bounds: ListBounds::default(),
            service_ranges: ServiceRanges::default(),
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
