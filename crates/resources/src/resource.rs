//! A resource, as an owned value that is shared.
//!
//! A resource is described by data alone: what it is called, where it is served and stored, and which verbs, subresources and
//! selectable fields it has. The built-in ones come from the declarations in [`crate::declare`]; others are made while the
//! server runs. Rules for objects are not here, since they need schemas and other objects.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use keelson_meta::names::NameRule;
use keelson_meta::{GroupKind, GroupResource, GroupVersionKind};

use crate::fields::{FieldRefusal, SelectableField};

/// A text that is usually part of the program and sometimes was made while it runs.
pub type Text = Cow<'static, str>;

/// A resource in all its versions.
#[derive(Clone, Debug)]
pub struct Resource {
    /// The API group, empty for the core group.
    pub group: Text,
    /// The plural name, as it stands in paths.
    pub plural: Text,
    /// The singular name.
    pub singular: Text,
    /// The kind of its objects.
    pub kind: Text,
    /// The kind of a list of them.
    pub list_kind: Text,
    /// Whether its objects live in namespaces.
    pub scope: Scope,
    /// Abbreviations that command lines accept.
    pub short_names: Vec<Text>,
    /// Groups of resources it belongs to, such as `all`.
    pub categories: Vec<Text>,
    /// The versions it is served in, the preferred one first.
    pub versions: Vec<Arc<ServedVersion>>,
    /// Where and in which version it is stored, if it is.
    pub storage: ResourceStorage,
    /// What its objects may be called.
    pub name_rule: NameRule,
    /// The fields that a selector may name beside `metadata.name` and `metadata.namespace`.
    pub selectable_fields: Vec<SelectableField>,
    /// How a selector on any other field is refused.
    pub field_refusal: FieldRefusal,
    /// Stored paths by which the server itself finds objects, and no selector does.
    pub noted: Vec<Text>,
    /// The stored path that many watchers select by, each with one value; events are dispatched by it.
    pub dispatch: Option<Text>,
    /// Whether `metadata.generation` counts the changes of the spec.
    pub generation: bool,
    /// Whether an update of a name that is absent creates it.
    pub create_on_update: bool,
    /// Whether an update without a resourceVersion overwrites whatever is there.
    pub unconditional_update: bool,
    /// How long an object lives after it was last written; `None` for objects that stay until they are deleted.
    pub lifetime: Option<Duration>,
    /// Whether its objects hold on to others of their namespace as long as they are there, as pods do to claims and secrets. They
    /// are deleted first when the namespace is emptied.
    pub holds_others: bool,
    /// What answers a create, where nothing is stored.
    pub create_handler: Option<CreateHandler>,
}

/// Whether objects live in namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One set for the whole cluster.
    Cluster,
    /// A set in each namespace.
    Namespaced,
}

/// A version in which a resource is served.
#[derive(Clone, Debug)]
pub struct ServedVersion {
    /// The version, such as `v1`.
    pub name: Text,
    /// What can be done with the resource, in alphabetical order.
    pub verbs: Cow<'static, [Verb]>,
    /// Its subresources, ordered by name.
    pub subresources: Vec<Arc<Subresource>>,
    /// Whether it is known only for what lies in the store: no client finds it.
    pub hidden: bool,
}

/// A path below an object.
#[derive(Clone, Debug)]
pub struct Subresource {
    /// The last segment of the path, such as `status`.
    pub name: Text,
    /// What can be done with it, in alphabetical order.
    pub verbs: Cow<'static, [Verb]>,
    /// The kind that it takes and gives.
    pub response: ResponseKind,
    /// What answers requests for it.
    pub handler: SubresourceHandler,
    /// Where the objects have what a `Scale` shows, if that is not where workloads have it.
    pub scale: Option<ScalePaths>,
}

/// Where objects have what a `Scale` shows: names of fields, each path below the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScalePaths {
    /// How many replicas are wanted.
    pub wanted: Vec<Text>,
    /// How many there are.
    pub actual: Vec<Text>,
    /// The label selector of the replicas, as a text; without it a scale shows none.
    pub selector: Option<Vec<Text>>,
}

/// What answers requests for a subresource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubresourceHandler {
    /// The verbs of its resource, confined to a part of the object.
    Confined,
    /// The same, shown and taken as a `Scale`.
    Scale,
    /// Binds a pod to a node.
    Binding,
    /// Deletes a pod as far as disruption budgets let it go.
    Eviction,
    /// Issues a token for a service account.
    Token,
    /// A kubelet would give the answer: logs, commands, forwarded ports of a pod.
    Kubelet,
    /// A pod would give the answer.
    PodProxy,
    /// A node or a service would give the answer.
    Proxy,
}

/// What answers the creates of a resource of which nothing is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateHandler {
    /// Binds a pod to a node.
    Binding,
    /// Says whose token this is.
    TokenReview,
    /// Says who the caller is.
    SelfSubjectReview,
    /// Says whether the caller may do something.
    SelfSubjectAccessReview,
    /// Says whether somebody may do something.
    SubjectAccessReview,
    /// Says what the caller may do.
    SelfSubjectRulesReview,
}

impl CreateHandler {
    /// Returns true if it answers a question about users.
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

/// The kind that a subresource takes and gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResponseKind {
    /// The kind of the resource itself.
    Parent,
    /// Another kind of the version that is asked.
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

/// Where objects of a resource are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResourceStorage {
    /// In the store.
    Persisted {
        /// The place below `/registry/`, without slashes at its ends: where Kubernetes keeps it, so that a store can be shared.
        prefix: Text,
        /// The group of the stored form, empty for the core group. It differs from the resource's own only for events.
        group: Text,
        /// The version of the stored form.
        version: Text,
    },
    /// Nowhere: each request is answered from what it says, or from other resources.
    Virtual,
}

/// What a request does, in the words of authorization and discovery.
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
    /// Whether it may change what is stored.
    pub fn is_write(self) -> bool {
        !matches!(self, Self::Get | Self::List | Self::Watch)
    }

    /// The verb as it is written.
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
    /// The scope in the words of discovery.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cluster => "Cluster",
            Self::Namespaced => "Namespaced",
        }
    }
}

impl ServedVersion {
    /// Whether a verb is served.
    pub fn allows(&self, verb: Verb) -> bool {
        self.verbs.contains(&verb)
    }

    /// The subresource of a name.
    pub fn subresource(&self, name: &str) -> Option<&Arc<Subresource>> {
        self.subresources.iter().find(|subresource| subresource.name == name)
    }

    /// Whether there is a `status` subresource, so that status and spec are written apart.
    pub fn has_status(&self) -> bool {
        self.subresource("status").is_some()
    }
}

impl Subresource {
    /// Whether a kubelet, a pod or a service behind this server would give the answer.
    pub fn is_proxied(&self) -> bool {
        use SubresourceHandler::{Kubelet, PodProxy, Proxy};
        matches!(self.handler, Kubelet | PodProxy | Proxy)
    }

    /// Whether what follows it in a path is the path of a request that is passed on.
    pub fn takes_path(&self) -> bool {
        matches!(self.handler, SubresourceHandler::PodProxy | SubresourceHandler::Proxy)
    }

    /// Whether a verb is served.
    pub fn allows(&self, verb: Verb) -> bool {
        self.verbs.contains(&verb)
    }

    /// The kind that it takes and gives, below a version of a resource.
    pub fn gvk(&self, resource: &Resource, version: &str) -> GroupVersionKind {
        match &self.response {
            ResponseKind::Parent => resource.gvk(version),
            ResponseKind::Sibling(kind) => GroupVersionKind { kind: kind.to_string(), ..resource.gvk(version) },
            ResponseKind::Foreign { group, version, kind } => named(group, version, kind),
        }
    }
}

impl Resource {
    /// Returns true if its objects are reviews, which are answered and not stored.
    pub fn is_review(&self) -> bool {
        self.create_handler.is_some_and(CreateHandler::is_review)
    }

    /// Whether both are the same resource, in whatever version.
    pub fn is(&self, other: &Self) -> bool {
        (&self.plural, &self.group) == (&other.plural, &other.group)
    }

    /// A version it is served in.
    pub fn version(&self, name: &str) -> Option<&Arc<ServedVersion>> {
        self.versions.iter().find(|version| version.name == name)
    }

    /// Whether objects live in namespaces.
    pub fn is_namespaced(&self) -> bool {
        self.scope == Scope::Namespaced
    }

    /// Whether its objects are the namespaces, whose paths read like those of what is in them.
    pub fn is_namespaces(&self) -> bool {
        self.group.is_empty() && self.plural == "namespaces"
    }

    /// Whether objects are kept in the store.
    pub fn is_persisted(&self) -> bool {
        matches!(self.storage, ResourceStorage::Persisted { .. })
    }

    /// Whether a version of it has a `status` subresource.
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

    /// The group, version and kind that its objects are stored in unless a server is told otherwise; `None` when they are not stored.
    pub fn default_storage_kind(&self) -> Option<GroupVersionKind> {
        match &self.storage {
            ResourceStorage::Persisted { group, version, .. } => Some(named(group, version, &self.kind)),
            ResourceStorage::Virtual => None,
        }
    }

    /// The place of its collection below `/registry/`; `None` when it is not stored.
    pub fn storage_prefix(&self) -> Option<&Text> {
        match &self.storage {
            ResourceStorage::Persisted { prefix, .. } => Some(prefix),
            ResourceStorage::Virtual => None,
        }
    }

    /// The hash that legacy discovery publishes of its storage version; `None` when it is not stored.
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
