//! The target of a request: a resource in a version, and the namespace and name of its URL.
//!
//! A target keeps the surface in which it was found, so that a request sees one state of the served resources to its
//! end.

use std::sync::Arc;

use keelson_cache::Collection;
use keelson_meta::{ApiError, GroupKind, GroupResource, GroupVersionKind};
use keelson_resources::{CreateHandler, ResponseKind, Subresource, Verb};
use keelson_schema::{SchemaRef, Structural};

use crate::kind_rules::Defaulter;
use crate::strategy::Strategies;
use crate::surface::{KindVersion, ServedApis, ServedResource, StoredCollection};
use crate::view::VersionedView;

/// The resource, version, subresource, namespace and name of a URL, and the surface that they were found in.
#[derive(Clone)]
pub struct Target {
    /// The surface when the request began.
    pub surface: Arc<ServedApis>,
    /// The resource.
    pub resource: Arc<ServedResource>,
    /// The version of the request.
    pub version: Arc<KindVersion>,
    /// The subresource, if any.
    pub subresource: Option<Arc<Subresource>>,
    /// The namespace of the URL; `None` for cluster-scoped resources and for requests over all namespaces.
    pub namespace: Option<String>,
    /// The name of the URL; `None` for collections.
    pub name: Option<String>,
}

impl Target {
    /// Returns true if status and spec of its objects are written separately. The versions of a custom resource may
    /// differ in it.
    pub(crate) fn parts_status(&self) -> bool {
        if self.resource.is_builtin() { self.resource.has_status() } else { self.version.has_status() }
    }

    /// This target in a namespace.
    #[must_use]
    pub fn in_namespace(mut self, namespace: Option<&str>) -> Self {
        self.namespace = namespace.map(str::to_owned);
        self
    }

    /// This target for one object.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// This target below a subresource of this name. Without a subresource if there is none of that name.
    #[must_use]
    pub fn below(mut self, subresource: &str) -> Self {
        self.subresource = self.version.subresource(subresource).cloned();
        self
    }

    /// The continue token of a complete list. As upstream, it is empty for lists of custom resources and absent for
    /// others.
    pub fn token_at_end(&self) -> Option<&'static str> {
        (!self.resource.is_builtin()).then_some("")
    }

    /// Returns true if the URL accepts a custom resource.
    pub fn is_custom_kind(&self) -> bool {
        let is_own = self.subresource.as_ref().is_none_or(|below| below.response == ResponseKind::Parent);
        !self.resource.is_builtin() && is_own
    }

    /// Returns true for a custom resource whose stored version is not that of the request.
    pub(crate) fn is_converted(&self) -> bool {
        !self.resource.is_builtin() && self.kind() != self.storage_kind()
    }

    /// Returns true if the resource is namespaced.
    pub fn is_namespaced(&self) -> bool {
        self.resource.is_namespaced()
    }

    /// The group and plural name of the resource, for errors.
    pub fn group_resource(&self) -> GroupResource {
        self.resource.group_resource()
    }

    /// The group and kind of stored objects, for validation errors. Events are of the core group there, in whichever
    /// group they are served.
    pub fn group_kind(&self) -> GroupKind {
        let stored = self.resource.default_storage_kind();
        stored.map_or_else(
            || self.resource.group_kind(),
            |GroupVersionKind { group, kind, .. }| GroupKind { group, kind },
        )
    }

    /// The kind in the version of the request.
    pub fn kind(&self) -> &GroupVersionKind {
        self.version.kind()
    }

    /// The kind that the URL accepts: that of the resource, or that of its subresource.
    pub fn taken_kind(&self) -> GroupVersionKind {
        match &self.subresource {
            None => self.kind().clone(),
            Some(below) => below.gvk(&self.resource, &self.version.name),
        }
    }

    /// Returns true if the resource can be listed although nothing of it is stored, so that lists are empty:
    /// componentstatuses, which this server does not have.
    pub(crate) fn is_empty_by_nature(&self) -> bool {
        !self.resource.is_persisted() && self.version.verbs.contains(&Verb::List)
    }

    /// The stored collection; `None` for resources that are not stored.
    pub fn stored(&self) -> Option<&Arc<StoredCollection>> {
        self.resource.stored()
    }

    /// The strategies of its kind.
    pub fn strategy(&self) -> &'static Strategies {
        self.version.strategy()
    }

    /// The number of times that validation may read each byte of an object, which the schema decides for a custom
    /// resource. `u64::MAX` if even a small object may take long: a definition, whose schemas and rules are compiled,
    /// or a review of all rules of a user.
    pub fn effort(&self) -> u64 {
        let lists_rules = self.resource.create_handler == Some(CreateHandler::SelfSubjectRulesReview);
        if lists_rules || self.strategy().write.has_long_validation() {
            return u64::MAX;
        }
        self.version.structural().map_or(0, Structural::effort)
    }

    /// The objects in the cache.
    ///
    /// # Errors
    /// 405 for a resource that is not stored.
    pub fn collection(&self) -> Result<&Arc<Collection>, ApiError> {
        self.stored().map(|stored| &stored.cached).ok_or(ApiError::MethodNotAllowed)
    }

    /// The schema of a kind in this request: the target's own kind in any of its versions, or the kind that its
    /// subresource accepts. `None` for a kind without a schema, which accepts any fields.
    pub fn schema_of(&self, kind: &GroupVersionKind) -> Option<SchemaRef<'_>> {
        self.form_of(kind).map(|(schema, _)| schema)
    }

    /// As [`schema_of`](Self::schema_of), with the defaults that are set before an object is checked by the schema.
    pub(crate) fn form_of(&self, kind: &GroupVersionKind) -> Option<(SchemaRef<'_>, Option<&'static dyn Defaulter>)> {
        if let Some(below) = &self.subresource
            && let Some(taken) = self.version.taken_by(&below.name, kind)
        {
            return Some((taken.schema.get(), taken.defaults));
        }
        let version = if kind == self.kind() {
            &self.version
        } else {
            self.surface.by_kind(&kind.group, &kind.kind)?.version(&kind.version)?
        };
        version.schema().map(|schema| (schema, version.defaults()))
    }

    /// The view of stored objects in the version of this request.
    pub fn view(&self) -> VersionedView {
        VersionedView::new(self)
    }

    /// The kind in which this server stores objects.
    pub fn storage_kind(&self) -> &GroupVersionKind {
        self.resource.storage_kind().unwrap_or_else(|| self.kind())
    }

    /// The name of the subresource, if any.
    pub fn subresource_name(&self) -> Option<&str> {
        self.subresource.as_ref().map(|subresource| &*subresource.name)
    }

    /// The key of an object of this target, relative to its collection.
    pub fn relative_key(&self, name: &str) -> String {
        match &self.namespace {
            // Each get and write builds a key. A formatter takes four times as long as a concatenation.
            Some(namespace) if self.is_namespaced() => [namespace, "/", name].concat(),
            _ => name.to_owned(),
        }
    }

    /// The prefix of all relative keys below the URL: `<namespace>/`, or nothing.
    pub fn key_prefix(&self) -> String {
        match &self.namespace {
            Some(namespace) if self.is_namespaced() => format!("{namespace}/"),
            _ => String::new(),
        }
    }

    /// The path of the field that decides which watches of this resource get an event.
    pub fn dispatch_field(&self) -> Option<&str> {
        let layout = &self.stored()?.layout;
        layout.paths.get(layout.dispatch?).map(|path| &**path)
    }
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Target")
            .field("resource", &self.group_resource())
            .field("version", &self.version.name)
            .field("subresource", &self.subresource_name())
            .field("namespace", &self.namespace)
            .field("name", &self.name)
            .finish()
    }
}
