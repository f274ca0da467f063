//! The entry of one server in a storage version: the versions of a resource, and the object's name.
//!
//! Main servers publish in their own registry (`publication`). An aggregated server publishes the same entries at its
//! main server.

use std::sync::Arc;
use std::time::SystemTime;

use keelson_meta::json::{Map, Value, json};
use keelson_meta::{GroupResource, GroupVersion, GroupVersionKind, Object, version_names};
use keelson_registry::{EncodingGate, ServedResource};

use super::agreement::{ServerEntry, disagreement, publish, servers};

/// The name of the core group in the names of storage versions.
const CORE: &str = "core";

/// The entry that a server publishes for a resource before it writes.
pub struct StorageVersionEntry {
    name: String,
    gate: Arc<EncodingGate>,
    kind: GroupVersionKind,
    entry: ServerEntry,
}

impl StorageVersionEntry {
    /// The entry of the server with this name; `None` if the resource is not stored.
    pub fn new(server_id: &str, resource: &ServedResource) -> Option<Self> {
        let (gate, kind) = stored(resource)?;
        let entry = entry(server_id, resource, kind);
        Some(Self { name: name_of(&resource.group_resource()), gate: gate.clone(), kind: kind.clone(), entry })
    }

    /// The name of the storage version.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The gate that is opened after the publication, and the kind for which it is opened.
    pub fn gate(&self) -> (&EncodingGate, &GroupVersionKind) {
        (&self.gate, &self.kind)
    }

    /// A storage version without entries.
    pub fn new_object(&self) -> Value {
        Value::Object(new_object(&self.name).0)
    }

    /// The reason why the published versions do not agree with this server's; `None` where they do.
    pub fn disagreement(&self, object: &Object) -> Option<String> {
        disagreement(object, &self.entry.encoding)
    }

    /// Returns true if this server is the first live one with an entry. Of several servers with one store, the first
    /// does the work that is needed only once.
    pub fn is_first(&self, object: &Object, lives: impl Fn(&str) -> bool) -> bool {
        let own = &*self.entry.server_id;
        servers(object).find(|server| *server == own || lives(server)) == Some(own)
    }

    /// Sets the entry in a storage version. Returns true if the object changed.
    pub fn publish_in(&self, object: &mut Object, now: SystemTime) -> bool {
        publish(object, &self.entry, now)
    }
}

/// A storage version of this name without entries.
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

/// The resource that a storage version's name stands for. Plural names contain no dots.
pub(super) fn resource_of(name: &str) -> Option<GroupResource> {
    let (group, resource) = name.rsplit_once('.')?;
    let group = if group == CORE { "" } else { group };
    Some(GroupResource { group: group.to_owned(), resource: resource.to_owned() })
}

/// The gate and kind of a resource's storage; `None` if it is not stored, or shares the stored form of another
/// resource, which publishes for both.
pub(super) fn stored(resource: &ServedResource) -> Option<(&Arc<EncodingGate>, &GroupVersionKind)> {
    let (stored, kind) = (resource.stored()?, resource.storage_kind()?);
    (kind.group == *resource.group).then_some((&stored.gate, kind))
}

/// The entry of a server for a resource stored as this kind.
pub(super) fn entry(server_id: &str, resource: &ServedResource, kind: &GroupVersionKind) -> ServerEntry {
    let encoding = kind.group_version().to_string();
    // The storage version need not be served.
    let version = resource.version(&kind.version).or(resource.versions().first());
    let others = version.into_iter().flat_map(|version| version.readable()).filter(|other| *other != encoding);
    let mut decodable: Vec<String> = std::iter::once(&*encoding).chain(others).map(str::to_owned).collect();
    // Versions of the resource's own group first, in each group the newest first, as in kube-apiserver.
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
