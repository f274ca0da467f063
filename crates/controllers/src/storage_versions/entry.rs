//! The entry of one server in a storage version: what it does with a resource that it stores, and under which name that is published.
//!
//! Servers publish in the registry of their own (`publication`). Those that are behind a main server publish there, with the same entries.

use std::sync::Arc;
use std::time::SystemTime;

use keelson_meta::json::{Map, Value, json};
use keelson_meta::{GroupResource, GroupVersion, GroupVersionKind, Object, version_names};
use keelson_registry::{EncodingGate, ServedResource};

use super::agreement::{ServerEntry, disagreement, publish, servers};

/// What the group that has no name is called in the names of storage versions.
const CORE: &str = "core";

/// What a server has to publish of a resource before it writes, wherever it is published.
pub struct StorageVersionEntry {
    name: String,
    gate: Arc<EncodingGate>,
    kind: GroupVersionKind,
    entry: ServerEntry,
}

impl StorageVersionEntry {
    /// That of the server of this name; `None` where the resource is not stored.
    pub fn of(server_id: &str, resource: &ServedResource) -> Option<Self> {
        let (gate, kind) = stored(resource)?;
        let entry = entry(server_id, resource, kind);
        Some(Self { name: name_of(&resource.group_resource()), gate: gate.clone(), kind: kind.clone(), entry })
    }

    /// The name of the storage version.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The gate that opens for the kind when it is published.
    pub fn gate(&self) -> (&EncodingGate, &GroupVersionKind) {
        (&self.gate, &self.kind)
    }

    /// A storage version in which nobody has published anything.
    pub fn new_object(&self) -> Value {
        Value::Object(new_object(&self.name).0)
    }

    /// Why the servers that have published do not agree on what this one stores; `None` where they do.
    pub fn disagreement(&self, object: &Object) -> Option<String> {
        disagreement(object, &self.entry.encoding)
    }

    /// Whether this server is the first of those that have published and live: of servers that share a store, one does what is to be done
    /// once.
    pub fn is_first(&self, object: &Object, lives: impl Fn(&str) -> bool) -> bool {
        let own = &*self.entry.server_id;
        servers(object).find(|server| *server == own || lives(server)) == Some(own)
    }

    /// Has the storage version say it; whether that is anything new.
    pub fn publish_in(&self, object: &mut Object, now: SystemTime) -> bool {
        publish(object, &self.entry, now)
    }
}

/// A storage version of this name in which nobody has published anything.
pub(super) fn new_object(name: &str) -> Object {
    let metadata = ("metadata".to_owned(), json!({ "name": name }));
    let text = |field: &str, value: &str| (field.to_owned(), json!(value));
    Object(Map::from_iter([
        text("apiVersion", "internal.apiserver.k8s.io/v1alpha1"),
        text("kind", "StorageVersion"),
        metadata,
        ("spec".to_owned(), json!({})),
    ]))
}

/// The name of the storage version of a resource.
pub(super) fn name_of(resource: &GroupResource) -> String {
    let group = if resource.group.is_empty() { CORE } else { &*resource.group };
    format!("{group}.{}", resource.resource)
}

/// The resource of which a storage version of this name tells; plural names have no dots.
pub(super) fn resource_of(name: &str) -> Option<GroupResource> {
    let (group, resource) = name.rsplit_once('.')?;
    let group = if group == CORE { "" } else { group };
    Some(GroupResource { group: group.to_owned(), resource: resource.to_owned() })
}

/// The gate of what a resource is stored in, and the kind as which it is; `None` where it is not stored, or is published with another
/// resource in whose form it is stored.
pub(super) fn stored(resource: &ServedResource) -> Option<(&Arc<EncodingGate>, &GroupVersionKind)> {
    let (stored, kind) = (resource.stored()?, resource.storage_kind()?);
    (kind.group == *resource.group).then_some((&stored.gate, kind))
}

/// What a server publishes of a resource that it stores as this kind.
pub(super) fn entry(server_id: &str, resource: &ServedResource, kind: &GroupVersionKind) -> ServerEntry {
    let encoding = kind.group_version().to_string();
    // The version in which it is stored need not be one that clients get.
    let version = resource.version(&kind.version).or(resource.versions().first());
    let others = version.into_iter().flat_map(|version| version.readable()).filter(|other| *other != encoding);
    let mut decodable: Vec<String> = std::iter::once(&*encoding).chain(others).map(str::to_owned).collect();
    // Those of its own group first, and of each group the newest first, as in the reference server.
    let parts = |version: &str| {
        let (group, name) = GroupVersion::split(version).unwrap_or(("", version));
        (*group != kind.group, name.to_owned())
    };
    decodable.sort_by(|a, b| {
        let ((a_is_other, a), (b_is_other, b)) = (parts(a), parts(b));
        a_is_other.cmp(&b_is_other).then_with(|| version_names::compare(&a, &b))
    });
    let served = resource.versions().iter().filter(|version| !version.hidden);
    let served = served.map(|version| version.api_version().to_owned()).collect();
    ServerEntry { server_id: server_id.to_owned(), encoding, decodable, served }
}
