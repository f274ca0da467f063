//! The surface: everything that this server serves, as one immutable value with a generation. A change replaces it as a
//! whole.
//!
//! A request takes one [`ServedApis`] and keeps it to its end, so that it never sees half of a change. The type
//! [`ApiRegistrations`] has the current surface, and builds the next one when resources change. The built-in resources are its
//! first contribution. A resource has its declaration, its collection in the cache, and for each version its schema,
//! rules and printer.
//!
//! Invariant: this module knows no objects and no HTTP.

mod contribution;
mod definition;
mod served;
mod surfaces;
mod view;

use std::sync::Arc;

use hashbrown::HashMap;
use keelson_meta::{ApiError, SharedMap};
use keelson_resources::{Resource, Text};

pub use contribution::ResourceRegistration;
pub use definition::DefinedBy;
pub(crate) use definition::refused;
pub use served::{CollectionId, KindVersion, ServedResource, StoredCollection, SubresourceKind, VersionChange};
pub use surfaces::{ApiRegistrations, RegistrationError};
pub use view::{ConversionPath, View};

use crate::target::Target;

/// The served resources of one generation.
#[derive(Clone, Default)]
pub struct ServedApis {
    generation: u64,
    groups: SharedMap<Text, Arc<ServedGroup>>,
    collections: SharedMap<Text, Arc<StoredCollection>>,
    by_id: SharedMap<CollectionId, Arc<StoredCollection>>,
}

/// The resources of one API group.
#[derive(Clone, Default)]
struct ServedGroup {
    by_plural: HashMap<Text, Arc<ServedResource>>,
    by_kind: HashMap<Text, Arc<ServedResource>>,
}

impl ServedApis {
    /// A surface of these resources without their objects, for tests of layers above the verbs.
    pub fn new(contributions: &[ResourceRegistration]) -> Arc<Self> {
        let mut surface = Self::default();
        contributions.iter().for_each(|contribution| surface.insert(Arc::new(contribution.served())));
        Arc::new(surface)
    }

    /// The generation, which increases with each change.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The groups with served resources, in no order.
    pub fn groups(&self) -> impl Iterator<Item = &str> {
        self.groups.keys().map(|name| &**name)
    }

    /// Returns true if a built-in resource of the group is served.
    pub fn has_builtin_group(&self, group: &str) -> bool {
        let is_served = |resource: &Arc<ServedResource>| resource.versions().iter().any(|version| !version.hidden);
        group.is_empty() || self.resources_of(group).any(|resource| resource.is_builtin() && is_served(resource))
    }

    /// Returns true for a version of a group with served built-in resources.
    pub fn has_builtin_version(&self, group: &str, version: &str) -> bool {
        let is_served = |resource: &Arc<ServedResource>| resource.version(version).is_some_and(|found| !found.hidden);
        self.resources_of(group).any(|resource| resource.is_builtin() && is_served(resource))
    }

    /// All resources, in no order.
    pub fn resources(&self) -> impl Iterator<Item = &Arc<ServedResource>> {
        self.groups.values().flat_map(|group| group.by_plural.values())
    }

    /// The resources of a group, in no order.
    pub fn resources_of(&self, group: &str) -> impl Iterator<Item = &Arc<ServedResource>> {
        self.groups.get(group).into_iter().flat_map(|group| group.by_plural.values())
    }

    /// The groups that differ between two surfaces, including groups that only one of them has.
    ///
    /// Cost: a comparison of each changed group with a few others, without their resources.
    pub fn changed_groups<'s>(&'s self, before: &'s Self) -> impl Iterator<Item = &'s str> {
        self.groups.changed(&before.groups, Arc::ptr_eq).map(|name| &**name)
    }

    /// The resource of a group and plural name.
    pub fn resource(&self, group: &str, plural: &str) -> Option<&Arc<ServedResource>> {
        self.groups.get(group)?.by_plural.get(plural)
    }

    /// The resource with objects of a kind.
    pub fn by_kind(&self, group: &str, kind: &str) -> Option<&Arc<ServedResource>> {
        self.groups.get(group)?.by_kind.get(kind)
    }

    /// The stored collections, in no order: each prefix once.
    pub fn collections(&self) -> impl Iterator<Item = &Arc<StoredCollection>> {
        self.collections.values()
    }

    /// The collection with this number; `None` if it is no longer served.
    pub fn collection(&self, id: CollectionId) -> Option<&Arc<StoredCollection>> {
        self.by_id.get(&id)
    }

    /// The target of a resource in a version, without a namespace or a name.
    pub fn lookup(self: &Arc<Self>, group: &str, version: &str, plural: &str) -> Option<Target> {
        let resource = self.resource(group, plural)?;
        Some(self.target_of(resource, resource.version(version).filter(|version| !version.hidden)?))
    }

    /// As [`lookup`](Self::lookup), for the server's own use, with hidden versions.
    pub fn lookup_stored(self: &Arc<Self>, group: &str, version: &str, plural: &str) -> Option<Target> {
        let resource = self.resource(group, plural)?;
        Some(self.target_of(resource, resource.version(version)?))
    }

    /// The target of a resource that is always served, in its preferred version.
    ///
    /// # Errors
    /// 500 if the resource is not served.
    pub fn target(self: &Arc<Self>, group: &str, plural: &str) -> Result<Target, ApiError> {
        let missing = || ApiError::Internal(format!("no resource {plural:?} is served in the group {group:?}"));
        let resource = self.resource(group, plural).ok_or_else(missing)?;
        Ok(self.target_of(resource, resource.versions().first().ok_or_else(missing)?))
    }

    /// The target of a collection's objects in their stored version, or else in the preferred one.
    pub fn stored_target(self: &Arc<Self>, collection: &StoredCollection) -> Option<Target> {
        let first = collection.layout.resources.first()?;
        let resource = self.resource(&first.group, &first.plural)?;
        let stored = resource.storage_kind().and_then(|kind| resource.version(&kind.version));
        Some(self.target_of(resource, stored.or_else(|| resource.versions().first())?))
    }

    pub(crate) fn target_of(self: &Arc<Self>, resource: &Arc<ServedResource>, version: &Arc<KindVersion>) -> Target {
        Target {
            surface: self.clone(),
            resource: resource.clone(),
            version: version.clone(),
            subresource: None,
            namespace: None,
            name: None,
        }
    }

    fn insert(&mut self, served: Arc<ServedResource>) {
        let name = served.group.clone();
        let mut group = self.groups.remove(&name).unwrap_or_default();
        let resources = Arc::make_mut(&mut group);
        resources.by_kind.insert(served.kind.clone(), served.clone());
        resources.by_plural.insert(served.plural.clone(), served);
        self.groups.insert(name, group);
    }

    fn remove(&mut self, resource: &Resource) -> Option<Arc<ServedResource>> {
        self.resource(&resource.group, &resource.plural)?;
        let mut group = self.groups.remove(&resource.group)?;
        let served = Arc::make_mut(&mut group);
        let removed = served.by_plural.remove(&resource.plural)?;
        served.by_kind.remove(&removed.kind);
        if !served.by_plural.is_empty() {
            self.groups.insert(resource.group.clone(), group);
        }
        if let Some(collection) = removed.stored() {
            self.collections.remove(&collection.layout.prefix);
            self.by_id.remove(&collection.id);
        }
        Some(removed)
    }
}

impl std::fmt::Debug for ServedApis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Surface").field("generation", &self.generation).field("groups", &self.groups.len()).finish()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use keelson_meta::Release;
    use keelson_resources::declare;

    use super::*;

    /// A resource of the core group for tests.
    pub(crate) fn target_of(plural: &'static str, complete: impl Fn(KindVersion) -> KindVersion) -> Target {
        let resource = declare::namespaced("", plural, plural, "Thing").resource(Release::DEFAULT);
        let resource = Arc::new(resource.expect("every release has it"));
        let contribution =
            ResourceRegistration::from_shared(resource).built_in().each_version(|_, version| complete(version));
        ServedApis::new(&[contribution]).target("", plural).expect("it is served")
    }
}
