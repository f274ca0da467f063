//! A served resource: its declaration, with everything that requests for it need.
//!
//! The rules of the kind are looked up once, when the resource becomes part of a surface. Verbs therefore compare no
//! group, plural or kind: they use the rules of the request's version.

use std::ops::Deref;
use std::sync::Arc;

use keelson_cache::Collection as CachedCollection;
use keelson_codec::stored::StoredHeader;
use keelson_meta::json::Value;
use keelson_meta::{GroupVersionKind, Object};
use keelson_resources::{Collection, Resource, ServedVersion, Text};
use keelson_schema::{Schema, SchemaDocument, SchemaRef, Structural, WalkOptions, WalkReport};
use keelson_tables::Printer;

use super::definition::DefinedBy;
use super::view::{ConversionPath, View};
use crate::converter::Converter;
use crate::encodings::EncodingGate;
use crate::kept::{ConversionCache, ResourceEntries};
use crate::kind_rules::{Conversion, Defaulter, NoRules, Validator};
use crate::strategy::{ClosedFields, MetadataRules, Strategies};

/// The number of a collection. No other collection ever gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CollectionId(pub(super) u32);

/// The collection under one prefix, with its handle in the cache.
#[derive(Clone)]
pub struct StoredCollection {
    /// Its number.
    pub id: CollectionId,
    /// The key prefix of the collection and the layout of its selectable fields.
    pub layout: Arc<Collection>,
    /// Its objects.
    pub cached: Arc<CachedCollection>,
    /// The gate of its writes.
    pub gate: Arc<EncodingGate>,
}

/// A resource with its versions and its collection. It dereferences to its [`Resource`].
#[derive(Clone)]
pub struct ServedResource {
    resource: Arc<Resource>,
    versions: Vec<Arc<KindVersion>>,
    stored: Option<Arc<StoredCollection>>,
    storage_kind: Option<GroupVersionKind>,
    /// The conversion to the stored version, if that is not served: events of one group are stored as those of another.
    storage_view: Option<Arc<View>>,
    group_priority: u32,
    builtin: bool,
    /// The conversion webhook; `None` if conversions are built in.
    converter: Option<Arc<dyn Converter>>,
    /// Its conversion cache.
    kept: Option<Arc<ResourceEntries>>,
    /// The reason why it accepts no new objects, if it accepts none.
    refuses_new: Option<&'static str>,
    /// Its definition, if it has one.
    definition: Option<Arc<DefinedBy>>,
}

/// The kind of a resource in one version. It dereferences to its [`ServedVersion`].
#[derive(Clone)]
pub struct KindVersion {
    served: Arc<ServedVersion>,
    kind: GroupVersionKind,
    api_version: String,
    stored_header: StoredHeader,
    schema: Option<Schema>,
    document: Option<Arc<dyn SchemaDocument>>,
    defaults: Option<&'static dyn Defaulter>,
    taken: Vec<SubresourceKind>,
    rules: &'static dyn Validator,
    canonical: Option<&'static dyn Conversion>,
    strategy: &'static Strategies,
    closed_fields: Arc<[ClosedFields]>,
    metadata_rules: MetadataRules,
    printer: Printer,
    view: Arc<View>,
    deprecation: Option<String>,
    empty: Value,
    /// The status that the schema gives a custom resource without one.
    default_status: Option<Value>,
    priority: u32,
}

/// A kind that a subresource accepts and that is not the kind of its resource.
#[derive(Clone)]
pub struct SubresourceKind {
    /// The name of the subresource.
    pub subresource: Text,
    /// The kind.
    pub kind: GroupVersionKind,
    /// Its schema.
    pub schema: Schema,
    /// The columns of the version; `None` for the columns of the resource.
    pub printer: Option<Printer>,
    /// Its defaults.
    pub defaults: Option<&'static dyn Defaulter>,
}

/// The conversion of an object from another version to this one.
pub enum VersionChange<'v> {
    /// None: the object is in this version.
    None,
    /// Only the name of the version differs. The fields are the same.
    Name,
    /// The name of the version differs. The schema of this version prunes the object and adds defaults.
    Schema,
    /// A built-in conversion.
    Fields(&'static dyn Conversion),
    /// A conversion webhook.
    Asked(&'v Arc<dyn Converter>),
}

impl StoredCollection {
    /// Returns true if its keys are `<namespace>/<name>`.
    pub fn is_namespaced(&self) -> bool {
        self.layout.namespaced
    }
}

impl ServedResource {
    pub(super) fn new(
        resource: Arc<Resource>,
        versions: Vec<KindVersion>,
        storage_kind: Option<GroupVersionKind>,
        storage_conversions: Vec<&'static dyn Conversion>,
        group_priority: u32,
        builtin: bool,
    ) -> Self {
        let versions: Vec<Arc<KindVersion>> = versions.into_iter().map(Arc::new).collect();
        let is_served = |kind: &GroupVersionKind| versions.iter().any(|version| version.kind() == kind);
        let stored_otherwise = storage_kind.as_ref().filter(|kind| !is_served(kind));
        let storage_view = stored_otherwise.map(|kind| Arc::new(View::converting(kind, storage_conversions)));
        Self {
            resource,
            versions,
            stored: None,
            storage_kind,
            storage_view,
            group_priority,
            builtin,
            converter: None,
            kept: None,
            refuses_new: None,
            definition: None,
        }
    }

    pub(super) fn converted_by(mut self, converter: Option<Arc<dyn Converter>>) -> Self {
        self.converter = converter;
        self
    }

    /// Sets the shared conversion cache, if it has a converter.
    pub(super) fn kept_in(mut self, all: &Arc<ConversionCache>) -> Self {
        self.kept = self.converter.is_some().then(|| ResourceEntries::new(all));
        self
    }

    pub(super) fn refusing_new(mut self, why: Option<&'static str>) -> Self {
        self.refuses_new = why;
        self
    }

    pub(super) fn defined_by(mut self, definition: Option<Arc<DefinedBy>>) -> Self {
        self.definition = definition;
        self
    }

    /// This resource in a fork. `stored` has the collection of a prefix in the cache of the fork, and `defined` that
    /// of definitions. `None` if it has no collection there, or a converter, which belongs to one server.
    pub(super) fn forked(
        &self,
        stored: impl Fn(&str) -> Option<Arc<StoredCollection>>,
        defined: impl Fn(&str) -> Option<Arc<CachedCollection>>,
    ) -> Option<Self> {
        if self.converter.is_some() {
            return None;
        }
        let mut served = self.clone();
        if let Some(origin) = &self.stored {
            served.stored = Some(stored(&origin.layout.prefix)?);
        }
        if let Some(definition) = &self.definition {
            let collection = defined(definition.collection.prefix())?;
            served.definition = Some(Arc::new(DefinedBy { collection, ..(**definition).clone() }));
        }
        Some(served)
    }

    pub(super) fn with_collection(mut self, stored: Arc<StoredCollection>) -> Self {
        self.stored = Some(stored);
        self
    }

    /// Its declaration.
    pub fn resource(&self) -> &Arc<Resource> {
        &self.resource
    }

    /// Its versions, the preferred one first.
    pub fn versions(&self) -> &[Arc<KindVersion>] {
        &self.versions
    }

    /// A version in which it is served.
    pub fn version(&self, name: &str) -> Option<&Arc<KindVersion>> {
        self.versions.iter().find(|version| version.name == name)
    }

    /// The collection of the resource; `None` if its objects are not stored.
    pub fn stored(&self) -> Option<&Arc<StoredCollection>> {
        self.stored.as_ref()
    }

    /// The kind in which this server stores its objects; `None` if they are not stored. Stored objects may have another
    /// version.
    pub fn storage_kind(&self) -> Option<&GroupVersionKind> {
        self.storage_kind.as_ref()
    }

    /// Returns true for a built-in resource, which cannot be replaced or removed.
    pub fn is_builtin(&self) -> bool {
        self.builtin
    }

    /// The conversion webhook of the resource, which is the same for all versions.
    pub fn converter(&self) -> Option<&Arc<dyn Converter>> {
        self.converter.as_ref()
    }

    /// The conversion cache of the resource, and the index of a version in it.
    pub(crate) fn kept(&self, version: &KindVersion) -> Option<(&Arc<ResourceEntries>, usize)> {
        let place = self.versions.iter().position(|known| known.name == version.name)?;
        self.kept.as_ref().map(|kept| (kept, place))
    }

    /// The reason why it accepts no new objects; `None` if it accepts them.
    pub fn refuses_new(&self) -> Option<&'static str> {
        self.refuses_new
    }

    /// Returns true if a stored definition declares it.
    pub fn is_defined(&self) -> bool {
        self.definition.is_some()
    }

    /// The definition of the resource; `None` if it has none.
    pub fn definition(&self) -> Option<&Arc<DefinedBy>> {
        self.definition.as_ref()
    }

    /// The conversion from this `apiVersion` to one of its versions; `None` if there is none.
    pub fn change(&self, from: &str, to: &KindVersion) -> Option<VersionChange<'_>> {
        self.change_into(&to.view, from, to.structural().is_some())
    }

    /// As [`change`](Self::change), for any version of its kind by name: a served one, or the stored one.
    pub(crate) fn change_to(&self, from: &str, to: &GroupVersionKind) -> Option<VersionChange<'_>> {
        if let Some(version) = self.versions.iter().find(|version| version.kind() == to) {
            return self.change(from, version);
        }
        let view = self.storage_view.as_ref().filter(|_| self.storage_kind.as_ref() == Some(to))?;
        self.change_into(view, from, false)
    }

    fn change_into(&self, view: &View, from: &str, is_structural: bool) -> Option<VersionChange<'_>> {
        Some(match (view.passage(from)?, &self.converter) {
            (ConversionPath::Same, _) => VersionChange::None,
            (ConversionPath::Renamed | ConversionPath::Through(_), Some(converter)) => VersionChange::Asked(converter),
            (ConversionPath::Through(conversion), None) if !conversion.is_rename() => VersionChange::Fields(conversion),
            (ConversionPath::Renamed | ConversionPath::Through(_), None) if is_structural => VersionChange::Schema,
            (ConversionPath::Renamed | ConversionPath::Through(_), None) => VersionChange::Name,
        })
    }

    /// The priority of its group in discovery, higher first.
    pub fn group_priority(&self) -> u32 {
        self.group_priority
    }
}

impl Deref for ServedResource {
    type Target = Resource;

    fn deref(&self) -> &Resource {
        &self.resource
    }
}

impl KindVersion {
    pub(super) fn new(resource: &Resource, served: &Arc<ServedVersion>, priority: u32) -> Self {
        let kind = resource.gvk(&served.name);
        Self {
            served: served.clone(),
            api_version: kind.group_version().to_string(),
            stored_header: StoredHeader::new(&kind),
            schema: None,
            document: None,
            defaults: None,
            taken: Vec::new(),
            rules: &NoRules,
            canonical: None,
            strategy: &Strategies::ORDINARY,
            closed_fields: Arc::default(),
            metadata_rules: MetadataRules::Plain,
            printer: Printer::generic(),
            view: Arc::new(View::renaming(&kind, std::iter::empty())),
            deprecation: None,
            empty: empty(&kind, None),
            default_status: None,
            priority,
            kind,
        }
    }

    /// Sets the schema of its objects.
    #[must_use]
    pub fn with_schema(mut self, schema: Option<Schema>) -> Self {
        self.empty = empty(&self.kind, schema.as_ref().map(Schema::get));
        self.default_status = schema.as_ref().map(Schema::get).and_then(default_status);
        self.schema = schema;
        self
    }

    pub(super) fn with_document(mut self, document: &Arc<dyn SchemaDocument>) -> Self {
        self.document = Some(document.clone());
        self
    }

    /// Sets the defaults of its objects.
    #[must_use]
    pub fn with_defaults(mut self, defaults: Option<&'static dyn Defaulter>) -> Self {
        self.defaults = defaults;
        self
    }

    /// Adds a kind that a subresource accepts.
    #[must_use]
    pub fn taking(mut self, taken: SubresourceKind) -> Self {
        self.taken.push(taken);
        self
    }

    /// Sets the validation of its objects.
    #[must_use]
    pub fn with_rules(mut self, rules: &'static dyn Validator) -> Self {
        self.rules = rules;
        self
    }

    /// Sets the conversion for objects that a request sends in this version while it is the stored one.
    #[must_use]
    pub fn with_canonical(mut self, canonical: Option<&'static dyn Conversion>) -> Self {
        self.canonical = canonical;
        self
    }

    /// Sets the strategies of its kind.
    #[must_use]
    pub fn with_strategy(mut self, strategy: &'static Strategies) -> Self {
        self.strategy = strategy;
        self
    }

    /// Sets the fields of features that are off.
    #[must_use]
    pub fn with_closed_fields(mut self, closed_fields: Vec<ClosedFields>) -> Self {
        self.closed_fields = closed_fields.into();
        self
    }

    /// Sets the rules for the metadata of its objects.
    #[must_use]
    pub fn with_metadata_rules(mut self, rules: MetadataRules) -> Self {
        self.metadata_rules = rules;
        self
    }

    /// Sets the columns of its objects.
    #[must_use]
    pub fn with_printer(mut self, printer: Printer) -> Self {
        self.printer = printer;
        self
    }

    /// Sets the conversions of stored objects to this version.
    #[must_use]
    pub fn with_view(mut self, view: View) -> Self {
        self.view = Arc::new(view);
        self
    }

    /// Sets the warning for its users.
    #[must_use]
    pub fn with_deprecation(mut self, warning: Option<String>) -> Self {
        self.deprecation = warning;
        self
    }

    /// Sets its priority among the versions of its group in discovery, higher first.
    #[must_use]
    pub fn with_priority(mut self, priority: u32) -> Self {
        self.priority = priority;
        self
    }

    /// Its declaration.
    pub fn served(&self) -> &Arc<ServedVersion> {
        &self.served
    }

    /// Group, version and kind.
    pub fn kind(&self) -> &GroupVersionKind {
        &self.kind
    }

    /// The `apiVersion` of its objects.
    pub fn api_version(&self) -> &str {
        &self.api_version
    }

    /// The first bytes of its stored objects in this version.
    pub(crate) fn stored_header(&self) -> &StoredHeader {
        &self.stored_header
    }

    /// The schema of its objects; `None` for a kind without a schema, which accepts any fields.
    pub fn schema(&self) -> Option<SchemaRef<'_>> {
        self.schema.as_ref().map(Schema::get)
    }

    /// The schema of its objects in the form of its definition, for published documents. `None` for a built-in kind,
    /// and for a kind without a schema.
    pub fn document(&self) -> Option<&Arc<dyn SchemaDocument>> {
        self.document.as_ref()
    }

    pub(super) fn own_schema(&self) -> Option<&Schema> {
        self.schema.as_ref()
    }

    /// The structural schema that validates its objects; `None` for a kind with built-in validation.
    pub fn structural(&self) -> Option<&Structural> {
        self.schema.as_ref()?.rules()
    }

    /// The schema of a kind that a subresource accepts, if that is not the kind of the resource.
    pub fn schema_taken_by(&self, subresource: &str, kind: &GroupVersionKind) -> Option<SchemaRef<'_>> {
        self.taken_by(subresource, kind).map(|taken| taken.schema.get())
    }

    /// The kind that a subresource accepts, if it is this one and not that of the resource.
    pub(crate) fn taken_by(&self, subresource: &str, kind: &GroupVersionKind) -> Option<&SubresourceKind> {
        self.taken.iter().find(|taken| taken.subresource == subresource && taken.kind == *kind)
    }

    /// The columns of the objects that a subresource returns: its own, or those of the resource.
    pub fn printer_of_taken(&self, subresource: &str) -> &Printer {
        let taken = self.taken.iter().filter(|taken| taken.subresource == subresource);
        taken.filter_map(|taken| taken.printer.as_ref()).next().unwrap_or(&self.printer)
    }

    /// The defaults of its objects.
    pub(crate) fn defaults(&self) -> Option<&'static dyn Defaulter> {
        self.defaults
    }

    /// The validation of its objects and of their updates. Objects are validated in the stored version, by the group of
    /// the request: events of both groups are stored in the same form and validated differently.
    pub fn rules(&self) -> &'static dyn Validator {
        self.rules
    }

    /// The conversion for an object that a request sends in its stored version, if there is one.
    pub(crate) fn canonical(&self) -> Option<&'static dyn Conversion> {
        self.canonical
    }

    /// Returns true if a delete of its objects returns the object rather than a `Status`.
    pub fn returns_deleted(&self) -> bool {
        self.strategy.delete.returns_deleted()
    }

    /// The strategies of its kind.
    pub(crate) fn strategy(&self) -> &'static Strategies {
        self.strategy
    }

    /// The fields of features that are off, which are dropped.
    pub(crate) fn closed_fields(&self) -> &[ClosedFields] {
        &self.closed_fields
    }

    /// The rules for the metadata of its objects.
    pub(crate) fn metadata_rules(&self) -> MetadataRules {
        self.metadata_rules
    }

    /// The columns of `kubectl get`.
    pub fn printer(&self) -> &Printer {
        &self.printer
    }

    /// The `apiVersion`s of stored objects that can be converted to this version. This version is the first.
    pub fn readable(&self) -> impl Iterator<Item = &str> {
        self.view.readable()
    }

    /// Returns true if no object can be stored in another version.
    pub fn is_sole(&self) -> bool {
        self.view.is_sole()
    }

    /// Prunes the fields of an object from another version that this version lacks, and reports no faults. Defaults are
    /// not set. As upstream, an object gets the defaults of the request's version when it is sent, and those of the
    /// stored version when it is read.
    pub(crate) fn shape(&self, object: &mut Object) {
        if let Some(schema) = self.schema() {
            schema.walk(object, &mut WalkReport::default(), WalkOptions { defaults: false, ..WalkOptions::STORE });
        }
    }

    /// The deprecation warning of the version, if any.
    pub fn deprecation(&self) -> Option<&str> {
        self.deprecation.as_deref()
    }

    /// The fields that every object of this version has, which therefore get no owner.
    pub(crate) fn empty(&self) -> &Value {
        &self.empty
    }

    /// The status that its schema gives an object without one. `None` for a built-in kind, and for a schema without
    /// such a default.
    pub(crate) fn default_status(&self) -> Option<&Value> {
        self.default_status.as_ref()
    }

    /// The priority of the version among the versions of its group in discovery, higher first.
    pub fn priority(&self) -> u32 {
        self.priority
    }
}

impl Deref for KindVersion {
    type Target = ServedVersion;

    fn deref(&self) -> &ServedVersion {
        &self.served
    }
}

fn default_status(schema: SchemaRef<'_>) -> Option<Value> {
    let mut object = Object::default();
    schema.is_structural().then(|| schema.walk(&mut object, &mut WalkReport::default(), WalkOptions::STORE));
    object.0.remove("status")
}

fn empty(kind: &GroupVersionKind, schema: Option<SchemaRef<'_>>) -> Value {
    let mut object = Object::default();
    object.set_type(kind);
    if let Some(schema) = schema {
        let options = WalkOptions { defaults: false, ..WalkOptions::STORE };
        schema.walk(&mut object, &mut WalkReport::default(), options);
    }
    object.into_value()
}
