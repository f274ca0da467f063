//! A stored resource, the kind in which this server stores it, and the number of objects stored otherwise.
//!
//! The cache counts stale objects, so nothing here reads the store.

use std::sync::Arc;

use keelson_meta::{GroupResource, GroupVersionKind};
use keelson_registry::{ServedApis, ServedResource, StoredCollection, Target};

use crate::storage_versions::entry::name_of;

/// A stored resource, as it is served now.
pub struct Subject {
    /// The resource under whose name servers publish it.
    pub(super) resource: GroupResource,
    pub(super) stored: Arc<StoredCollection>,
    /// The kind that this server writes.
    pub(super) kind: GroupVersionKind,
    /// The target of all its objects in that version.
    pub(super) target: Target,
}

impl Subject {
    /// A resource of a surface; `None` where it is not stored or has no served version.
    pub fn new(surface: &Arc<ServedApis>, served: &ServedResource) -> Option<Self> {
        let (stored, kind) = (served.stored()?, served.storage_kind()?);
        let target = surface.stored_target(stored)?;
        let resource = GroupResource { group: kind.group.clone(), resource: served.group_resource().resource };
        Some(Self { resource, stored: stored.clone(), kind: kind.clone(), target })
    }

    /// The resource under whose name servers publish it.
    pub fn resource(&self) -> &GroupResource {
        &self.resource
    }

    /// The number of readable objects to rewrite.
    pub fn stale(&self) -> usize {
        self.stored.count_stale(&self.kind).saturating_sub(self.unreadable())
    }

    /// The number of unreadable objects.
    pub fn unreadable(&self) -> usize {
        self.stored.cached.count_unreadable("")
    }

    /// Returns true if the cache has objects in another stored form, unreadable ones included.
    pub fn has_stale(&self) -> bool {
        self.is_removed() || self.stored.count_stale(&self.kind) > 0
    }

    /// Returns true if the collection was replaced since, for example after its definition changed.
    pub fn is_removed(&self) -> bool {
        self.stored.cached.is_removed()
    }

    /// The name of its storage version object.
    pub(super) fn version_name(&self) -> String {
        name_of(&self.resource)
    }

    /// The version that this server writes.
    pub fn version(&self) -> String {
        self.kind.group_version().to_string()
    }

    /// The name of its definition, where it has one.
    pub(super) fn definition(&self) -> Option<String> {
        let GroupResource { group, resource } = &self.resource;
        (!self.target.resource.is_builtin()).then(|| format!("{resource}.{group}"))
    }
}
