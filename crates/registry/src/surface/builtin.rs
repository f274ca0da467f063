//! The built-in resources as the first contribution to the surface: the one place that reads the built-in catalogue, the built-in
//! schemas and the tables of printers, conversions and deprecations, and that knows resources by name.

use std::iter::repeat;
use std::sync::Arc;

use keelson_cache::{CollectionSpec, Complete};
use keelson_codec::FieldPath;
use keelson_conversion::{Conversion, View};
use keelson_defaults::Defaults;
use keelson_meta::{ApiError, GroupVersionKind};
use keelson_resources::{
    Catalogue, Collection, Group, Resource, ServedVersion, Subresource, SubresourceHandler, deprecation,
};
use keelson_schema::Schema;
use keelson_tables::Printer;
use keelson_validation::Rules;

use super::contribution::Contribution;
use super::served::{KindVersion, Taken};
use crate::complete::Completion;
use crate::config::RegistryConfig;
use crate::kinds::{closed_fields, metadata_rules_of, strategy_of};

/// The API group that a feature gate switches off.
const STORAGE_VERSION_GROUP: &str = "internal.apiserver.k8s.io";

/// All built-in resources, in the order of discovery.
pub(super) fn contributions(config: &RegistryConfig) -> Vec<Contribution> {
    let groups = Catalogue::builtin().groups().iter();
    let is_served = |group: &&Arc<Group>| config.storage_version_api || group.name != STORAGE_VERSION_GROUP;
    let resources =
        groups.filter(is_served).flat_map(|group| group.resources.iter().map(move |resource| (group, resource)));
    resources
        .map(|(group, resource)| {
            Contribution::of(as_served(resource, config))
                .built_in()
                .with_group_priority(group.priority)
                .stored_as(config.storage_version(resource).cloned())
                .each_version(|resource, version| completed(group, resource, version))
        })
        .collect()
}

/// A resource whose versions are hidden that are not to be served.
fn as_served(resource: &Arc<Resource>, config: &RegistryConfig) -> Arc<Resource> {
    let is_hidden = |version: &ServedVersion| config.hides(resource, version);
    if resource.versions.iter().all(|version| is_hidden(version) == version.hidden) {
        return resource.clone();
    }
    let mut served = Resource::clone(resource);
    for version in &mut served.versions {
        let hidden = is_hidden(version);
        Arc::make_mut(version).hidden = hidden;
    }
    Arc::new(served)
}

/// What a cache has to hold for the built-in resources.
pub fn collection_specs() -> Vec<CollectionSpec> {
    let completed = |collection: &Collection| {
        let versions = collection.resources.iter().flat_map(|resource| resource.versions.iter().zip(repeat(resource)));
        let kinds = versions.map(|(version, resource)| resource.gvk(&version.name));
        CollectionSpec { typed_items: false, ..spec(collection, Completion::of(kinds.map(rules_of))) }
    };
    Catalogue::builtin().collections().iter().map(|collection| completed(collection)).collect()
}

/// The prefix of the keys of a built-in resource, for what is needed before there is a surface.
///
/// # Errors
/// 500 when there is no such resource, or it is not stored.
pub fn key_prefix(group: &str, plural: &str) -> Result<String, ApiError> {
    let catalogue = Catalogue::builtin();
    let stored = catalogue.resource(group, plural).and_then(|resource| catalogue.collection_of(resource));
    let missing = || ApiError::Internal(format!("{plural} of the group {group:?} are not stored"));
    stored.map(|collection| collection.key_prefix()).ok_or_else(missing)
}

/// The prefixes of cluster roles, roles, cluster role bindings and role bindings.
///
/// # Errors
/// 500 when one of them is not stored.
pub fn role_prefixes() -> Result<[String; 4], ApiError> {
    let of = |plural| key_prefix("rbac.authorization.k8s.io", plural);
    Ok([of("clusterroles")?, of("roles")?, of("clusterrolebindings")?, of("rolebindings")?])
}

/// The prefixes of what leads from nodes to the objects that they may read: pods, volumes, attachments, resource slices.
///
/// # Errors
/// 500 when one of them is not stored.
pub fn node_prefixes() -> Result<[String; 4], ApiError> {
    Ok([
        key_prefix("", "pods")?,
        key_prefix("", "persistentvolumes")?,
        key_prefix("storage.k8s.io", "volumeattachments")?,
        key_prefix("resource.k8s.io", "resourceslices")?,
    ])
}

/// A kind with the defaults and the schema that its objects are completed by.
fn rules_of(kind: GroupVersionKind) -> (GroupVersionKind, Option<Defaults>, Option<Schema>) {
    let (defaults, schema) = (Defaults::of(&kind), schema_of(&kind));
    (kind, defaults, schema)
}

/// What a subresource of a contributed resource takes where that is a `Scale`.
pub(super) fn scale_taken_by(resource: &Resource, subresource: &Subresource) -> Option<Taken> {
    if subresource.handler != SubresourceHandler::Scale {
        return None;
    }
    let kind = subresource.gvk(resource, "");
    let (schema, defaults) = (schema_of(&kind)?, Defaults::of(&kind));
    Some(Taken { subresource: subresource.name.clone(), kind, schema, defaults })
}

fn schema_of(kind: &GroupVersionKind) -> Option<Schema> {
    Schema::builtin(&kind.group, &kind.version, &kind.kind)
}

/// What a cache has to hold for a collection that others contribute.
pub(super) fn spec(collection: &Collection, complete: Option<Arc<dyn Complete>>) -> CollectionSpec {
    CollectionSpec {
        prefix: collection.key_prefix(),
        fields: collection.paths.iter().map(|path| FieldPath::parse(path)).collect(),
        dispatch: collection.dispatch,
        complete,
        typed_items: true,
    }
}

fn completed(group: &Group, resource: &Resource, version: KindVersion) -> KindVersion {
    let kind = version.kind().clone();
    let below = version.served().subresources.clone();
    let version = below.iter().fold(version, |version, subresource| {
        let taken = subresource.gvk(resource, &kind.version);
        match schema_of(&taken) {
            Some(schema) if taken != kind => {
                let defaults = Defaults::of(&taken);
                version.taking(Taken { subresource: subresource.name.clone(), kind: taken, schema, defaults })
            }
            _ => version,
        }
    });
    let places = group.versions.iter().find(|known| known.name == kind.version);
    version
        .with_schema(schema_of(&kind))
        .with_defaults(Defaults::of(&kind))
        .with_rules(Rules::of(&resource.group, &resource.kind).unwrap_or_default())
        .with_canonical(Conversion::canonical(&resource.group, &resource.kind, (&kind.group, &kind.version)))
        .with_strategy(strategy_of(&resource.group, &resource.plural))
        .with_closed_fields(closed_fields(&resource.group, &resource.plural))
        .with_metadata_rules(metadata_rules_of(&resource.group, &resource.plural))
        .with_printer(Printer::of(&kind.group, &kind.kind))
        .with_view(View::new(&kind))
        .with_deprecation(deprecation(&kind.group, &kind.version, &resource.kind))
        .with_priority(places.map_or(0, |place| place.priority))
}
