//! From a reference to the place where its owner must be.

use keelson_meta::GroupVersion;
use keelson_registry::Target;
use keelson_resources::Catalogue;

use super::graph::ObjectId;
use super::metadata::OwnerReference;

/// Where the owner is if it exists: an owner is in the namespace of its dependent, or in none.
///
/// `None` when that can't be said, because the kind is not served here, or is in a namespace and the dependent is not. An
/// object is never deleted for an owner that can't be looked for.
pub(super) fn find_owner(reference: &OwnerReference, dependent: &ObjectId) -> Option<ObjectId> {
    let catalogue = Catalogue::builtin();
    let GroupVersion { group, .. } = GroupVersion::parse(&reference.api_version)?;
    let collection = catalogue.collection_of(catalogue.by_kind(&group, &reference.kind)?)?;
    let key = match (collection.namespaced, dependent.namespace()) {
        (true, Some(namespace)) => format!("{namespace}/{}", reference.name),
        (true, None) => return None,
        (false, _) => reference.name.clone(),
    };
    Some(ObjectId { collection: collection.id, key: key.into() })
}

/// The URL of an object, in the version that it is stored in.
pub(super) fn target_of(id: &ObjectId) -> Option<Target> {
    let collection = Catalogue::builtin().collections().get(usize::from(id.collection.0))?;
    let resource = *collection.resources.first()?;
    let version = resource.version(&resource.storage_gvk()?.version)?;
    let namespace = id.namespace().map(str::to_owned);
    Some(Target { resource, version, subresource: None, namespace, name: Some(id.name().to_owned()) })
}
