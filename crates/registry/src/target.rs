//! What a request is about: a resource in a version, and the namespace and name of its URL.

use keelson_meta::{GroupKind, GroupResource, GroupVersionKind};
use keelson_resources::{Catalogue, Collection, Resource, ServedVersion, Subresource, Verb};

use crate::view::VersionedView;

/// The resource, version, subresource, namespace and name of a URL.
#[derive(Clone, Debug)]
pub struct Target {
    /// The resource.
    pub resource: &'static Resource,
    /// The version it is asked for in.
    pub version: &'static ServedVersion,
    /// The subresource, if any.
    pub subresource: Option<&'static Subresource>,
    /// The namespace of the URL; `None` for cluster-scoped resources and for requests over all namespaces.
    pub namespace: Option<String>,
    /// The name of the URL; `None` for collections.
    pub name: Option<String>,
}

impl Target {
    /// Whether objects of the resource live in namespaces.
    pub fn is_namespaced(&self) -> bool {
        self.resource.is_namespaced()
    }

    /// The group and plural name, as errors name the resource.
    pub fn group_resource(&self) -> GroupResource {
        self.resource.group_resource()
    }

    /// The group and kind, as validation errors name it.
    pub fn group_kind(&self) -> GroupKind {
        self.resource.group_kind()
    }

    /// The kind in the version that was asked for.
    pub fn kind(&self) -> GroupVersionKind {
        self.resource.gvk(self.version.name)
    }

    /// The kind that the URL takes: that of the resource, or that of its subresource.
    pub fn taken_kind(&self) -> GroupVersionKind {
        self.subresource.map_or_else(|| self.kind(), |below| below.gvk(self.resource, self.version.name))
    }

    /// Whether the resource can be read though nothing of it is stored, so that there is nothing to be read:
    /// componentstatuses, which this server has none of.
    pub(crate) fn is_empty_by_nature(&self) -> bool {
        self.stored().is_none() && self.version.verbs.contains(&Verb::List)
    }

    /// Where the objects are stored; `None` for resources that are not.
    pub fn stored(&self) -> Option<&'static Collection> {
        Catalogue::builtin().collection_of(self.resource)
    }

    /// How stored objects are shown to this request.
    pub fn view(&self) -> VersionedView {
        VersionedView::of(self)
    }

    /// The kind that objects are stored as.
    pub fn storage_kind(&self) -> GroupVersionKind {
        self.resource.storage_gvk().unwrap_or_else(|| self.kind())
    }

    /// The name of the subresource, if any.
    pub fn subresource_name(&self) -> Option<&'static str> {
        self.subresource.map(|subresource| subresource.name)
    }

    /// The key of an object of this target, relative to its collection.
    pub fn relative_key(&self, name: &str) -> String {
        match &self.namespace {
            Some(namespace) if self.is_namespaced() => format!("{namespace}/{name}"),
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
    pub fn dispatch_field(&self) -> Option<&'static str> {
        let stored = self.stored()?;
        stored.paths.get(stored.dispatch?).copied()
    }
}
