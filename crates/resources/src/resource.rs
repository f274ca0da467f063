//! A resource, as a shared, owned value.
//!
//! A resource is pure data: names, versions, storage, verbs, subresources and selectable fields. The built-in ones come
//! from the declarations in [`crate::declare`], others are created at run time. Rules for objects are elsewhere, since
//! they need schemas and other objects.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use keelson_meta::names::NameRule;
use keelson_meta::{GroupKind, GroupResource, GroupVersionKind};

use crate::fields::{FieldRefusal, SelectableField};

/// A text that is usually part of the program, and sometimes created at run time.
pub type Text = Cow<'static, str>;

/// A resource in all its versions.
#[derive(Clone, Debug)]
pub struct Resource {
    /// The API group. Empty for the core group.
    pub group: Text,
    /// The plural name, as in paths.
    pub plural: Text,
    /// The singular name.
    pub singular: Text,
    /// The kind of its objects.
    pub kind: Text,
    /// The kind of a list of them.
    pub list_kind: Text,
    /// The scope of its objects.
    pub scope: Scope,
    /// Abbreviations for command lines.
    pub short_names: Vec<Text>,
    /// Its categories, such as `all`.
    pub categories: Vec<Text>,
    /// Its versions, the preferred one first.
    pub versions: Vec<Arc<ServedVersion>>,
    /// Its storage.
    pub storage: ResourceStorage,
    /// The rule for the names of its objects.
    pub name_rule: NameRule,
    /// The selectable fields in addition to `metadata.name` and `metadata.namespace`.
    pub selectable_fields: Vec<SelectableField>,
    /// The refusal of other fields in selectors.
    pub field_refusal: FieldRefusal,
    /// Stored paths by which the server itself finds objects, which are not selectable.
    pub noted: Vec<Text>,
    /// The stored path of the field for dispatching events, on which many watches select one value.
    pub dispatch: Option<Text>,
    /// True if `metadata.generation` counts the changes of the spec.
    pub generation: bool,
    /// True if an update of an absent name creates it.
    pub create_on_update: bool,
    /// True if an update without a resourceVersion overwrites any version.
    pub unconditional_update: bool,
    /// The lifetime of an object after its last write. `None` for objects without expiry.
    pub lifetime: Option<Duration>,
    /// True if its objects use others of their namespace while they exist, as pods use claims and secrets. They are
    /// deleted first when the namespace is emptied.
    pub holds_others: bool,
    /// The handler of creates, if nothing is stored.
    pub create_handler: Option<CreateHandler>,
    /// The feature gate without which it is not served, if there is one.
    pub gate: Option<Text>,
}

/// The scope of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One set for the whole cluster.
    Cluster,
    /// A set in each namespace.
    Namespaced,
}

/// A version of a resource.
#[derive(Clone, Debug)]
pub struct ServedVersion {
    /// The version, such as `v1`.
    pub name: Text,
    /// Its verbs, in alphabetical order.
    pub verbs: Cow<'static, [Verb]>,
    /// Its subresources, sorted by name.
    pub subresources: Vec<Arc<Subresource>>,
    /// True if it exists only for stored objects and is hidden from clients.
    pub hidden: bool,
}

/// A path below an object.
#[derive(Clone, Debug)]
pub struct Subresource {
    /// The last segment of the path, such as `status`.
    pub name: Text,
    /// Its verbs, in alphabetical order.
    pub verbs: Cow<'static, [Verb]>,
    /// The kind of its requests and responses.
    pub response: ResponseKind,
    /// The handler of its requests.
    pub handler: SubresourceHandler,
    /// The paths of a `Scale`'s fields, if they differ from those of workloads.
    pub scale: Option<ScalePaths>,
}

/// The paths of a `Scale`'s fields in an object, as field names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScalePaths {
    /// The desired replicas.
    pub wanted: Vec<Text>,
    /// The current replicas.
    pub actual: Vec<Text>,
    /// The label selector of the replicas, as a text. Without it a scale shows none.
    pub selector: Option<Vec<Text>>,
}

/// The handler of a subresource's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubresourceHandler {
    /// The verbs of its resource, confined to a part of the object.
    Confined,
    /// The verbs of its resource, in the form of a `Scale`.
    Scale,
    /// Binds a pod to a node.
    Binding,
    /// Deletes a pod if disruption budgets allow it.
    Eviction,
    /// Issues a token for a service account.
    Token,
    /// Proxied to a kubelet: logs, commands, forwarded ports of a pod.
    Kubelet,
    /// Proxied to a pod.
    PodProxy,
    /// Proxied to a node or a service.
    Proxy,
}

/// The handler of creates for a resource without storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateHandler {
    /// Binds a pod to a node.
    Binding,
    /// Authenticates a token.
    TokenReview,
    /// Returns the client's user.
    SelfSubjectReview,
    /// Authorizes an action for the client.
    SelfSubjectAccessReview,
    /// Authorizes an action for any user.
    SubjectAccessReview,
    /// Lists the client's permissions.
    SelfSubjectRulesReview,
}

impl CreateHandler {
    /// Returns true for authentication and authorization reviews.
    fn is_review(self) -> bool {
        match self {
            Self::Binding => false,
            Self::TokenReview
            | Self::SelfSubjectReview
            | Self::SelfSubjectAccessReview
            | Self::SubjectAccessReview
            | Self::SelfSubjectRulesReview => true,
        }
    }
}

/// The kind of a subresource's requests and responses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResponseKind {
    /// The kind of the resource itself.
    Parent,
    /// Another kind of the requested version.
    Sibling(Text),
    /// A kind of another group.
    Foreign {
        /// The group, never empty.
        group: Text,
        /// The version.
        version: Text,
        /// The kind.
        kind: Text,
    },
}

/// The storage of a resource's objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResourceStorage {
    /// In the store.
    Persisted {
        /// The path below `/registry/`, without slashes at its ends: that of Kubernetes, so that a store can be shared.
        prefix: Text,
        /// The group of the stored form. Empty for the core group. It differs from the resource's own only for events.
        group: Text,
        /// The version of the stored form.
        version: Text,
    },
    /// Not stored: responses are computed from requests or other resources.
    Virtual,
}

/// The verb of a request, in the words of authorization and discovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verb {
    /// `create`
    Create,
    /// `delete`
    Delete,
    /// `deletecollection`
    DeleteCollection,
    /// `get`
    Get,
    /// `list`
    List,
    /// `patch`
    Patch,
    /// `update`
    Update,
    /// `watch`
    Watch,
}

impl Verb {
    /// Returns true if it may change stored objects.
    pub fn is_write(self) -> bool {
        !matches!(self, Self::Get | Self::List | Self::Watch)
    }

    /// The text form.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
            Self::Get => "get",
            Self::List => "list",
            Self::Patch => "patch",
            Self::Update => "update",
            Self::Watch => "watch",
        }
    }
}

impl Scope {
    /// The scope in discovery.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cluster => "Cluster",
            Self::Namespaced => "Namespaced",
        }
    }
}

impl ServedVersion {
    /// Returns true if a verb is served.
    pub fn allows(&self, verb: Verb) -> bool {
        self.verbs.contains(&verb)
    }

    /// The subresource of this name.
    pub fn subresource(&self, name: &str) -> Option<&Arc<Subresource>> {
        self.subresources.iter().find(|subresource| subresource.name == name)
    }

    /// Returns true if there is a `status` subresource, so that status and spec are written separately.
    pub fn has_status(&self) -> bool {
        self.subresource("status").is_some()
    }
}

impl Subresource {
    /// Returns true for requests to a kubelet, a pod or a service behind this server.
    pub fn is_proxied(&self) -> bool {
        use SubresourceHandler::{Kubelet, PodProxy, Proxy};
        matches!(self.handler, Kubelet | PodProxy | Proxy)
    }

    /// Returns true if the rest of a path belongs to the proxied request.
    pub fn takes_path(&self) -> bool {
        matches!(self.handler, SubresourceHandler::PodProxy | SubresourceHandler::Proxy)
    }

    /// Returns true if a verb is served.
    pub fn allows(&self, verb: Verb) -> bool {
        self.verbs.contains(&verb)
    }

    /// The kind of its requests and responses, for a version of a resource.
    pub fn gvk(&self, resource: &Resource, version: &str) -> GroupVersionKind {
        match &self.response {
            ResponseKind::Parent => resource.gvk(version),
            ResponseKind::Sibling(kind) => GroupVersionKind { kind: kind.to_string(), ..resource.gvk(version) },
            ResponseKind::Foreign { group, version, kind } => named(group, version, kind),
        }
    }
}

impl Resource {
    /// Returns true if its objects are reviews, which are not stored.
    pub fn is_review(&self) -> bool {
        self.create_handler.is_some_and(CreateHandler::is_review)
    }

    /// Returns true for the same resource, in any version.
    pub fn is(&self, other: &Self) -> bool {
        (&self.plural, &self.group) == (&other.plural, &other.group)
    }

    /// The version of this name.
    pub fn version(&self, name: &str) -> Option<&Arc<ServedVersion>> {
        self.versions.iter().find(|version| version.name == name)
    }

    /// Returns true if objects are namespaced.
    pub fn is_namespaced(&self) -> bool {
        self.scope == Scope::Namespaced
    }

    /// Returns true for namespaces, whose paths resemble those of their contents.
    pub fn is_namespaces(&self) -> bool {
        self.group.is_empty() && self.plural == "namespaces"
    }

    /// Returns true if objects are stored.
    pub fn is_persisted(&self) -> bool {
        matches!(self.storage, ResourceStorage::Persisted { .. })
    }

    /// Returns true if a version has a `status` subresource.
    pub fn has_status(&self) -> bool {
        self.versions.iter().any(|version| version.has_status())
    }

    /// Its kind in a version.
    pub fn gvk(&self, version: &str) -> GroupVersionKind {
        named(&self.group, version, &self.kind)
    }

    /// Its kind without a version.
    pub fn group_kind(&self) -> GroupKind {
        GroupKind { group: self.group.to_string(), kind: self.kind.to_string() }
    }

    /// Its name without a version.
    pub fn group_resource(&self) -> GroupResource {
        GroupResource { group: self.group.to_string(), resource: self.plural.to_string() }
    }

    /// The default storage group, version and kind. `None` if objects are not stored.
    pub fn default_storage_kind(&self) -> Option<GroupVersionKind> {
        match &self.storage {
            ResourceStorage::Persisted { group, version, .. } => Some(named(group, version, &self.kind)),
            ResourceStorage::Virtual => None,
        }
    }

    /// The path of its collection below `/registry/`. `None` if it is not stored.
    pub fn storage_prefix(&self) -> Option<&Text> {
        match &self.storage {
            ResourceStorage::Persisted { prefix, .. } => Some(prefix),
            ResourceStorage::Virtual => None,
        }
    }

    /// The hash of its storage version in legacy discovery. `None` if it is not stored.
    pub fn storage_version_hash(&self) -> Option<String> {
        match &self.storage {
            ResourceStorage::Persisted { group, version, .. } => {
                Some(crate::storage_version_hash(group, version, &self.kind))
            }
            ResourceStorage::Virtual => None,
        }
    }
}

fn named(group: &str, version: &str, kind: &str) -> GroupVersionKind {
    GroupVersionKind { group: group.to_owned(), version: version.to_owned(), kind: kind.to_owned() }
}
