//! The small vocabulary in which the groups are declared: constants and `const fn` steps with the usual case as default.

use std::time::Duration;

use keelson_meta::names::NameRule;

use crate::fields::{FieldRefusal, SelectableField};
use crate::resource::{Resource, ResponseKind, Scope, ServedVersion, StorageKind, Subresource, Verb};

/// How long events live: what kube-apiserver's `--event-ttl` is when nobody sets it.
pub(crate) const EVENT_LIFETIME: Duration = Duration::from_hours(1);

/// Everything that can be done with an ordinary resource.
pub(crate) const EVERYTHING: &[Verb] = &[
    Verb::Create,
    Verb::Delete,
    Verb::DeleteCollection,
    Verb::Get,
    Verb::List,
    Verb::Patch,
    Verb::Update,
    Verb::Watch,
];
/// The only verb of kinds that are a question and its answer.
pub(crate) const CREATE: &[Verb] = &[Verb::Create];
/// What can be done with a part of an object.
pub(crate) const GET_PATCH_UPDATE: &[Verb] = &[Verb::Get, Verb::Patch, Verb::Update];

/// The observed state of an object.
pub(crate) const STATUS: Subresource = subresource("status", GET_PATCH_UPDATE);
/// The number of replicas, in the form common to all workloads.
pub(crate) const SCALE: Subresource = subresource("scale", GET_PATCH_UPDATE).foreign("autoscaling", "v1", "Scale");

/// The versions of an ordinary resource.
const ONLY_V1: &[ServedVersion] = &[served("v1")];

/// A version with every verb and no subresources.
pub(crate) const fn served(name: &'static str) -> ServedVersion {
    ServedVersion { name, verbs: EVERYTHING, subresources: &[] }
}

/// A subresource that takes and gives the kind of its resource.
pub(crate) const fn subresource(name: &'static str, verbs: &'static [Verb]) -> Subresource {
    Subresource { name, verbs, response: ResponseKind::Parent, proxied: false }
}

impl ServedVersion {
    pub(crate) const fn verbs(mut self, verbs: &'static [Verb]) -> Self {
        self.verbs = verbs;
        self
    }

    pub(crate) const fn with(mut self, subresources: &'static [Subresource]) -> Self {
        self.subresources = subresources;
        self
    }
}

impl Subresource {
    pub(crate) const fn proxied(mut self) -> Self {
        self.proxied = true;
        self
    }

    pub(crate) const fn sibling(mut self, kind: &'static str) -> Self {
        self.response = ResponseKind::Sibling(kind);
        self
    }

    pub(crate) const fn foreign(mut self, group: &'static str, version: &'static str, kind: &'static str) -> Self {
        self.response = ResponseKind::Foreign { group, version, kind };
        self
    }
}

/// An ordinary resource of a cluster: every verb in `v1`, stored under its plural name as `v1`.
pub(crate) const fn cluster(
    group: &'static str,
    plural: &'static str,
    singular: &'static str,
    kind: &'static str,
) -> Resource {
    Resource {
        group,
        plural,
        singular,
        kind,
        scope: Scope::Cluster,
        short_names: &[],
        categories: &[],
        versions: ONLY_V1,
        storage: StorageKind::Persisted { prefix: plural, group, version: "v1" },
        name_rule: NameRule::DnsSubdomain,
        selectable_fields: &[],
        field_refusal: FieldRefusal::OnlyMetadata,
        noted: &[],
        dispatch: None,
        generation: false,
        create_on_update: false,
        unconditional_update: true,
        lifetime: None,
    }
}

/// An ordinary resource in namespaces: every verb in `v1`, stored under its plural name as `v1`.
pub(crate) const fn namespaced(
    group: &'static str,
    plural: &'static str,
    singular: &'static str,
    kind: &'static str,
) -> Resource {
    let mut resource = cluster(group, plural, singular, kind);
    resource.scope = Scope::Namespaced;
    resource
}

impl Resource {
    pub(crate) const fn short_names(mut self, names: &'static [&'static str]) -> Self {
        self.short_names = names;
        self
    }

    pub(crate) const fn categories(mut self, categories: &'static [&'static str]) -> Self {
        self.categories = categories;
        self
    }

    pub(crate) const fn versions(mut self, versions: &'static [ServedVersion]) -> Self {
        self.versions = versions;
        self
    }

    /// Stores it in another place than its plural name.
    pub(crate) const fn stored_at(mut self, place: &'static str) -> Self {
        if let StorageKind::Persisted { prefix, .. } = &mut self.storage {
            *prefix = place;
        }
        self
    }

    /// Stores it in another group and version than its own `v1`.
    pub(crate) const fn stored_as(mut self, stored_group: &'static str, stored_version: &'static str) -> Self {
        if let StorageKind::Persisted { group, version, .. } = &mut self.storage {
            *group = stored_group;
            *version = stored_version;
        }
        self
    }

    pub(crate) const fn not_stored(mut self) -> Self {
        self.storage = StorageKind::Virtual;
        self
    }

    pub(crate) const fn names(mut self, rule: NameRule) -> Self {
        self.name_rule = rule;
        self
    }

    pub(crate) const fn fields(mut self, refusal: FieldRefusal, fields: &'static [SelectableField]) -> Self {
        self.field_refusal = refusal;
        self.selectable_fields = fields;
        self
    }

    /// Has the texts at stored paths at hand, for the server to find objects by.
    pub(crate) const fn notes(mut self, paths: &'static [&'static str]) -> Self {
        self.noted = paths;
        self
    }

    pub(crate) const fn dispatched_by(mut self, path: &'static str) -> Self {
        self.dispatch = Some(path);
        self
    }

    pub(crate) const fn counts_generations(mut self) -> Self {
        self.generation = true;
        self
    }

    pub(crate) const fn created_by_update(mut self) -> Self {
        self.create_on_update = true;
        self
    }

    /// Lets objects go when they have not been written for this long.
    pub(crate) const fn lives_for(mut self, lifetime: Duration) -> Self {
        self.lifetime = Some(lifetime);
        self
    }

    pub(crate) const fn updated_only_from_a_revision(mut self) -> Self {
        self.unconditional_update = false;
        self
    }
}
