//! The input of discovery: for each group version, who serves it and with which resources.
//!
//! The values are owned, so that built-in, custom and aggregated resources are described alike; what knows resources of this server
//! in their own form turns them into these with [`DiscoveredResource::of`].

use std::borrow::Cow;
use std::sync::Arc;

use keelson_resources::{
    Catalogue, GroupVersionEntry, Resource, ResourceStorage, ResponseKind, ServedVersion, Subresource, Verb,
    storage_version_hash,
};

use crate::fragment::Fragment;

/// The verbs of a custom resource, in the order in which they are shown.
const CUSTOM_VERBS: [&str; 8] = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];
/// Those of them that make or change objects.
const CHANGING_VERBS: [&str; 3] = ["patch", "create", "update"];

/// The scope of what lives in namespaces.
const NAMESPACED: &str = "Namespaced";

/// A text that is usually part of the program and sometimes comes from a custom or aggregated API.
pub type Text = Cow<'static, str>;

/// One version of a group as one source serves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionSource {
    /// The group, empty for the core group.
    pub group: Text,
    /// The version.
    pub version: Text,
    /// The group's place among groups, higher first; the highest of its versions counts.
    pub group_priority: u32,
    /// The version's place in its group, higher first.
    pub version_priority: u32,
    /// Which source prevails when several serve the same version of a group.
    pub order: SourceOrder,
    /// Whether `resources` is known to be what is served now.
    pub freshness: Freshness,
    /// The resources, in the order in which they are shown.
    pub resources: Vec<DiscoveredResource>,
}

/// Kinds of sources; the smaller prevails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SourceOrder {
    /// Another server that registered the version.
    Aggregated,
    /// This server.
    BuiltIn,
    /// Custom resources.
    Custom,
}

/// Whether a version's resources are known to be what is served now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// They are.
    Current,
    /// They are not, since the server behind the version does not answer. None are shown then.
    Stale,
}

/// A resource as discovery shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveredResource {
    /// The plural name.
    pub plural: Text,
    /// The singular name.
    pub singular: Text,
    /// The kind of its objects.
    pub kind: DiscoveredKind,
    /// Where its objects live: `Namespaced` or `Cluster`, or whatever else an aggregated server says.
    pub scope: Text,
    /// What can be done with it, in the order in which it is shown.
    pub verbs: Vec<Text>,
    /// Abbreviations.
    pub short_names: Vec<Text>,
    /// Groups of resources it belongs to.
    pub categories: Vec<Text>,
    /// The hash of the storage version; `None` when it is not stored here.
    pub storage_version_hash: Option<String>,
    /// Its subresources, in the order in which they are shown.
    pub subresources: Vec<DiscoveredSubresource>,
}

/// A subresource as discovery shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveredSubresource {
    /// The last segment of its path.
    pub name: Text,
    /// The kind that it takes and gives.
    pub kind: DiscoveredKind,
    /// Kinds that it takes besides.
    pub accepted: Vec<DiscoveredKind>,
    /// What can be done with it.
    pub verbs: Vec<Text>,
}

/// A kind. Group and version are empty when they are those of the path, as upstream has it for built-in resources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiscoveredKind {
    /// The group, empty when it is the path's.
    pub group: Text,
    /// The version, empty when it is the path's.
    pub version: Text,
    /// The kind.
    pub kind: Text,
}

impl DiscoveredResource {
    /// Whether both are shown alike in the aggregated form, which does not tell in which version objects are stored.
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

    /// Whether its objects live in namespaces.
    pub fn is_namespaced(&self) -> bool {
        self.scope == NAMESPACED
    }

    /// A resource of this server in one of its versions. `stored_as` is the version that it is stored in where that is not the one
    /// that the resource names itself.
    pub fn of(resource: &Resource, version: &ServedVersion, stored_as: Option<&str>) -> Self {
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
    /// The same of a custom resource, as upstream shows those: with verbs in an order of their own, and kinds that name their group and
    /// their version. It shows the verbs that it has; one that takes no new objects shows none that makes or changes any.
    pub fn of_custom(resource: &Resource, version: &ServedVersion, takes_new: bool) -> Self {
        let own = |kind: DiscoveredKind| match kind {
            DiscoveredKind { group, kind, .. } if group.is_empty() => {
                DiscoveredKind { group: text(&resource.group), version: text(&version.name), kind }
            }
            foreign => foreign,
        };
        let plain = Self::of(resource, version, None);
        let shown = |verb: &&&str| {
            plain.verbs.iter().any(|known| *known == ***verb) && (takes_new || !CHANGING_VERBS.contains(verb))
        };
        let verbs = CUSTOM_VERBS.iter().filter(shown).map(|verb| Text::Borrowed(verb)).collect();
        // As upstream has it, nobody is told of a stored version that is not served.
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

/// The fragments of a catalogue, one for each version of a group that is wanted: for tests, since a server describes what its surface
/// serves.
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
                resources: served.map(|(resource, served)| DiscoveredResource::of(resource, served, None)).collect(),
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

/// Where objects live, as it is said.
pub(crate) const fn scope(namespaced: bool) -> Text {
    Text::Borrowed(if namespaced { NAMESPACED } else { "Cluster" })
}

fn texts(verbs: &[Verb]) -> Vec<Text> {
    verbs.iter().map(|verb| verb.as_str().into()).collect()
}

fn text(text: impl AsRef<str>) -> Text {
    Text::Owned(text.as_ref().to_owned())
}
