//! The place of an owner: where the object that a reference names must be, among what is served.
//!
//! A reference to a kind that is not served says nothing about its owner, so that dependents of such owners stay.

use std::sync::Arc;

use keelson_meta::GroupVersion;
use keelson_registry::{CollectionId, Surface, Target};

use super::graph::ObjectId;
use super::metadata::OwnerReference;

/// Where an object must be.
#[derive(Clone, Copy)]
pub(super) struct Location<'a> {
    collection: CollectionId,
    namespace: Option<&'a str>,
    name: &'a str,
}

impl Location<'_> {
    /// Whether the object would be this one.
    pub(super) fn is_of(self, id: &ObjectId) -> bool {
        self.collection == id.collection && self.name == id.name() && self.namespace == id.namespace()
    }

    pub(super) fn id(self) -> ObjectId {
        let key = match self.namespace {
            Some(namespace) => format!("{namespace}/{}", self.name).into(),
            None => self.name.into(),
        };
        ObjectId { collection: self.collection, key }
    }
}

/// Where the owner is if it exists: an owner is in the namespace of its dependent, or in none.
///
/// `None` when that can't be said, because the kind is not served here, or is in a namespace and the dependent is not. An
/// object is never deleted for an owner that can't be looked for.
pub(super) fn find_owner<'a>(
    surface: &Surface,
    reference: &'a OwnerReference<'_>,
    dependent: &'a ObjectId,
) -> Option<Location<'a>> {
    let (group, _) = GroupVersion::split(&reference.api_version)?;
    let collection = surface.by_kind(group, &reference.kind)?.stored()?;
    let namespace = match (collection.is_namespaced(), dependent.namespace()) {
        (true, None) => return None,
        (true, namespace) => namespace,
        (false, _) => None,
    };
    Some(Location { collection: collection.id, namespace, name: &reference.name })
}

/// The URL of an object, in the version that it is stored in.
pub(super) fn target_of(surface: &Arc<Surface>, id: &ObjectId) -> Option<Target> {
    let target = surface.stored_target(surface.collection(id.collection)?)?;
    Some(target.in_namespace(id.namespace()).named(id.name()))
}
