//! The target of a request: a resource in a version, and the namespace and name of its URL.
//!
//! It keeps the surface in which it was found, so that a request sees one state of what is served from its beginning to its
//! end.

use std::sync::Arc;

use keelson_cache::Collection;
use keelson_meta::{ApiError, GroupKind, GroupResource, GroupVersionKind};
use keelson_resources::{CreateHandler, ResponseKind, Subresource, Verb};
use keelson_schema::{SchemaRef, Structural};

use crate::kind_rules::Defaulter;
use crate::strategy::Strategies;
use crate::surface::{KindVersion, ServedResource, StoredCollection, Surface};
use crate::view::VersionedView;

/// The resource, version, subresource, namespace and name of a URL, and the surface that they were found in.
#[derive(Clone)]
pub struct Target {
    /// What was served when the request came.
    pub surface: Arc<Surface>,
    /// The resource.
    pub resource: Arc<ServedResource>,
    /// The version it is asked for in.
    pub version: Arc<KindVersion>,
    /// The subresource, if any.
    pub subresource: Option<Arc<Subresource>>,
    /// The namespace of the URL; `None` for cluster-scoped resources and for requests over all namespaces.
    pub namespace: Option<String>,
    /// The name of the URL; `None` for collections.
    pub name: Option<String>,
}

impl Target {
    /// Whether status and rest of its objects are written apart. The versions of a custom resource differ in it.
    pub(crate) fn parts_status(&self) -> bool {
        if self.resource.is_builtin() { self.resource.has_status() } else { self.version.has_status() }
    }

    /// The same in a namespace.
    #[must_use]
    pub fn in_namespace(mut self, namespace: Option<&str>) -> Self {
        self.namespace = namespace.map(str::to_owned);
        self
    }

    /// The same for one object.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// The same below a subresource of this name; as it is where there is none.
    #[must_use]
    pub fn below(mut self, subresource: &str) -> Self {
        self.subresource = self.version.subresource(subresource).cloned();
        self
    }

    /// The continue token of a list that nothing follows. As upstream has it, lists of custom resources say so and others say nothing.
    pub fn token_at_end(&self) -> Option<&'static str> {
        (!self.resource.is_builtin()).then_some("")
    }

    /// Whether what is sent to the URL is a custom resource.
    pub fn is_custom_kind(&self) -> bool {
        let is_own = self.subresource.as_ref().is_none_or(|below| below.response == ResponseKind::Parent);
        !self.resource.is_builtin() && is_own
    }

    /// Whether objects are written in another version than this request's, by who does not know what versions mean here.
    pub(crate) fn is_converted(&self) -> bool {
        !self.resource.is_builtin() && self.kind() != self.storage_kind()
    }

    /// Whether objects of the resource live in namespaces.
    pub fn is_namespaced(&self) -> bool {
        self.resource.is_namespaced()
    }

    /// The group and plural name, as errors name the resource.
    pub fn group_resource(&self) -> GroupResource {
        self.resource.group_resource()
    }

    /// The group and kind, as validation errors name it: those in which its objects are stored. Events are of the core group there,
    /// whichever group they are served in.
    pub fn group_kind(&self) -> GroupKind {
        let stored = self.resource.default_storage_kind();
        stored.map_or_else(
            || self.resource.group_kind(),
            |GroupVersionKind { group, kind, .. }| GroupKind { group, kind },
        )
    }

    /// The kind in the version that was asked for.
    pub fn kind(&self) -> &GroupVersionKind {
        self.version.kind()
    }

    /// The kind that the URL takes: that of the resource, or that of its subresource.
    pub fn taken_kind(&self) -> GroupVersionKind {
        match &self.subresource {
            None => self.kind().clone(),
            Some(below) => below.gvk(&self.resource, &self.version.name),
        }
    }

    /// Whether the resource can be read though nothing of it is stored, so that there is nothing to be read:
    /// componentstatuses, which this server has none of.
    pub(crate) fn is_empty_by_nature(&self) -> bool {
        !self.resource.is_persisted() && self.version.verbs.contains(&Verb::List)
    }

    /// Where the objects are stored; `None` for resources that are not.
    pub fn stored(&self) -> Option<&Arc<StoredCollection>> {
        self.resource.stored()
    }

    /// The strategies of its kind.
    pub fn strategy(&self) -> &'static Strategies {
        self.version.strategy()
    }

    /// How often each byte of an object may be looked at when it is judged: that of a custom resource by its schema. `u64::MAX` where
    /// even a small one may take long, as that of a definition, whose schemas and rules are compiled, or a review of all rules of a user.
    pub fn effort(&self) -> u64 {
        let lists_rules = self.resource.create_handler == Some(CreateHandler::SelfSubjectRulesReview);
        if lists_rules || self.strategy().write.is_judged_long() {
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

    /// The schema of a kind that this request is about: the target's own in any of its versions, or what its subresource takes.
    /// `None` for a kind that takes whatever it is sent.
    pub fn schema_of(&self, kind: &GroupVersionKind) -> Option<SchemaRef<'_>> {
        self.form_of(kind).map(|(schema, _)| schema)
    }

    /// The same together with the defaults that are filled in before an object is held against the schema.
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

    /// How stored objects are shown to this request.
    pub fn view(&self) -> VersionedView {
        VersionedView::of(self)
    }

    /// The kind that this server writes objects to the store as.
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
            // Each get and write makes one: the formatter takes four times as long as a concatenation.
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

    /// The path of the field by which watchers of this resource are found.
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
