//! What discovery is told: for each group version, who serves it and with which resources.

use std::borrow::Cow;
use std::sync::Arc;

use keelson_resources::{
    Catalogue, Group, GroupVersionEntry, Resource, ResponseKind, ServedVersion, Subresource, Verb, storage_version_hash,
};

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
    /// The server behind it did not answer; they are what it last said.
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
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
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

/// The version that a resource is stored in where that is not the one that the catalogue names.
type StoredAs<'s, 'v> = &'s dyn Fn(&Resource) -> Option<&'v str>;

/// The sources of the built-in resources: one for each group version.
pub(crate) fn builtin(catalogue: &Catalogue, stored_as: StoredAs<'_, '_>) -> Vec<Arc<VersionSource>> {
    catalogue.groups().iter().flat_map(|group| versions_of(group, stored_as)).collect()
}

fn versions_of(group: &Group, stored_as: StoredAs<'_, '_>) -> Vec<Arc<VersionSource>> {
    let source = |entry: &GroupVersionEntry| {
        Arc::new(VersionSource {
            group: group.name.clone(),
            version: entry.name.clone(),
            group_priority: group.priority,
            version_priority: entry.priority,
            order: SourceOrder::BuiltIn,
            freshness: Freshness::Current,
            resources: group
                .served_in(&entry.name)
                .map(|(resource, version)| discovered(resource, version, stored_as(resource)))
                .collect(),
        })
    };
    group.versions.iter().map(source).collect()
}

fn discovered(resource: &Resource, version: &ServedVersion, stored_as: Option<&str>) -> DiscoveredResource {
    let told = stored_as.map(|version| storage_version_hash(&resource.group, version, &resource.kind));
    DiscoveredResource {
        plural: resource.plural.clone(),
        singular: resource.singular.clone(),
        kind: DiscoveredKind { kind: resource.kind.clone(), ..Default::default() },
        namespaced: resource.is_namespaced(),
        verbs: verbs(&version.verbs),
        short_names: resource.short_names.clone(),
        categories: resource.categories.clone(),
        storage_version_hash: told.or_else(|| resource.storage_version_hash()),
        subresources: version.subresources.iter().map(|subresource| part(resource, subresource)).collect(),
    }
}

fn part(parent: &Resource, subresource: &Subresource) -> DiscoveredSubresource {
    let kind = match &subresource.response {
        ResponseKind::Parent => DiscoveredKind { kind: parent.kind.clone(), ..Default::default() },
        ResponseKind::Sibling(kind) => DiscoveredKind { kind: kind.clone(), ..Default::default() },
        ResponseKind::Foreign { group, version, kind } => {
            DiscoveredKind { group: group.clone(), version: version.clone(), kind: kind.clone() }
        }
    };
    DiscoveredSubresource { name: subresource.name.clone(), kind, verbs: verbs(&subresource.verbs) }
}

fn verbs(verbs: &[Verb]) -> Vec<Text> {
    verbs.iter().map(|verb| verb.as_str().into()).collect()
}
