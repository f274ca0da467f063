//! A stored resource of which objects may be written anew: as what it is stored, and how much of it is stored otherwise.
//!
//! What is stale is counted by the cache, so nothing here reads the store.

use std::sync::Arc;

use keelson_meta::{GroupResource, GroupVersionKind};
use keelson_registry::{ServedResource, StoredCollection, Surface, Target};

use crate::storage_versions::entry::name_of;

/// A stored resource, as it is served now.
pub struct Subject {
    /// By which servers publish it.
    pub(super) resource: GroupResource,
    pub(super) stored: Arc<StoredCollection>,
    /// As which this server writes it.
    pub(super) kind: GroupVersionKind,
    /// All its objects, in that version.
    pub(super) target: Target,
}

impl Subject {
    /// A resource of a surface; `None` where it is not stored, or not served in any version.
    pub fn of(surface: &Arc<Surface>, served: &ServedResource) -> Option<Self> {
        let (stored, kind) = (served.stored()?, served.storage_kind()?);
        let target = surface.stored_target(stored)?;
        let resource = GroupResource { group: kind.group.clone(), resource: served.group_resource().resource };
        Some(Self { resource, stored: stored.clone(), kind: kind.clone(), target })
    }

    /// By which servers publish it.
    pub fn resource(&self) -> &GroupResource {
        &self.resource
    }

    /// How many objects can be read and are to be written anew.
    pub fn stale(&self) -> usize {
        self.stored.count_stale(&self.kind).saturating_sub(self.unreadable())
    }

    /// How many objects can't be read.
    pub fn unreadable(&self) -> usize {
        self.stored.cached.count_unreadable("")
    }

    /// Whether anything is stored otherwise than it would be written now, also what can't be read, as far as the cache has come.
    pub fn has_stale(&self) -> bool {
        self.is_removed() || self.stored.count_stale(&self.kind) > 0
    }

    /// Whether the collection was made anew since, as when its definition changes.
    pub fn is_removed(&self) -> bool {
        self.stored.cached.is_removed()
    }

    /// The name of what servers publish of it.
    pub(super) fn version_name(&self) -> String {
        name_of(&self.resource)
    }

    /// The version in which this server writes it.
    pub fn version(&self) -> String {
        self.kind.group_version().to_string()
    }

    /// The name of what defines it, where something does.
    pub(super) fn definition(&self) -> Option<String> {
        let GroupResource { group, resource } = &self.resource;
        (!self.target.resource.is_builtin()).then(|| format!("{resource}.{group}"))
    }
}
