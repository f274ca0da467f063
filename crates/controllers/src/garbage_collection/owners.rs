//! The place of an owner: where the object that a reference names must be, among what is served.
//!
//! A reference to a kind that is not served, or that another server has which does not say so, says nothing about its owner, so that
//! dependents of such owners stay.

use std::sync::Arc;

use keelson_meta::GroupVersion;
use keelson_registry::{Surface, Target};

use super::elsewhere::{Elsewhere, PlaceElsewhere};
use super::graph::{CollectionPlace, ObjectId};
use super::metadata::OwnerReference;

/// All that may have objects: what is served here, and other servers.
#[derive(Clone, Copy)]
pub(super) struct World<'a> {
    pub(super) surface: &'a Arc<Surface>,
    pub(super) elsewhere: &'a Elsewhere,
}

/// Where an object must be.
#[derive(Clone, Copy)]
pub(super) struct Location<'a> {
    collection: CollectionPlace,
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
    world: World<'_>,
    reference: &'a OwnerReference<'_>,
    dependent: &'a ObjectId,
) -> Option<Location<'a>> {
    let (collection, is_namespaced) = kind_of(world, reference)?;
    let namespace = match (is_namespaced, dependent.namespace()) {
        (true, None) => return None,
        (true, namespace) => namespace,
        (false, _) => None,
    };
    Some(Location { collection, namespace, name: &reference.name })
}

/// The collection of the kind that a reference names, and whether its objects are in namespaces; `None` where it is not known.
pub(super) fn kind_of(world: World<'_>, reference: &OwnerReference<'_>) -> Option<(CollectionPlace, bool)> {
    let (group, _) = GroupVersion::split(&reference.api_version)?;
    let served = world.surface.by_kind(group, &reference.kind);
    match world.elsewhere.place(reference, served.is_some()) {
        PlaceElsewhere::Kind(number, is_namespaced) => Some((CollectionPlace::Elsewhere(number), is_namespaced)),
        PlaceElsewhere::Unknown => None,
        PlaceElsewhere::NotTheirs => {
            let stored = served?.stored()?;
            Some((CollectionPlace::Here(stored.id), stored.is_namespaced()))
        }
    }
}

/// True for a reference that leads nowhere: the kind of the owner is in namespaces, the dependent is in none.
pub(super) fn is_out_of_reach(world: World<'_>, reference: &OwnerReference<'_>, dependent: &ObjectId) -> bool {
    dependent.namespace().is_none() && kind_of(world, reference).is_some_and(|(_, is_namespaced)| is_namespaced)
}

/// The URL of an object that is stored here, in the version that it is stored in.
pub(super) fn target_of(surface: &Arc<Surface>, id: &ObjectId) -> Option<Target> {
    let CollectionPlace::Here(collection) = id.collection else { return None };
    let target = surface.stored_target(surface.collection(collection)?)?;
    Some(target.in_namespace(id.namespace()).named(id.name()))
}
