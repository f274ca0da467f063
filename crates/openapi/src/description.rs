//! The input of OpenAPI documents: the resources and verbs of each group version.
//!
//! Descriptions own their values. So built-in and custom resources have one form, and a description outlives its
//! source. The schema of a built-in kind is not included, since it can be found by kind.

use std::sync::Arc;

use keelson_meta::GroupVersionKind;
use keelson_resources::{Catalogue, GroupVersionEntry, Resource, ServedVersion, Verb};
use keelson_schema::SchemaDocument;

use crate::custom::CustomKind;

/// One version of a group.
#[derive(Clone, Debug)]
pub struct VersionDescription {
    /// The group. Empty for the core group.
    pub group: String,
    /// The version.
    pub version: String,
    /// Its resources, in any order.
    pub resources: Vec<ResourceDescription>,
}

/// A resource in one version.
#[derive(Clone, Debug)]
pub struct ResourceDescription {
    /// The plural name.
    pub plural: String,
    /// The kind of its objects.
    pub kind: GroupVersionKind,
    /// True if its objects are namespaced.
    pub namespaced: bool,
    /// Its verbs.
    pub verbs: Vec<Verb>,
    /// Its subresources, in displayed order.
    pub subresources: Vec<SubresourceDescription>,
    /// True if a delete returns the deleted object instead of a `Status`.
    pub returns_deleted: bool,
    /// The properties of a custom kind. `None` for a built-in one, whose definition is shared.
    pub custom: Option<CustomKind>,
}

/// A subresource in one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubresourceDescription {
    /// The last segment of its path.
    pub name: String,
    /// The kind of its requests and responses.
    pub kind: GroupVersionKind,
    /// Its verbs.
    pub verbs: Vec<Verb>,
}

impl VersionDescription {
    /// All versions of a catalogue's groups, served or not.
    pub fn all(catalogue: &Catalogue) -> Vec<Self> {
        let mut all = Vec::new();
        for group in catalogue.groups() {
            for version in group.versions.iter() {
                let GroupVersionEntry { name, .. } = version;
                let resources = group.known_in(name);
                let resources: Vec<_> =
                    resources.map(|(resource, served)| ResourceDescription::new(resource, served)).collect();
                if !resources.is_empty() {
                    let (group, version) = (group.name.to_string(), name.to_string());
                    all.push(Self { group, version, resources });
                }
            }
        }
        all
    }

    /// Returns true if it has built-in resources. As in kube-apiserver, for other versions only the resources are
    /// described, without the pages that list groups and versions.
    pub(crate) fn is_builtin(&self) -> bool {
        self.resources.iter().any(|resource| resource.custom.is_none())
    }

    /// The path of the group version without a leading slash: `api/v1` or `apis/<group>/<version>`.
    pub(crate) fn path(&self) -> String {
        match &*self.group {
            "" => format!("api/{}", self.version),
            group => format!("apis/{group}/{}", self.version),
        }
    }
}

impl ResourceDescription {
    /// The description of a resource of this server in one of its versions. Subresources of kubelets and pods are left
    /// out, since this server does not answer them.
    pub fn new(resource: &Resource, served: &ServedVersion) -> Self {
        let ServedVersion { name: version, .. } = served;
        let answered = served.subresources.iter().filter(|subresource| !subresource.is_proxied());
        let subresources = answered.map(|subresource| SubresourceDescription {
            name: subresource.name.to_string(),
            kind: subresource.gvk(resource, version),
            verbs: subresource.verbs.to_vec(),
        });
        Self {
            plural: resource.plural.to_string(),
            kind: resource.gvk(version),
            namespaced: resource.is_namespaced(),
            verbs: served.verbs.to_vec(),
            subresources: subresources.collect(),
            returns_deleted: false,
            custom: None,
        }
    }

    /// Sets whether a delete returns the deleted object or a `Status`.
    #[must_use]
    pub fn returning_deleted(self, returns_deleted: bool) -> Self {
        Self { returns_deleted, ..self }
    }

    /// The description of a custom resource in one of its versions, with its schema.
    pub fn of_custom(resource: &Resource, served: &ServedVersion, schema: Option<&Arc<dyn SchemaDocument>>) -> Self {
        let in_version = |versions: &Vec<_>| versions.contains(&served.name);
        let fields = resource.selectable_fields.iter();
        let fields = fields.filter(|field| field.versions.as_ref().is_none_or(in_version));
        let custom = CustomKind {
            list_kind: resource.list_kind.to_string(),
            selectable_fields: fields.map(|field| field.name.to_string()).collect(),
            schema: schema.cloned(),
        };
        Self { custom: Some(custom), ..Self::new(resource, served) }
    }

    pub(crate) fn allows(&self, verb: Verb) -> bool {
        self.verbs.contains(&verb)
    }
}
