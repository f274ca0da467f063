//! Storage states: for each resource, the hashes of the versions that stored objects may have. The format is that of
//! the Kubernetes project's storage version migrator (`migration.k8s.io`).
//!
//! ORDER: a server adds the hash of a new version after its publication and before its first write. Other hashes are
//! removed only after all objects were seen rewritten, on the condition that the agreement has not changed since
//! before. So a state always has every version in use, or says `Unknown`.
//!
//! States are kept only if enabled. If an installed definition has that name, this server writes no states: its
//! installer does.

use std::sync::Arc;

use keelson_meta::clock::rfc3339;
use keelson_meta::json::{Value, json};
use keelson_meta::{ApiError, GroupResource, GroupVersionKind, Object};
use keelson_registry::{Registry, Target};
use keelson_resources::storage_version_hash;
use keelson_storage::Compare;

use crate::client::{Client, RevisedObject};
use crate::conflicts::retry_conflicts;

const GROUP: &str = "migration.k8s.io";
const VERSION: &str = "v1alpha1";
const PLURAL: &str = "storagestates";
/// The hash that means that objects may have any version.
const UNKNOWN: &str = "Unknown";
/// The most immediate attempts to write a state after conflicts.
const ATTEMPTS: usize = 8;

/// Reads and writes the states of stored resources.
pub(super) struct StorageStates {
    registry: Arc<Registry>,
    client: Client,
}

/// The built-in definition of storage states.
pub fn storage_state_definition() -> Object {
    let text = |description: &str| json!({ "type": "string", "description": description });
    let resource = json!({
        "type": "object",
        "description": "The resource that the state is of.",
        "properties": { "group": text("The name of its group."), "resource": text("Its plural name.") },
        "x-kubernetes-validations": [{ "rule": "self == oldSelf", "message": "field is immutable" }],
    });
    let hashes = json!({
        "type": "array",
        "description": "The hashes of the versions in which objects of the resource may be stored. With \"Unknown\" among them it may be \
                        any. A server must be able to read all of them; that of a version is added before anything is written in it, \
                        and the others are taken away when everything has been written anew.",
        "items": { "type": "string", "minLength": 1 },
    });
    let status = json!({
        "type": "object",
        "description": "In which versions objects are stored.",
        "properties": {
            "currentStorageVersionHash": text("The hash of the version in which objects are written, as discovery shows it."),
            "lastHeartbeatTime": { "type": "string", "format": "date-time", "description": "When the state was last written." },
            "persistedStorageVersionHashes": hashes,
        },
    });
    let schema = json!({
        "type": "object",
        "description": "In which versions the objects of a resource may be stored.",
        "properties": {
            "spec": { "type": "object", "description": "The resource that the state describes.", "properties": { "resource": resource } },
            "status": status,
        },
        "x-kubernetes-validations": [{
            "rule": "!has(self.spec) || !has(self.spec.resource) || !has(self.spec.resource.resource) || self.metadata.name == \
                     self.spec.resource.resource + (has(self.spec.resource.group) && self.spec.resource.group != '' ? \
                     '.' + self.spec.resource.group : '')",
            "message": "the name must be <spec.resource.resource>.<spec.resource.group>",
        }],
    });
    let column = |name: &str, kind: &str, path: &str| json!({ "name": name, "type": kind, "jsonPath": path });
    let version = json!({
        "name": VERSION,
        "served": true,
        "storage": true,
        "subresources": { "status": {} },
        "schema": { "openAPIV3Schema": schema },
        "additionalPrinterColumns": [
            column("Current", "string", ".status.currentStorageVersionHash"),
            column("Persisted", "string", ".status.persistedStorageVersionHashes"),
            column("Age", "date", ".metadata.creationTimestamp"),
        ],
    });
    let names = json!({
        "plural": PLURAL, "singular": "storagestate", "kind": "StorageState", "listKind": "StorageStateList"
    });
    let mut definition = Object::default();
    definition.0.insert("metadata", json!({ "name": format!("{PLURAL}.{GROUP}") }));
    definition.0.insert("spec", json!({ "group": GROUP, "scope": "Cluster", "names": names, "versions": [version] }));
    definition
}

impl StorageStates {
    pub(super) fn new(registry: Arc<Registry>, client: Client) -> Self {
        Self { registry, client }
    }

    /// The target of all states; `None` where this server must not write them.
    fn target(&self) -> Option<Target> {
        let target = self.registry.surface().lookup_stored(GROUP, VERSION, PLURAL)?;
        (!target.resource.is_defined()).then_some(target)
    }

    /// Adds a kind's hash to the state of a resource, if it has one. Called after the publication and before the first
    /// write.
    ///
    /// # Errors
    /// Errors of the verbs.
    pub(super) async fn add(&self, resource: &GroupResource, kind: &GroupVersionKind) -> Result<(), ApiError> {
        // The states themselves exist in a single version and need no state.
        let is_own = resource.group == GROUP && resource.resource == PLURAL;
        let Some(target) = self.target().filter(|_| !is_own) else { return Ok(()) };
        let hash = hash_of(kind);
        self.edit(&target, resource, Vec::new(), |state| {
            let known = persisted(state);
            // A state without hashes counts as `Unknown`.
            let is_said = known.is_empty() || known.contains(&UNKNOWN) || known.contains(&hash.as_str());
            let next = known.into_iter().chain([hash.as_str()]).map(str::to_owned).collect();
            (!is_said).then_some(next)
        })
        .await
    }

    /// Returns true if the cached state has this kind's hash and no other. Does not read the store.
    pub(super) fn is_settled(&self, resource: &GroupResource, kind: &GroupVersionKind) -> bool {
        let Some(target) = self.target() else { return true };
        let Ok(states) = target.collection() else { return true };
        states.get(&target.relative_key(&resource.to_string())).is_some_and(|entry| {
            let state = entry.object().decode(entry.revision);
            let hash = hash_of(kind);
            is_settled(&state, &hash)
        })
    }

    /// Creates the state of a resource without one, as `Unknown`.
    ///
    /// # Errors
    /// Errors of the verbs.
    pub(super) async fn begin(&self, resource: &GroupResource, kind: &GroupVersionKind) -> Result<(), ApiError> {
        let Some(target) = self.target() else { return Ok(()) };
        let name = resource.to_string();
        if target.collection()?.get(&target.relative_key(&name)).is_some() {
            return Ok(());
        }
        let new = json!({
            "apiVersion": format!("{GROUP}/{VERSION}"),
            "kind": "StorageState",
            "metadata": { "name": name },
            "spec": { "resource": { "group": resource.group, "resource": resource.resource } },
        });
        match self.client.create(&target, new).await {
            Ok(made) => self.write(&target, made.read(), &hash_of(kind), vec![UNKNOWN.to_owned()], Vec::new()).await,
            Err(ApiError::AlreadyExists { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Sets the state of a resource to this kind's hash alone, on the condition that the agreement is unchanged.
    ///
    /// # Errors
    /// Errors of the verbs: 503 when the agreement has changed.
    pub(super) async fn settle(
        &self,
        resource: &GroupResource,
        kind: &GroupVersionKind,
        stands: Compare,
    ) -> Result<(), ApiError> {
        self.begin(resource, kind).await?;
        let Some(target) = self.target() else { return Ok(()) };
        let hash = hash_of(kind);
        self.edit(&target, resource, vec![stands], |state| (!is_settled(state, &hash)).then(|| vec![hash.clone()]))
            .await
    }

    /// Adds `Unknown` to the state of a resource that has only this kind's hash although stale objects exist. This
    /// happens if states were not kept for a time.
    ///
    /// # Errors
    /// Errors of the verbs.
    pub(super) async fn doubt(&self, resource: &GroupResource, kind: &GroupVersionKind) -> Result<(), ApiError> {
        let Some(target) = self.target() else { return Ok(()) };
        let hash = hash_of(kind);
        let unknown = || vec![UNKNOWN.to_owned(), hash.clone()];
        self.edit(&target, resource, Vec::new(), |state| is_settled(state, &hash).then(unknown)).await
    }

    /// Deletes the state of a resource that is no longer served.
    ///
    /// # Errors
    /// Errors of the verbs.
    pub(super) async fn forget(&self, resource: &GroupResource) -> Result<(), ApiError> {
        let Some(target) = self.target() else { return Ok(()) };
        let name = resource.to_string();
        if target.collection()?.get(&target.relative_key(&name)).is_none() {
            return Ok(());
        }
        match self.client.get(&target, &name).await? {
            Some(state) => self.client.delete(&target, &state).await,
            None => Ok(()),
        }
    }

    /// Writes the hashes that `next` returns for a state. Does nothing if there is no state, or no hashes.
    async fn edit(
        &self,
        target: &Target,
        resource: &GroupResource,
        conditions: Vec<Compare>,
        next: impl Fn(&Object) -> Option<Vec<String>> + Send + Sync,
    ) -> Result<(), ApiError> {
        let (next, conditions) = (&next, &conditions);
        let edit = async || {
            // If the state was deleted, the next turn handles that.
            let Some(found) = self.client.get(target, &resource.to_string()).await? else { return Ok(()) };
            let Some(hashes) = next(&found.object) else { return Ok(()) };
            let current = hashes.last().cloned().unwrap_or_default();
            self.write(target, found, &current, hashes, conditions.clone()).await
        };
        retry_conflicts(ATTEMPTS, edit).await
    }

    async fn write(
        &self,
        target: &Target,
        mut state: RevisedObject,
        current: &str,
        hashes: Vec<String>,
        conditions: Vec<Compare>,
    ) -> Result<(), ApiError> {
        let status = json!({
            "currentStorageVersionHash": current,
            "lastHeartbeatTime": rfc3339(self.client.now()),
            "persistedStorageVersionHashes": hashes,
        });
        state.object.0.insert("status", status);
        let below = target.clone().below("status").named(state.object.name());
        self.client.update_while(&below, state.object, conditions).await.map(drop)
    }
}

fn hash_of(kind: &GroupVersionKind) -> String {
    storage_version_hash(&kind.group, &kind.version, &kind.kind)
}

/// Returns true if a state has exactly this hash.
fn is_settled(state: &Object, hash: &str) -> bool {
    let current = state.get(&["status", "currentStorageVersionHash"]).and_then(Value::as_str);
    current == Some(hash) && persisted(state) == [hash]
}

fn persisted(state: &Object) -> Vec<&str> {
    let hashes = state.get(&["status", "persistedStorageVersionHashes"]).and_then(Value::as_array);
    hashes.into_iter().flatten().filter_map(Value::as_str).collect()
}
