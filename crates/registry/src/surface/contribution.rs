//! A contribution to the surface: a resource, and the rules of its kind in each version.
//!
//! A contribution has no cache and no store. It gets them when it becomes part of a surface.

use std::sync::Arc;

use keelson_cache::{CollectionSpec, Complete};
use keelson_codec::FieldPath;
use keelson_meta::GroupVersionKind;
use keelson_resources::{Collection, Resource, Subresource, SubresourceHandler, Text};
use keelson_schema::{Schema, SchemaDocument};
use keelson_tables::Printer;

use super::definition::DefinedBy;
use super::served::{KindVersion, ServedResource, SubresourceKind};
use super::view::View;
use crate::complete::Completion;
use crate::converter::Converter;
use crate::kind_rules::Conversion;
use crate::strategy::Strategies;

/// The default priority of a group in discovery: that of custom resources.
const GROUP_PRIORITY: u32 = 1000;
/// The default priority of a version among those of its group in discovery.
const VERSION_PRIORITY: u32 = 100;

/// A resource to be served.
#[derive(Clone)]
pub struct ResourceRegistration {
    resource: Arc<Resource>,
    versions: Vec<KindVersion>,
    group_priority: u32,
    storage_version: Option<Text>,
    converter: Option<Arc<dyn Converter>>,
    refuses_new: Option<&'static str>,
    definition: Option<Arc<DefinedBy>>,
    builtin: bool,
    storage_conversions: Vec<&'static dyn Conversion>,
}

impl ResourceRegistration {
    /// A contribution without schema and rules, with the usual columns, and with versions that differ by name alone.
    /// The other methods change this.
    pub fn new(resource: Resource) -> Self {
        Self::from_shared(Arc::new(resource))
    }

    /// A contribution of a shared resource.
    pub fn from_shared(resource: Arc<Resource>) -> Self {
        let versions = resource.versions.iter().map(|served| {
            let others = resource.versions.iter().map(|other| &*other.name).filter(|other| *other != served.name);
            let view = View::renaming(&resource.gvk(&served.name), others);
            let version = KindVersion::new(&resource, served, VERSION_PRIORITY)
                .with_view(view)
                .with_strategy(&Strategies::DEFINED);
            served
                .subresources
                .iter()
                .filter_map(|below| scale_taken_by(&resource, below))
                .fold(version, KindVersion::taking)
        });
        Self {
            versions: versions.collect(),
            resource,
            group_priority: GROUP_PRIORITY,
            storage_version: None,
            converter: None,
            refuses_new: None,
            definition: None,
            builtin: false,
            storage_conversions: Vec::new(),
        }
    }

    /// The resource.
    pub fn resource(&self) -> &Arc<Resource> {
        &self.resource
    }

    /// Sets the priority of its group in discovery, higher first.
    #[must_use]
    pub fn with_group_priority(mut self, priority: u32) -> Self {
        self.group_priority = priority;
        self
    }

    /// Sets the storage version, if it is not that of the resource.
    #[must_use]
    pub fn stored_as(mut self, version: Option<Text>) -> Self {
        self.storage_version = version;
        self
    }

    /// Sets the conversions to the stored version, if that version is not served.
    #[must_use]
    pub fn stored_through(mut self, conversions: Vec<&'static dyn Conversion>) -> Self {
        self.storage_conversions = conversions;
        self
    }

    /// The kind of its stored objects; `None` if they are not stored.
    pub fn storage_kind(&self) -> Option<GroupVersionKind> {
        let declared = self.resource.default_storage_kind()?;
        Some(self.storage_version.as_ref().map_or(declared, |version| self.resource.gvk(version)))
    }

    /// Sets the converter between its versions. Without a converter, the versions differ by name alone.
    #[must_use]
    pub fn converted_by(mut self, converter: &Arc<dyn Converter>) -> Self {
        self.converter = Some(converter.clone());
        self
    }

    /// Refuses new objects with this text. Existing objects can still be changed.
    #[must_use]
    pub fn refusing_new(mut self, why: &'static str) -> Self {
        self.refuses_new = Some(why);
        self
    }

    /// Sets the object that defines it.
    #[must_use]
    pub fn defined_by(mut self, definition: DefinedBy) -> Self {
        self.definition = Some(Arc::new(definition));
        self
    }

    /// Returns true if its objects are decoded like those of the previous resource. Both then have the same state of a
    /// definition, or neither has a definition or schemas.
    pub(super) fn is_read_like(&self, served: &ServedResource) -> bool {
        match (&self.definition, served.definition()) {
            (Some(wanted), Some(known)) => wanted.state == known.state,
            _ => {
                let versions = self.versions.iter().chain(served.versions().iter().map(|version| &**version));
                !versions.into_iter().any(|version| version.structural().is_some())
            }
        }
    }

    /// The completion of its objects in every stored version, for use when they are decoded.
    pub(super) fn completion(&self) -> Option<Arc<dyn Complete>> {
        Completion::for_kinds(self.versions.iter().map(|version| (version.kind(), version.own_schema())))
    }

    /// Sets the schema of its objects in a version. A structural schema prunes objects, sets defaults, and reports each
    /// fault as a cause of the error.
    #[must_use]
    pub fn with_schema(self, version: &str, schema: &Schema) -> Self {
        self.version(version, |version| version.with_schema(Some(schema.clone())))
    }

    /// Sets the source of a version's schema for published documents.
    #[must_use]
    pub fn with_document(self, version: &str, document: &Arc<dyn SchemaDocument>) -> Self {
        self.version(version, |version| version.with_document(document))
    }

    /// Sets the columns of `kubectl get` for a version.
    #[must_use]
    pub fn with_printer(self, version: &str, printer: &Printer) -> Self {
        self.version(version, |version| version.with_printer(printer.clone()))
    }

    /// Sets the warning for users of a version.
    #[must_use]
    pub fn with_deprecation(self, version: &str, warning: &str) -> Self {
        self.version(version, |version| version.with_deprecation(Some(warning.to_owned())))
    }

    fn version(self, name: &str, complete: impl Fn(KindVersion) -> KindVersion) -> Self {
        self.each_version(|_, version| if version.name == name { complete(version) } else { version })
    }

    /// Marks it as built in, so that no other contribution replaces or removes it.
    #[must_use]
    pub fn built_in(mut self) -> Self {
        self.builtin = true;
        self
    }

    /// Sets the rules of its kind in each version.
    #[must_use]
    pub fn each_version(mut self, complete: impl Fn(&Resource, KindVersion) -> KindVersion) -> Self {
        let resource = self.resource.clone();
        self.versions = self.versions.into_iter().map(|version| complete(&resource, version)).collect();
        self
    }

    pub(super) fn served(&self) -> ServedResource {
        let storage_kind = self.storage_kind();
        ServedResource::new(
            self.resource.clone(),
            self.versions.clone(),
            storage_kind,
            self.storage_conversions.clone(),
            self.group_priority,
            self.builtin,
        )
        .converted_by(self.converter.clone())
        .refusing_new(self.refuses_new)
        .defined_by(self.definition.clone())
    }
}

/// The kind that a `scale` subresource of a contributed resource accepts.
fn scale_taken_by(resource: &Resource, subresource: &Subresource) -> Option<SubresourceKind> {
    if subresource.handler != SubresourceHandler::Scale {
        return None;
    }
    let kind = subresource.gvk(resource, "");
    let schema = Schema::builtin(&kind.group, &kind.version, &kind.kind)?;
    Some(SubresourceKind { subresource: subresource.name.clone(), kind, schema, printer: None, defaults: None })
}

/// The cache settings of a collection of contributed resources.
pub(super) fn collection_spec(collection: &Collection, complete: Option<Arc<dyn Complete>>) -> CollectionSpec {
    CollectionSpec {
        prefix: collection.key_prefix(),
        fields: collection.paths.iter().map(|path| FieldPath::parse(path)).collect(),
        dispatch: collection.dispatch,
        complete,
        typed_items: true,
    }
}
