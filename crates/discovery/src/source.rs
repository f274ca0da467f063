//! The input of discovery: the source and resources of each group version.
//!
//! Values are owned, so that built-in, custom and aggregated resources have one form. [`DiscoveredResource::new`]
//! converts resources of this server.

use std::borrow::Cow;
use std::sync::Arc;

use keelson_resources::{
    Catalogue, GroupVersionEntry, Resource, ResourceStorage, ResponseKind, ServedVersion, Subresource, Verb,
    storage_version_hash,
};

use crate::fragment::Fragment;

/// The verbs of a custom resource, in displayed order.
const CUSTOM_VERBS: [&str; 8] = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];
/// The verbs that create or change objects.
const CHANGING_VERBS: [&str; 3] = ["patch", "create", "update"];

/// The scope of namespaced objects.
const NAMESPACED: &str = "Namespaced";

/// A string, usually a constant of the program, and owned for custom and aggregated APIs.
pub type Text = Cow<'static, str>;

/// One version of a group from one source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionSource {
    /// The group. Empty for the core group.
    pub group: Text,
    /// The version.
    pub version: Text,
    /// The group's priority, higher first. The highest value among its versions counts.
    pub group_priority: u32,
    /// The version's priority in its group, higher first.
    pub version_priority: u32,
    /// The precedence among sources that serve the same version.
    pub order: SourceOrder,
    /// The freshness of `resources`.
    pub freshness: Freshness,
    /// The resources, in displayed order.
    pub resources: Vec<DiscoveredResource>,
}

/// Kinds of sources, in order of precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SourceOrder {
    /// Another server that registered the version.
    Aggregated,
    /// This server.
    BuiltIn,
    /// Custom resources.
    Custom,
}

/// The freshness of a version's resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// They are current.
    Current,
    /// The resources are unknown, since the server of the version does not respond. The document shows none.
    Stale,
}

/// A resource in discovery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveredResource {
    /// The plural name.
    pub plural: Text,
    /// The singular name.
    pub singular: Text,
    /// The kind of its objects.
    pub kind: DiscoveredKind,
    /// The scope of its objects: `Namespaced` or `Cluster`, or another value from an aggregated server.
    pub scope: Text,
    /// Its verbs, in displayed order.
    pub verbs: Vec<Text>,
    /// Abbreviations.
    pub short_names: Vec<Text>,
    /// Its categories.
    pub categories: Vec<Text>,
    /// The hash of the storage version. `None` if objects are not stored here.
    pub storage_version_hash: Option<String>,
    /// Its subresources, in displayed order.
    pub subresources: Vec<DiscoveredSubresource>,
}

/// A subresource in discovery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveredSubresource {
    /// The last segment of its path.
    pub name: Text,
    /// The kind of its requests and responses.
    pub kind: DiscoveredKind,
    /// Additional kinds of requests.
    pub accepted: Vec<DiscoveredKind>,
    /// Its verbs.
    pub verbs: Vec<Text>,
}

/// A kind. Group and version are empty if they equal those of the path, as in upstream's built-in resources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiscoveredKind {
    /// The group. Empty if it equals the path's.
    pub group: Text,
    /// The version. Empty if it equals the path's.
    pub version: Text,
    /// The kind.
    pub kind: Text,
}

impl DiscoveredResource {
    /// Returns true if both have the same aggregated form, which contains no storage version.
    pub(crate) fn is_shown_alike(&self, other: &Self) -> bool {
        let Self {
            plural,
            singular,
            kind,
            scope,
            verbs,
            short_names,
            categories,
            storage_version_hash: _,
            subresources,
        } = self;
        (plural, singular, kind, scope) == (&other.plural, &other.singular, &other.kind, &other.scope)
            && (verbs, short_names, categories) == (&other.verbs, &other.short_names, &other.categories)
            && *subresources == other.subresources
    }

    /// Returns true if its objects are namespaced.
    pub fn is_namespaced(&self) -> bool {
        self.scope == NAMESPACED
    }

    /// A resource of this server in one of its versions. `stored_as` overrides the resource's storage version.
    pub fn new(resource: &Resource, version: &ServedVersion, stored_as: Option<&str>) -> Self {
        let Resource { group, plural, singular, kind, .. } = resource;
        let ServedVersion { verbs, subresources, .. } = version;
        let told = stored_as.map(|version| storage_version_hash(group, version, kind));
        Self {
            plural: text(plural),
            singular: text(singular),
            kind: DiscoveredKind { kind: text(kind), ..Default::default() },
            scope: scope(resource.is_namespaced()),
            verbs: texts(verbs),
            short_names: resource.short_names.iter().map(text).collect(),
            categories: resource.categories.iter().map(text).collect(),
            storage_version_hash: told.or_else(|| resource.storage_version_hash()),
            subresources: subresources.iter().map(|subresource| part(resource, subresource)).collect(),
        }
    }
}

impl DiscoveredResource {
    /// A custom resource as upstream lists it: with its own order of verbs, and kinds with group and version. Without
    /// `takes_new`, verbs that create or change objects are omitted.
    pub fn of_custom(resource: &Resource, version: &ServedVersion, takes_new: bool) -> Self {
        let own = |kind: DiscoveredKind| match kind {
            DiscoveredKind { group, kind, .. } if group.is_empty() => {
                DiscoveredKind { group: text(&resource.group), version: text(&version.name), kind }
            }
            foreign => foreign,
        };
        let plain = Self::new(resource, version, None);
        let shown = |verb: &&&str| {
            plain.verbs.iter().any(|known| *known == ***verb) && (takes_new || !CHANGING_VERBS.contains(verb))
        };
        let verbs = CUSTOM_VERBS.iter().filter(shown).map(|verb| Text::Borrowed(verb)).collect();
        // As upstream, a storage version that is not served is hidden.
        let is_served = |stored: &Text| resource.versions.iter().any(|known| known.name == *stored && !known.hidden);
        let told = matches!(&resource.storage, ResourceStorage::Persisted { version, .. } if is_served(version));
        Self {
            kind: own(plain.kind),
            storage_version_hash: plain.storage_version_hash.filter(|_| told),
            verbs,
            subresources: plain
                .subresources
                .into_iter()
                .map(|part| DiscoveredSubresource { kind: own(part.kind), ..part })
                .collect(),
            ..plain
        }
    }
}

/// The fragments of a catalogue for tests, one for each wanted group version. Servers describe their surface instead.
pub fn fragments(catalogue: &Catalogue, wanted: impl Fn(&str, &str) -> bool) -> Vec<Arc<Fragment>> {
    let mut fragments = Vec::new();
    for group in catalogue.groups() {
        for version in group.versions.iter().filter(|version| wanted(&group.name, &version.name)) {
            let GroupVersionEntry { name, .. } = version;
            let served = group.known_in(name);
            fragments.push(Fragment::new(VersionSource {
                group: Text::Owned(group.name.to_string()),
                version: text(name),
                group_priority: group.priority,
                version_priority: version.priority,
                order: SourceOrder::BuiltIn,
                freshness: Freshness::Current,
                resources: served.map(|(resource, served)| DiscoveredResource::new(resource, served, None)).collect(),
            }));
        }
    }
    fragments
}

fn part(parent: &Resource, subresource: &Subresource) -> DiscoveredSubresource {
    let (Resource { kind: of_parent, .. }, Subresource { name, verbs, response, .. }) = (parent, subresource);
    let kind = match response {
        ResponseKind::Parent => DiscoveredKind { kind: text(of_parent), ..Default::default() },
        ResponseKind::Sibling(kind) => DiscoveredKind { kind: text(kind), ..Default::default() },
        ResponseKind::Foreign { group, version, kind } => {
            DiscoveredKind { group: text(group), version: text(version), kind: text(kind) }
        }
    };
    DiscoveredSubresource { name: text(name), kind, accepted: Vec::new(), verbs: texts(verbs) }
}

/// The scope in discovery.
pub(crate) const fn scope(namespaced: bool) -> Text {
    Text::Borrowed(if namespaced { NAMESPACED } else { "Cluster" })
}

fn texts(verbs: &[Verb]) -> Vec<Text> {
    verbs.iter().map(|verb| verb.as_str().into()).collect()
}

fn text(text: impl AsRef<str>) -> Text {
    Text::Owned(text.as_ref().to_owned())
}
