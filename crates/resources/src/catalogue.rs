//! The catalogue of the built-in resources: all groups, and lookup tables.
//!
//! The catalogue is built once from the declarations, for composing a server. Requests use the surface instead, which
//! includes other resources.

use std::sync::Arc;

use hashbrown::HashMap;

use crate::collection::Collection;
use crate::group::Group;
use crate::resource::{Resource, ServedVersion, Text};

/// All built-in groups with their resources: those that a server serves at its start.
#[derive(Debug)]
pub struct Catalogue {
    groups: Vec<Arc<Group>>,
    by_plural: HashMap<Text, HashMap<Text, Arc<Resource>>>,
    collections: Vec<Arc<Collection>>,
}

impl Catalogue {
    /// The catalogue of these groups, in the order of discovery.
    pub fn new(groups: Vec<Arc<Group>>) -> Self {
        let mut by_plural: HashMap<Text, HashMap<Text, Arc<Resource>>> = HashMap::new();
        for resource in groups.iter().flat_map(|group| &group.resources) {
            by_plural.entry(resource.group.clone()).or_default().insert(resource.plural.clone(), resource.clone());
        }
        let resources = groups.iter().flat_map(|group| &group.resources);
        let collections = Collection::all(resources).into_iter().map(Arc::new).collect();
        Self { groups, by_plural, collections }
    }

    /// All groups in the order of discovery, the core group first.
    pub fn groups(&self) -> &[Arc<Group>] {
        &self.groups
    }

    /// A group by name. Empty for the core group.
    pub fn group(&self, name: &str) -> Option<&Arc<Group>> {
        self.groups.iter().find(|group| group.name == name)
    }

    /// All resources, by group and plural name.
    pub fn resources(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.groups.iter().flat_map(|group| &group.resources)
    }

    /// The resource of a path's group, version and plural name.
    pub fn lookup(&self, group: &str, version: &str, plural: &str) -> Option<(&Arc<Resource>, &Arc<ServedVersion>)> {
        let resource = self.resource(group, plural)?;
        Some((resource, resource.version(version)?))
    }

    /// A resource in any version.
    pub fn resource(&self, group: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.by_plural.get(group)?.get(plural)
    }

    /// The resource with objects of this kind.
    pub fn by_kind(&self, group: &str, kind: &str) -> Option<&Arc<Resource>> {
        self.group(group)?.resources.iter().find(|resource| resource.kind == kind)
    }

    /// The stored collections: each prefix once, in the order of its first resource.
    pub fn collections(&self) -> &[Arc<Collection>] {
        &self.collections
    }

    /// The collection of a resource's objects. `None` if they are not stored.
    pub fn collection_of(&self, resource: &Resource) -> Option<&Arc<Collection>> {
        let prefix = resource.storage_prefix()?;
        self.collections.iter().find(|collection| collection.prefix == *prefix)
    }
}
