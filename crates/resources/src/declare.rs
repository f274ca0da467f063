//! The declarations of the built-in groups: constants, and `const fn` steps with the usual case as default.
//!
//! Declarations are part of the program and cost nothing until [`GroupDeclaration::group`] makes of them the owned values that
//! the rest of the server works with, which resources that come while the server runs are made of, too.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use keelson_meta::names::NameRule;

use crate::fields::{FieldRefusal, SelectableField};
use crate::group::{Group, GroupVersionEntry};
use crate::resource::{
    CreateHandler, Resource, ResourceStorage, ResponseKind, Scope, ServedVersion, Subresource, SubresourceHandler,
    Text, Verb,
};

/// An API group with its resources.
pub struct GroupDeclaration {
    /// The group's name, empty for the core group.
    pub name: &'static str,
    /// Its place in discovery among other groups, higher first.
    pub priority: u32,
    /// Its versions with their places, the preferred one first.
    pub versions: &'static [(&'static str, u32)],
    /// Its resources, ordered by plural name.
    pub resources: &'static [Declaration],
}

/// A resource; the fields are those of [`Resource`].
pub struct Declaration {
    group: &'static str,
    plural: &'static str,
    singular: &'static str,
    kind: &'static str,
    scope: Scope,
    short_names: &'static [&'static str],
    categories: &'static [&'static str],
    versions: &'static [VersionDeclaration],
    storage: StorageDeclaration,
    name_rule: NameRule,
    selectable_fields: &'static [FieldDeclaration],
    field_refusal: FieldRefusal,
    noted: &'static [&'static str],
    dispatch: Option<&'static str>,
    generation: bool,
    create_on_update: bool,
    unconditional_update: bool,
    lifetime: Option<Duration>,
    holds_others: bool,
    create_handler: Option<CreateHandler>,
}

/// A version in which a resource is served.
#[derive(Clone, Copy)]
pub struct VersionDeclaration {
    name: &'static str,
    verbs: &'static [Verb],
    subresources: &'static [SubresourceDeclaration],
    hidden: bool,
}

/// A path below an object.
#[derive(Clone, Copy)]
pub struct SubresourceDeclaration {
    name: &'static str,
    verbs: &'static [Verb],
    response: ResponseDeclaration,
    handler: SubresourceHandler,
}

#[derive(Clone, Copy)]
enum ResponseDeclaration {
    Parent,
    Sibling(&'static str),
    Foreign { group: &'static str, version: &'static str, kind: &'static str },
}

#[derive(Clone, Copy)]
enum StorageDeclaration {
    Persisted { prefix: &'static str, group: &'static str, version: &'static str },
    Virtual,
}

/// A field that field selectors may name.
pub struct FieldDeclaration {
    name: &'static str,
    paths: &'static [&'static str],
    absent: &'static str,
}

/// How long events live: what kube-apiserver's `--event-ttl` is when nobody sets it.
pub const EVENT_LIFETIME: Duration = Duration::from_hours(1);

/// Everything that can be done with an ordinary resource.
pub const EVERYTHING: &[Verb] = &[
    Verb::Create,
    Verb::Delete,
    Verb::DeleteCollection,
    Verb::Get,
    Verb::List,
    Verb::Patch,
    Verb::Update,
    Verb::Watch,
];
/// The only verb of reviews, which are answered and not stored.
pub const CREATE: &[Verb] = &[Verb::Create];
/// What can be done with a part of an object.
pub const GET_PATCH_UPDATE: &[Verb] = &[Verb::Get, Verb::Patch, Verb::Update];

/// The observed state of an object.
pub const STATUS: SubresourceDeclaration = subresource("status", GET_PATCH_UPDATE);
/// The number of replicas, in the form common to all workloads.
pub const SCALE: SubresourceDeclaration =
    subresource("scale", GET_PATCH_UPDATE).foreign("autoscaling", "v1", "Scale").handled_by(SubresourceHandler::Scale);

/// The versions of an ordinary resource.
const ONLY_V1: &[VersionDeclaration] = &[served("v1")];

/// A version with every verb and no subresources. One that is not stable is served on demand, as in the reference server.
pub const fn served(name: &'static str) -> VersionDeclaration {
    VersionDeclaration { name, verbs: EVERYTHING, subresources: &[], hidden: !is_stable(name) }
}

/// Returns true for a version that is `v` and a number.
const fn is_stable(name: &str) -> bool {
    let bytes = name.as_bytes();
    let mut place = 1;
    while place < bytes.len() {
        if !bytes[place].is_ascii_digit() {
            return false;
        }
        place += 1;
    }
    true
}

/// A subresource that takes and gives the kind of its resource.
pub const fn subresource(name: &'static str, verbs: &'static [Verb]) -> SubresourceDeclaration {
    SubresourceDeclaration { name, verbs, response: ResponseDeclaration::Parent, handler: SubresourceHandler::Confined }
}

impl VersionDeclaration {
    /// States its verbs.
    pub const fn verbs(mut self, verbs: &'static [Verb]) -> Self {
        self.verbs = verbs;
        self
    }

    /// States its subresources.
    pub const fn with(mut self, subresources: &'static [SubresourceDeclaration]) -> Self {
        self.subresources = subresources;
        self
    }

    /// Serves it without a setting that asks for it, though it is not stable.
    pub const fn by_default(mut self) -> Self {
        self.hidden = false;
        self
    }
}

impl SubresourceDeclaration {
    /// States the handler of its requests.
    pub const fn handled_by(mut self, handler: SubresourceHandler) -> Self {
        self.handler = handler;
        self
    }

    /// Takes and returns another kind of the same group and version.
    pub const fn sibling(mut self, kind: &'static str) -> Self {
        self.response = ResponseDeclaration::Sibling(kind);
        self
    }

    /// Takes and returns a kind of another group.
    pub const fn foreign(mut self, group: &'static str, version: &'static str, kind: &'static str) -> Self {
        self.response = ResponseDeclaration::Foreign { group, version, kind };
        self
    }
}

/// An ordinary resource of a cluster: every verb in `v1`, stored under its plural name as `v1`.
pub const fn cluster(
    group: &'static str,
    plural: &'static str,
    singular: &'static str,
    kind: &'static str,
) -> Declaration {
    Declaration {
        group,
        plural,
        singular,
        kind,
        scope: Scope::Cluster,
        short_names: &[],
        categories: &[],
        versions: ONLY_V1,
        storage: StorageDeclaration::Persisted { prefix: plural, group, version: "v1" },
        name_rule: NameRule::DnsSubdomain,
        selectable_fields: &[],
        field_refusal: FieldRefusal::OnlyMetadata,
        noted: &[],
        dispatch: None,
        generation: false,
        create_on_update: false,
        unconditional_update: true,
        lifetime: None,
        holds_others: false,
        create_handler: None,
    }
}

/// An ordinary resource in namespaces: every verb in `v1`, stored under its plural name as `v1`.
pub const fn namespaced(
    group: &'static str,
    plural: &'static str,
    singular: &'static str,
    kind: &'static str,
) -> Declaration {
    let mut resource = cluster(group, plural, singular, kind);
    resource.scope = Scope::Namespaced;
    resource
}

impl Declaration {
    /// States its short names.
    pub const fn short_names(mut self, names: &'static [&'static str]) -> Self {
        self.short_names = names;
        self
    }

    /// States its categories.
    pub const fn categories(mut self, categories: &'static [&'static str]) -> Self {
        self.categories = categories;
        self
    }

    /// States its versions, the preferred one first.
    pub const fn versions(mut self, versions: &'static [VersionDeclaration]) -> Self {
        self.versions = versions;
        self
    }

    /// Stores it in another place than its plural name.
    pub const fn stored_at(mut self, place: &'static str) -> Self {
        if let StorageDeclaration::Persisted { prefix, .. } = &mut self.storage {
            *prefix = place;
        }
        self
    }

    /// Stores it in another group and version than its own `v1`.
    pub const fn stored_as(mut self, stored_group: &'static str, stored_version: &'static str) -> Self {
        if let StorageDeclaration::Persisted { group, version, .. } = &mut self.storage {
            *group = stored_group;
            *version = stored_version;
        }
        self
    }

    /// Answers each create, and stores nothing.
    pub const fn answered_by(mut self, handler: CreateHandler) -> Self {
        self.create_handler = Some(handler);
        self.not_stored()
    }

    /// Stores no objects.
    pub const fn not_stored(mut self) -> Self {
        self.storage = StorageDeclaration::Virtual;
        self
    }

    /// States the rule for the names of its objects.
    pub const fn names(mut self, rule: NameRule) -> Self {
        self.name_rule = rule;
        self
    }

    /// States its selectable fields, and how others are refused.
    pub const fn fields(mut self, refusal: FieldRefusal, fields: &'static [FieldDeclaration]) -> Self {
        self.field_refusal = refusal;
        self.selectable_fields = fields;
        self
    }

    /// Has the texts at stored paths at hand, for the server to find objects by.
    pub const fn notes(mut self, paths: &'static [&'static str]) -> Self {
        self.noted = paths;
        self
    }

    /// Finds the watchers of an object by a field.
    pub const fn dispatched_by(mut self, path: &'static str) -> Self {
        self.dispatch = Some(path);
        self
    }

    /// Counts changes of the specification in `metadata.generation`.
    pub const fn counts_generations(mut self) -> Self {
        self.generation = true;
        self
    }

    /// Creates an object by a PUT to a free name.
    pub const fn created_by_update(mut self) -> Self {
        self.create_on_update = true;
        self
    }

    /// Lets objects go when they have not been written for this long.
    pub const fn lives_for(mut self, lifetime: Duration) -> Self {
        self.lifetime = Some(lifetime);
        self
    }

    /// Says that its objects hold on to others of their namespace.
    pub const fn holding_others(mut self) -> Self {
        self.holds_others = true;
        self
    }

    /// Refuses updates without a resourceVersion.
    pub const fn updated_only_from_a_revision(mut self) -> Self {
        self.unconditional_update = false;
        self
    }
}

/// A field whose text is its value, empty when absent.
pub const fn text(path: &'static [&'static str; 1]) -> FieldDeclaration {
    FieldDeclaration { name: path[0], paths: path, absent: "" }
}

/// A boolean field, false when absent.
pub const fn boolean(path: &'static [&'static str; 1]) -> FieldDeclaration {
    FieldDeclaration { name: path[0], paths: path, absent: "false" }
}

/// A field that reads other paths than its name says.
pub const fn reads(name: &'static str, paths: &'static [&'static str]) -> FieldDeclaration {
    FieldDeclaration { name, paths, absent: "" }
}

/// A count that is zero when absent.
pub const fn count(name: &'static str, path: &'static [&'static str; 1]) -> FieldDeclaration {
    FieldDeclaration { name, paths: path, absent: "0" }
}

/// A version of a group and its place among the group's versions.
pub const fn version(name: &'static str, priority: u32) -> (&'static str, u32) {
    (name, priority)
}

impl GroupDeclaration {
    /// The group as it is served.
    pub fn group(&self) -> Group {
        let version = |(name, priority): &(&'static str, u32)| GroupVersionEntry {
            name: Text::Borrowed(name),
            priority: *priority,
        };
        Group {
            name: self.name.into(),
            priority: self.priority,
            versions: self.versions.iter().map(version).collect(),
            resources: self.resources.iter().map(|declared| Arc::new(declared.resource())).collect(),
        }
    }
}

impl Declaration {
    /// The resource as it is served.
    pub fn resource(&self) -> Resource {
        Resource {
            group: self.group.into(),
            plural: self.plural.into(),
            singular: self.singular.into(),
            kind: self.kind.into(),
            list_kind: format!("{}List", self.kind).into(),
            scope: self.scope,
            short_names: texts(self.short_names),
            categories: texts(self.categories),
            versions: self.versions.iter().map(|declared| Arc::new(declared.served())).collect(),
            storage: match self.storage {
                StorageDeclaration::Persisted { prefix, group, version } => {
                    ResourceStorage::Persisted { prefix: prefix.into(), group: group.into(), version: version.into() }
                }
                StorageDeclaration::Virtual => ResourceStorage::Virtual,
            },
            name_rule: self.name_rule,
            selectable_fields: self.selectable_fields.iter().map(FieldDeclaration::field).collect(),
            field_refusal: self.field_refusal,
            noted: texts(self.noted),
            dispatch: self.dispatch.map(Text::Borrowed),
            generation: self.generation,
            create_on_update: self.create_on_update,
            unconditional_update: self.unconditional_update,
            lifetime: self.lifetime,
            holds_others: self.holds_others,
            create_handler: self.create_handler,
        }
    }
}

impl VersionDeclaration {
    fn served(&self) -> ServedVersion {
        ServedVersion {
            name: self.name.into(),
            verbs: Cow::Borrowed(self.verbs),
            subresources: self.subresources.iter().map(|declared| Arc::new(declared.subresource())).collect(),
            hidden: self.hidden,
        }
    }
}

impl SubresourceDeclaration {
    fn subresource(&self) -> Subresource {
        Subresource {
            name: self.name.into(),
            verbs: Cow::Borrowed(self.verbs),
            response: match self.response {
                ResponseDeclaration::Parent => ResponseKind::Parent,
                ResponseDeclaration::Sibling(kind) => ResponseKind::Sibling(kind.into()),
                ResponseDeclaration::Foreign { group, version, kind } => {
                    ResponseKind::Foreign { group: group.into(), version: version.into(), kind: kind.into() }
                }
            },
            handler: self.handler,
            scale: None,
        }
    }
}

impl FieldDeclaration {
    fn field(&self) -> SelectableField {
        let (paths, absent) = (texts(self.paths), self.absent.into());
        SelectableField { name: self.name.into(), paths, absent, versions: None }
    }
}

fn texts(texts: &'static [&'static str]) -> Vec<Text> {
    texts.iter().map(|text| Text::Borrowed(text)).collect()
}
