//! The built-in resources as the first contribution to the surface, and their collections for the cache.
//!
//! The parts of a group become parts of its kinds' versions here, once, when the surface is built.

use std::iter::repeat;
use std::sync::Arc;

use keelson_cache::{Cache, CollectionSpec};
use keelson_codec::FieldPath;
use keelson_meta::{ApiError, Clock, GroupVersionKind, Random, Release};
use keelson_registry::{
    BuiltinKinds, KindVersion, Registry, RegistryConfig, ResourceRegistration, ServedApis, ServiceRanges,
    SubresourceKind, View,
};
use keelson_resources::{Collection, Group, Resource, ServedVersion};
use keelson_schema::Schema;
use keelson_storage::Store;

use crate::catalogue::printer_of;
use crate::completion::Completion;
use crate::converting::Conversion;
use crate::core::older::{Older, StoredFields};
use crate::defaulting::Defaults;
use crate::group::BuiltinGroup;
use crate::validating::Rules;
use crate::{catalogue, catalogue_of, deprecation, groups};

/// The API group that a feature gate can disable.
const STORAGE_VERSION_GROUP: &str = "internal.apiserver.k8s.io";

/// Kubernetes' built-in kinds.
pub struct Builtin;

impl BuiltinKinds for Builtin {
    fn contributions(&self, config: &RegistryConfig) -> Vec<ResourceRegistration> {
        contributions(config)
    }
}

/// Creates a registry of the built-in kinds, over a store and its cache.
pub fn registry(
    store: Arc<dyn Store>,
    cache: Arc<Cache>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    config: RegistryConfig,
) -> Registry {
    Registry::new(Arc::new(Builtin), store, cache, clock, random, config)
}

/// The built-in resources without objects, for tests without a store.
pub fn surface() -> Arc<ServedApis> {
    ServedApis::new(&contributions(&RegistryConfig::default()))
}

/// All built-in resources, in the order of discovery.
pub fn contributions(config: &RegistryConfig) -> Vec<ResourceRegistration> {
    let groups = catalogue_of(config.release()).groups().iter();
    let is_served = |group: &&Arc<Group>| config.storage_version_api || group.name != STORAGE_VERSION_GROUP;
    let resources =
        groups.filter(is_served).flat_map(|group| group.resources.iter().map(move |resource| (group, resource)));
    resources
        .map(|(group, resource)| {
            let contribution = ResourceRegistration::from_shared(as_served(resource, config))
                .built_in()
                .with_group_priority(group.priority)
                .stored_as(config.storage_version(resource).cloned())
                .each_version(|resource, version| completed(config, group, resource, version));
            let stored = contribution.storage_kind();
            contribution.stored_through(stored.map(|kind| leading_to(&kind)).unwrap_or_default())
        })
        .collect()
}

/// A copy of a resource, in which versions that are not served are hidden.
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

/// The cache collections of the built-in resources, with the default ranges of services.
pub fn collection_specs() -> Vec<CollectionSpec> {
    collection_specs_for(Release::DEFAULT, &ServiceRanges::default())
}

/// The cache collections of the built-in resources of a release. `ranges` gives the family of old services that do not
/// state it.
pub fn collection_specs_for(release: Release, ranges: &ServiceRanges) -> Vec<CollectionSpec> {
    let primary = ranges.primary().family();
    let completed = |collection: &Collection| {
        let versions = collection.resources.iter().flat_map(|resource| resource.versions.iter().zip(repeat(resource)));
        let kinds = versions.map(|(version, resource)| resource.gvk(&version.name));
        let mut of_core = collection.resources.iter().filter(|resource| resource.group.is_empty());
        let older = of_core.find_map(|resource| Older::for_resource(&resource.plural));
        let fields = older.map(|of| StoredFields { of, primary });
        CollectionSpec {
            prefix: collection.key_prefix(),
            fields: collection.paths.iter().map(|path| FieldPath::parse(path)).collect(),
            dispatch: collection.dispatch,
            complete: Completion::for_kinds(release, kinds, fields),
            typed_items: false,
        }
    };
    catalogue_of(release).collections().iter().map(|collection| completed(collection)).collect()
}

/// The key prefix of a built-in resource, for code that runs before there is a surface.
///
/// # Errors
/// 500 if the resource does not exist or is not stored.
pub fn key_prefix(group: &str, plural: &str) -> Result<String, ApiError> {
    let catalogue = catalogue();
    let stored = catalogue.resource(group, plural).and_then(|resource| catalogue.collection_of(resource));
    let missing = || ApiError::Internal(format!("{plural} of the group {group:?} are not stored"));
    stored.map(|collection| collection.key_prefix()).ok_or_else(missing)
}

/// The key prefixes of cluster roles, roles, cluster role bindings and role bindings.
///
/// # Errors
/// 500 if one of them is not stored.
pub fn role_prefixes() -> Result<[String; 4], ApiError> {
    let of = |plural| key_prefix("rbac.authorization.k8s.io", plural);
    Ok([of("clusterroles")?, of("roles")?, of("clusterrolebindings")?, of("rolebindings")?])
}

/// The key prefixes for the Node authorizer: pods, persistent volumes, volume attachments, resource slices and pod
/// certificate requests.
///
/// # Errors
/// 500 if one of them is not stored.
pub fn node_prefixes() -> Result<[String; 5], ApiError> {
    Ok([
        key_prefix("", "pods")?,
        key_prefix("", "persistentvolumes")?,
        key_prefix("storage.k8s.io", "volumeattachments")?,
        key_prefix("resource.k8s.io", "resourceslices")?,
        key_prefix("certificates.k8s.io", "podcertificaterequests")?,
    ])
}

fn schema_of(release: Release, kind: &GroupVersionKind) -> Option<Schema> {
    Schema::of_release(release, &kind.group, &kind.version, &kind.kind)
}

/// The conversions from other versions of a kind to this one.
fn leading_to(kind: &GroupVersionKind) -> Vec<&'static dyn keelson_registry::Conversion> {
    let leading = Conversion::leading_to(&kind.kind, (&kind.group, &kind.version));
    leading.map(|conversion| -> &'static dyn keelson_registry::Conversion { conversion }).collect()
}

fn completed(config: &RegistryConfig, group: &Group, resource: &Resource, version: KindVersion) -> KindVersion {
    let (release, kind) = (config.release(), version.kind().clone());
    let below = version.served().subresources.clone();
    let version = below.iter().fold(version, |version, subresource| {
        let taken = subresource.gvk(resource, &kind.version);
        match schema_of(release, &taken) {
            Some(schema) if taken != kind => {
                let defaults = Defaults::for_kind(&taken).map(Defaults::defaulter);
                let printer = Some(printer_of(release, &taken.group, &taken.kind));
                version.taking(SubresourceKind {
                    subresource: subresource.name.clone(),
                    kind: taken,
                    schema,
                    printer,
                    defaults,
                })
            }
            _ => version,
        }
    });
    let places = group.versions.iter().find(|known| known.name == kind.version);
    let canonical = Conversion::canonical(&resource.group, &resource.kind, (&kind.group, &kind.version));
    let version = version
        .with_schema(schema_of(release, &kind))
        .with_defaults(Defaults::for_kind(&kind).map(Defaults::defaulter))
        .with_canonical(canonical.map(|canonical| -> &dyn keelson_registry::Conversion { canonical }))
        .with_printer(printer_of(release, &kind.group, &kind.kind))
        .with_view(View::converting(&kind, leading_to(&kind)))
        .with_deprecation(deprecation(release, &kind.group, &kind.version, &resource.kind))
        .with_priority(places.map_or(0, |place| place.priority));
    let version = match Rules::with_gates(&config.gates, config.allow_privileged, &resource.group, &resource.kind) {
        Some(rules) => version.with_rules(rules),
        None => version,
    };
    match groups::group(&resource.group) {
        Some(group) => with_strategies(config, group, resource, version),
        None => version,
    }
}

fn with_strategies(
    config: &RegistryConfig,
    group: &BuiltinGroup,
    resource: &Resource,
    version: KindVersion,
) -> KindVersion {
    let guarded = (group.closed_fields)(&resource.plural).into_iter();
    version
        .with_strategy((group.strategies)(&resource.plural))
        .with_closed_fields(guarded.filter(|fields| fields.are_closed(&config.gates)).collect())
        .with_metadata_rules((group.metadata_rules)(&resource.plural))
}

#[cfg(test)]
mod tests {
    use keelson_registry::ConversionPath;

    use super::*;

    fn view(kind: &GroupVersionKind) -> View {
        View::converting(kind, leading_to(kind))
    }

    #[test]
    fn every_served_version_converts_from_the_storage_version() {
        for resource in catalogue().resources().filter(|resource| resource.is_persisted()) {
            for version in &resource.versions {
                let view = view(&resource.gvk(&version.name));
                assert!(matches!(view.passage(&view.api_version), Some(ConversionPath::Same)));
                let stored = resource.default_storage_kind().expect("it is stored").group_version().to_string();
                assert!(view.passage(&stored).is_some(), "{} from {stored}", view.api_version);
                assert!(view.passage("nowhere/v1").is_none());
            }
        }
    }

    #[test]
    fn events_of_both_groups_convert_to_each_other() {
        let events = catalogue().resource("events.k8s.io", "events").expect("events");
        let Some(ConversionPath::Through(conversion)) = view(&events.gvk("v1")).passage("v1") else {
            panic!("no conversion")
        };
        assert!(!conversion.is_rename());
        assert_eq!(conversion.source_api_version(), "v1");
    }
}
