//! The declarations of the built-in groups: constants, built by `const fn` steps from common defaults.
//!
//! Declarations are part of the program and cost nothing until [`GroupDeclaration::group`] converts them to owned
//! values. Resources added at run time have the same owned form.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use keelson_meta::Release;
use keelson_meta::names::NameRule;

use crate::fields::{FieldRefusal, SelectableField};
use crate::group::{Group, GroupVersionEntry};
use crate::resource::{
    CreateHandler, Resource, ResourceStorage, ResponseKind, Scope, ServedVersion, Subresource, SubresourceHandler,
    Text, Verb,
};

/// An API group with its resources.
pub struct GroupDeclaration {
    /// The group's name. Empty for the core group.
    pub name: &'static str,
    /// The priority of the group in discovery, higher first.
    pub priority: u32,
    /// The versions of the group with their priorities, the preferred one first.
    pub versions: &'static [(&'static str, u32)],
    /// Its resources, sorted by plural name.
    pub resources: &'static [Declaration],
}

/// A resource, with the fields of [`Resource`].
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
    /// The minor version of the first release that counts generations.
    generation: Option<u32>,
    create_on_update: bool,
    unconditional_update: bool,
    lifetime: Option<Duration>,
    holds_others: bool,
    create_handler: Option<CreateHandler>,
    gate: Option<&'static str>,
}

/// A version in which a resource is served.
pub struct VersionDeclaration {
    name: &'static str,
    verbs: &'static [Verb],
    subresources: &'static [SubresourceDeclaration],
    hidden: bool,
    /// The minor versions of the first release with the version, and of the first one without it.
    releases: Range<u32>,
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

/// The minor version of a release and the storage version from then on.
type LaterVersion = Option<(u32, &'static str)>;

#[derive(Clone, Copy)]
enum StorageDeclaration {
    Persisted { prefix: &'static str, group: &'static str, version: &'static str, later: LaterVersion },
    Virtual,
}

/// A selectable field.
pub struct FieldDeclaration {
    name: &'static str,
    paths: &'static [&'static str],
    absent: &'static str,
    /// The minor version of the first release with the selector.
    since: u32,
}

/// The lifetime of events: the default of kube-apiserver's `--event-ttl`.
pub const EVENT_LIFETIME: Duration = Duration::from_hours(1);

/// The verbs of an ordinary resource.
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
/// The verb of reviews, which are not stored.
pub const CREATE: &[Verb] = &[Verb::Create];
/// The verbs of a part of an object.
pub const GET_PATCH_UPDATE: &[Verb] = &[Verb::Get, Verb::Patch, Verb::Update];

/// The observed state of an object.
pub const STATUS: SubresourceDeclaration = subresource("status", GET_PATCH_UPDATE);
/// The number of replicas, in the common form of all workloads.
pub const SCALE: SubresourceDeclaration =
    subresource("scale", GET_PATCH_UPDATE).foreign("autoscaling", "v1", "Scale").handled_by(SubresourceHandler::Scale);

/// The versions of an ordinary resource.
const ONLY_V1: &[VersionDeclaration] = &[served("v1")];

/// A version with every verb and no subresources. As in kube-apiserver, one that is not stable is disabled by default.
pub const fn served(name: &'static str) -> VersionDeclaration {
    VersionDeclaration { name, verbs: EVERYTHING, subresources: &[], hidden: !is_stable(name), releases: 0..u32::MAX }
}

/// Returns true for `v` and a number.
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

/// A subresource with the kind of its resource.
pub const fn subresource(name: &'static str, verbs: &'static [Verb]) -> SubresourceDeclaration {
    SubresourceDeclaration { name, verbs, response: ResponseDeclaration::Parent, handler: SubresourceHandler::Confined }
}

impl VersionDeclaration {
    /// Sets its verbs.
    pub const fn verbs(mut self, verbs: &'static [Verb]) -> Self {
        self.verbs = verbs;
        self
    }

    /// Sets its subresources.
    pub const fn with(mut self, subresources: &'static [SubresourceDeclaration]) -> Self {
        self.subresources = subresources;
        self
    }

    /// Sets the minor version of the first release that has it.
    pub const fn since(mut self, minor: u32) -> Self {
        self.releases.start = minor;
        self
    }

    /// Sets the minor version of the first release without it.
    pub const fn until(mut self, minor: u32) -> Self {
        self.releases.end = minor;
        self
    }

    /// Enables it by default, although it is not stable.
    pub const fn by_default(mut self) -> Self {
        self.hidden = false;
        self
    }
}

impl SubresourceDeclaration {
    /// Sets the handler of its requests.
    pub const fn handled_by(mut self, handler: SubresourceHandler) -> Self {
        self.handler = handler;
        self
    }

    /// Sets another kind of the same group and version as its request and response.
    pub const fn sibling(mut self, kind: &'static str) -> Self {
        self.response = ResponseDeclaration::Sibling(kind);
        self
    }

    /// Sets a kind of another group as its request and response.
    pub const fn foreign(mut self, group: &'static str, version: &'static str, kind: &'static str) -> Self {
        self.response = ResponseDeclaration::Foreign { group, version, kind };
        self
    }
}

/// An ordinary cluster-scoped resource: every verb in `v1`, stored under its plural name as `v1`.
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
        storage: StorageDeclaration::Persisted { prefix: plural, group, version: "v1", later: None },
        name_rule: NameRule::DnsSubdomain,
        selectable_fields: &[],
        field_refusal: FieldRefusal::OnlyMetadata,
        noted: &[],
        dispatch: None,
        generation: None,
        create_on_update: false,
        unconditional_update: true,
        lifetime: None,
        holds_others: false,
        create_handler: None,
        gate: None,
    }
}

/// An ordinary namespaced resource: every verb in `v1`, stored under its plural name as `v1`.
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
    /// Sets its short names.
    pub const fn short_names(mut self, names: &'static [&'static str]) -> Self {
        self.short_names = names;
        self
    }

    /// Sets its categories.
    pub const fn categories(mut self, categories: &'static [&'static str]) -> Self {
        self.categories = categories;
        self
    }

    /// Sets its versions, the preferred one first.
    pub const fn versions(mut self, versions: &'static [VersionDeclaration]) -> Self {
        self.versions = versions;
        self
    }

    /// Sets another storage path than its plural name.
    pub const fn stored_at(mut self, place: &'static str) -> Self {
        if let StorageDeclaration::Persisted { prefix, .. } = &mut self.storage {
            *prefix = place;
        }
        self
    }

    /// Sets another storage group and version than its own `v1`.
    pub const fn stored_as(mut self, stored_group: &'static str, stored_version: &'static str) -> Self {
        if let StorageDeclaration::Persisted { group, version, .. } = &mut self.storage {
            *group = stored_group;
            *version = stored_version;
        }
        self
    }

    /// Sets another storage version from a release on. A version becomes the storage version one release after it was
    /// introduced, when all servers on a store can read it.
    pub const fn later_stored_as(mut self, minor: u32, stored_version: &'static str) -> Self {
        if let StorageDeclaration::Persisted { later, .. } = &mut self.storage {
            *later = Some((minor, stored_version));
        }
        self
    }

    /// Sets the handler of creates, without storage.
    pub const fn answered_by(mut self, handler: CreateHandler) -> Self {
        self.create_handler = Some(handler);
        self.not_stored()
    }

    /// Disables storage.
    pub const fn not_stored(mut self) -> Self {
        self.storage = StorageDeclaration::Virtual;
        self
    }

    /// Sets the rule for names.
    pub const fn names(mut self, rule: NameRule) -> Self {
        self.name_rule = rule;
        self
    }

    /// Sets its selectable fields, and the refusal of others.
    pub const fn fields(mut self, refusal: FieldRefusal, fields: &'static [FieldDeclaration]) -> Self {
        self.field_refusal = refusal;
        self.selectable_fields = fields;
        self
    }

    /// Sets the stored paths by which the server finds objects.
    pub const fn notes(mut self, paths: &'static [&'static str]) -> Self {
        self.noted = paths;
        self
    }

    /// Sets the field for dispatching events to watches.
    pub const fn dispatched_by(mut self, path: &'static str) -> Self {
        self.dispatch = Some(path);
        self
    }

    /// Counts changes of the spec in `metadata.generation`.
    pub const fn counts_generations(self) -> Self {
        self.counts_generations_since(0)
    }

    /// Counts changes of the spec in `metadata.generation` from a release on.
    pub const fn counts_generations_since(mut self, minor: u32) -> Self {
        self.generation = Some(minor);
        self
    }

    /// Lets a PUT to a free name create the object.
    pub const fn created_by_update(mut self) -> Self {
        self.create_on_update = true;
        self
    }

    /// Expires objects after this time without a write.
    pub const fn lives_for(mut self, lifetime: Duration) -> Self {
        self.lifetime = Some(lifetime);
        self
    }

    /// Marks objects that reference others of their namespace.
    pub const fn holding_others(mut self) -> Self {
        self.holds_others = true;
        self
    }

    /// Serves it only while a feature gate is on.
    pub const fn behind(mut self, gate: &'static str) -> Self {
        self.gate = Some(gate);
        self
    }

    /// Refuses updates without a resourceVersion.
    pub const fn updated_only_from_a_revision(mut self) -> Self {
        self.unconditional_update = false;
        self
    }
}

/// A text field. Empty if absent.
pub const fn text(path: &'static [&'static str; 1]) -> FieldDeclaration {
    FieldDeclaration { name: path[0], paths: path, absent: "", since: 0 }
}

/// A boolean field. False if absent.
pub const fn boolean(path: &'static [&'static str; 1]) -> FieldDeclaration {
    FieldDeclaration { name: path[0], paths: path, absent: "false", since: 0 }
}

/// A field with other paths than its name.
pub const fn reads(name: &'static str, paths: &'static [&'static str]) -> FieldDeclaration {
    FieldDeclaration { name, paths, absent: "", since: 0 }
}

/// A count. Zero if absent.
pub const fn count(name: &'static str, path: &'static [&'static str; 1]) -> FieldDeclaration {
    FieldDeclaration { name, paths: path, absent: "0", since: 0 }
}

/// A version of a group and its priority.
pub const fn version(name: &'static str, priority: u32) -> (&'static str, u32) {
    (name, priority)
}

impl GroupDeclaration {
    /// The group in its owned form, as a release has it.
    pub fn group(&self, release: Release) -> Group {
        let version = |(name, priority): &(&'static str, u32)| GroupVersionEntry {
            name: Text::Borrowed(name),
            priority: *priority,
        };
        let declared = self.resources.iter().flat_map(|declared| declared.versions);
        let is_known = |(name, _): &&(&str, u32)| {
            let mut declared = declared.clone().filter(|version| version.name == *name).peekable();
            declared.peek().is_none() || declared.any(|version| version.is_in(release))
        };
        Group {
            name: self.name.into(),
            priority: self.priority,
            versions: self.versions.iter().filter(is_known).map(version).collect(),
            resources: self.resources.iter().filter_map(|declared| declared.resource(release).map(Arc::new)).collect(),
        }
    }
}

impl Declaration {
    /// The resource in its owned form, as a release has it. `None` if the release lacks it.
    pub fn resource(&self, release: Release) -> Option<Resource> {
        let versions = self.versions.iter().filter(|declared| declared.is_in(release));
        let versions: Vec<_> = versions.map(|declared| Arc::new(declared.served())).collect();
        if versions.is_empty() {
            return None;
        }
        let known_fields = self.selectable_fields.iter().filter(|field| field.since <= release.minor());
        Some(Resource {
            group: self.group.into(),
            plural: self.plural.into(),
            singular: self.singular.into(),
            kind: self.kind.into(),
            list_kind: format!("{}List", self.kind).into(),
            scope: self.scope,
            short_names: texts(self.short_names),
            categories: texts(self.categories),
            versions,
            storage: match self.storage {
                StorageDeclaration::Persisted { prefix, group, version, later } => {
                    let later = later.filter(|(minor, _)| *minor <= release.minor()).map(|(_, version)| version);
                    let version = later.unwrap_or(version).into();
                    ResourceStorage::Persisted { prefix: prefix.into(), group: group.into(), version }
                }
                StorageDeclaration::Virtual => ResourceStorage::Virtual,
            },
            name_rule: self.name_rule,
            selectable_fields: known_fields.map(FieldDeclaration::field).collect(),
            field_refusal: self.field_refusal,
            noted: texts(self.noted),
            dispatch: self.dispatch.map(Text::Borrowed),
            generation: self.generation.is_some_and(|since| since <= release.minor()),
            create_on_update: self.create_on_update,
            unconditional_update: self.unconditional_update,
            lifetime: self.lifetime,
            holds_others: self.holds_others,
            gate: self.gate.map(Text::Borrowed),
            create_handler: self.create_handler,
        })
    }
}

impl VersionDeclaration {
    /// Returns true if the release has the version.
    fn is_in(&self, release: Release) -> bool {
        self.releases.contains(&release.minor())
    }

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
    /// Sets the minor version of the first release with the selector.
    pub const fn since(mut self, minor: u32) -> Self {
        self.since = minor;
        self
    }

    fn field(&self) -> SelectableField {
        let (paths, absent) = (texts(self.paths), self.absent.into());
        SelectableField { name: self.name.into(), paths, absent, versions: None }
    }
}

fn texts(texts: &'static [&'static str]) -> Vec<Text> {
    texts.iter().map(|text| Text::Borrowed(text)).collect()
}
