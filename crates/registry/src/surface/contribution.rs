//! A contribution to the surface: a resource, and what is known of its kind in each version.
//!
//! A contribution knows no cache and no store: those are given to it when it becomes part of a surface.

use std::sync::Arc;

use keelson_cache::{CollectionSpec, Complete};
use keelson_codec::FieldPath;
use keelson_meta::GroupVersionKind;
use keelson_resources::{Collection, Resource, Subresource, SubresourceHandler, Text};
use keelson_schema::{Schema, SchemaDocument};
use keelson_tables::Printer;

use super::definition::DefinedBy;
use super::served::{KindVersion, ServedResource, Taken};
use super::view::View;
use crate::complete::Completion;
use crate::converter::Converter;
use crate::kind_rules::Conversion;
use crate::strategy::Strategies;

/// The place of a group in discovery whose contributor says none: that of custom resources.
const GROUP_PRIORITY: u32 = 1000;
/// The place of a version among those of its group whose contributor says none.
const VERSION_PRIORITY: u32 = 100;

/// A resource that shall be served.
#[derive(Clone)]
pub struct Contribution {
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

impl Contribution {
    /// A resource whose kind has no schema, no rules and the usual columns, and whose versions differ by name alone, unless it is
    /// said otherwise.
    pub fn new(resource: Resource) -> Self {
        Self::of(Arc::new(resource))
    }

    /// A contribution of a shared resource.
    pub fn of(resource: Arc<Resource>) -> Self {
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

    /// States the place of its group in discovery, higher first.
    #[must_use]
    pub fn with_group_priority(mut self, priority: u32) -> Self {
        self.group_priority = priority;
        self
    }

    /// Has its objects stored in another version than the resource says.
    #[must_use]
    pub fn stored_as(mut self, version: Option<Text>) -> Self {
        self.storage_version = version;
        self
    }

    /// States the conversions that lead to the stored version, where that is none of the served ones.
    #[must_use]
    pub fn stored_through(mut self, conversions: Vec<&'static dyn Conversion>) -> Self {
        self.storage_conversions = conversions;
        self
    }

    /// The kind that its objects are stored as; `None` if they are not stored.
    pub fn storage_kind(&self) -> Option<GroupVersionKind> {
        let declared = self.resource.default_storage_kind()?;
        Some(self.storage_version.as_ref().map_or(declared, |version| self.resource.gvk(version)))
    }

    /// Has this converter asked for objects in other versions than they are in. Without one the versions differ by name alone.
    #[must_use]
    pub fn converted_by(mut self, converter: &Arc<dyn Converter>) -> Self {
        self.converter = Some(converter.clone());
        self
    }

    /// Has new objects refused with this text, while those that are there can be changed.
    #[must_use]
    pub fn refusing_new(mut self, why: &'static str) -> Self {
        self.refuses_new = Some(why);
        self
    }

    /// States which object defines it.
    #[must_use]
    pub fn defined_by(mut self, definition: DefinedBy) -> Self {
        self.definition = Some(Arc::new(definition));
        self
    }

    /// Returns true if its objects are decoded as those of the previous resource: by the same state of a definition, or without a
    /// definition and schemas.
    pub(super) fn is_read_like(&self, served: &ServedResource) -> bool {
        match (&self.definition, served.definition()) {
            (Some(wanted), Some(known)) => wanted.state == known.state,
            _ => {
                let versions = self.versions.iter().chain(served.versions().iter().map(|version| &**version));
                !versions.into_iter().any(|version| version.structural().is_some())
            }
        }
    }

    /// Completes its objects when they are decoded, in any stored version.
    pub(super) fn completion(&self) -> Option<Arc<dyn Complete>> {
        Completion::of(self.versions.iter().map(|version| (version.kind(), version.own_schema())))
    }

    /// States the schema of its objects in a version. A structural one prunes them, fills in its defaults, and refuses them with
    /// a cause for each fault.
    #[must_use]
    pub fn with_schema(self, version: &str, schema: &Schema) -> Self {
        self.version(version, |version| version.with_schema(Some(schema.clone())))
    }

    /// States where the schema of a version can be read by those who publish it.
    #[must_use]
    pub fn with_document(self, version: &str, document: &Arc<dyn SchemaDocument>) -> Self {
        self.version(version, |version| version.with_document(document))
    }

    /// States what `kubectl get` shows of its objects in a version.
    #[must_use]
    pub fn with_printer(self, version: &str, printer: &Printer) -> Self {
        self.version(version, |version| version.with_printer(printer.clone()))
    }

    /// States what users of a version are warned of.
    #[must_use]
    pub fn with_deprecation(self, version: &str, warning: &str) -> Self {
        self.version(version, |version| version.with_deprecation(Some(warning.to_owned())))
    }

    fn version(self, name: &str, complete: impl Fn(KindVersion) -> KindVersion) -> Self {
        self.each_version(|_, version| if version.name == name { complete(version) } else { version })
    }

    /// States that it is part of the program, so that nothing replaces or removes it.
    #[must_use]
    pub fn built_in(mut self) -> Self {
        self.builtin = true;
        self
    }

    /// States what is known of its kind in each version.
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

/// The kind that a `scale` subresource of a contributed resource takes.
fn scale_taken_by(resource: &Resource, subresource: &Subresource) -> Option<Taken> {
    if subresource.handler != SubresourceHandler::Scale {
        return None;
    }
    let kind = subresource.gvk(resource, "");
    let schema = Schema::builtin(&kind.group, &kind.version, &kind.kind)?;
    Some(Taken { subresource: subresource.name.clone(), kind, schema, printer: None, defaults: None })
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
