//! Resolves owner references to the collection, namespace and name of the owner.
//!
//! A reference to an unserved kind, or to a kind of a server that does not answer, can't be resolved. Dependents of
//! such owners stay.

use std::sync::Arc;

use keelson_meta::GroupVersion;
use keelson_registry::{ServedApis, Target};

use super::elsewhere::{RemoteKnowledge, RemoteLookup};
use super::graph::{CollectionPlace, ObjectId};
use super::metadata::OwnerReference;

/// All served resources, and all objects of other servers.
#[derive(Clone, Copy)]
pub(super) struct OwnerLookup<'a> {
    pub(super) surface: &'a Arc<ServedApis>,
    pub(super) elsewhere: &'a RemoteKnowledge,
}

/// The collection, namespace and name of an object that may or may not exist.
#[derive(Clone, Copy)]
pub(super) struct Location<'a> {
    collection: CollectionPlace,
    namespace: Option<&'a str>,
    name: &'a str,
}

impl Location<'_> {
    /// Returns true if the object with this id is at this place.
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

/// The place of an owner: in the namespace of its dependent, or in none.
///
/// `None` when the kind is not served, or when the owner's kind has namespaces and the dependent has none. The
/// collector deletes no object for an owner that it can't look up.
pub(super) fn find_owner<'a>(
    world: OwnerLookup<'_>,
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

/// The collection of the kind that a reference names, and true if its objects have namespaces; `None` for an unknown
/// kind.
pub(super) fn kind_of(world: OwnerLookup<'_>, reference: &OwnerReference<'_>) -> Option<(CollectionPlace, bool)> {
    let (group, _) = GroupVersion::split(&reference.api_version)?;
    let served = world.surface.by_kind(group, &reference.kind);
    match world.elsewhere.place(reference, served.is_some()) {
        RemoteLookup::Kind(number, is_namespaced) => Some((CollectionPlace::Elsewhere(number), is_namespaced)),
        RemoteLookup::Unknown => None,
        RemoteLookup::NotTheirs => {
            let stored = served?.stored()?;
            Some((CollectionPlace::Here(stored.id), stored.is_namespaced()))
        }
    }
}

/// Returns true if the dependent has no namespace, but the kind of the owner has namespaces.
pub(super) fn is_out_of_reach(world: OwnerLookup<'_>, reference: &OwnerReference<'_>, dependent: &ObjectId) -> bool {
    dependent.namespace().is_none() && kind_of(world, reference).is_some_and(|(_, is_namespaced)| is_namespaced)
}

/// The target for an object stored here, in its storage version.
pub(super) fn target_of(surface: &Arc<ServedApis>, id: &ObjectId) -> Option<Target> {
    let CollectionPlace::Here(collection) = id.collection else { return None };
    let target = surface.stored_target(surface.collection(collection)?)?;
    Some(target.in_namespace(id.namespace()).named(id.name()))
}
