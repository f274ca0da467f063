//! Reads, changes and deletes objects for the garbage collector, through the registry or by requests to another server.
//!
//! Every write requires that the object has not changed since it was read.

use std::collections::HashSet;
use std::sync::Arc;

use keelson_cache::Entry;
use keelson_meta::ApiError;
use keelson_meta::json::{Value, json};
use keelson_meta::options::{DeleteOptions, GetOptions, Preconditions, PropagationPolicy};
use keelson_registry::{Caller, Registry, Target};

use super::elsewhere::{RemoteKindNumber, RemoteKnowledge, RemoteObject};
use super::graph::{CollectionPlace, ObjectId};
use super::metadata::Metadata;
use super::owners::target_of;

/// An object in its newest state.
pub(super) struct VisitedObject {
    pub(super) id: ObjectId,
    state: State,
}

enum State {
    /// The object, and the JSON of its metadata.
    Here(Box<Target>, Arc<Entry>, Vec<u8>),
    Elsewhere(RemoteKindNumber, RemoteObject),
}

impl VisitedObject {
    pub(super) fn metadata(&self) -> Metadata<'_> {
        match &self.state {
            State::Here(_, entry, metadata) => Metadata::read(&entry.key, metadata),
            State::Elsewhere(_, object) => Metadata::of_elsewhere(object),
        }
    }

    fn resource_version(&self) -> String {
        match &self.state {
            State::Here(_, entry, _) => entry.revision.get().to_string(),
            State::Elsewhere(_, object) => object.resource_version.clone(),
        }
    }
}

/// Access to objects here and on other servers.
pub(super) struct Objects {
    pub(super) registry: Arc<Registry>,
    pub(super) caller: Caller,
    pub(super) elsewhere: Arc<RemoteKnowledge>,
}

impl Objects {
    /// Returns an object in its current state; `None` if its kind is no longer served.
    ///
    /// # Errors
    /// 404 when the object does not exist. Any other error when the server can't tell now.
    pub(super) async fn get(&self, id: &ObjectId) -> Result<Option<VisitedObject>, ApiError> {
        let state = match id.collection {
            CollectionPlace::Here(_) => {
                let Some(target) = target_of(&self.registry.surface(), id) else { return Ok(None) };
                let entry = self.registry.get(&target, id.name(), &self.caller, &GetOptions::default()).await?;
                let metadata = entry.object().metadata().to_vec();
                State::Here(Box::new(target), entry, metadata)
            }
            CollectionPlace::Elsewhere(number) => {
                let Some(access) = self.elsewhere.access(number)? else { return Ok(None) };
                State::Elsewhere(number, access.servers.get(&access.resource, &id.key).await?)
            }
        };
        Ok(Some(VisitedObject { id: id.clone(), state }))
    }

    /// Deletes an object.
    pub(super) async fn delete(&self, object: &VisitedObject, policy: PropagationPolicy) -> Result<(), ApiError> {
        let uid = object.metadata().uid.to_string();
        match &object.state {
            State::Here(target, ..) => {
                let preconditions = Preconditions { uid: Some(uid), resource_version: Some(object.resource_version()) };
                let options =
                    DeleteOptions { preconditions, propagation_policy: Some(policy), ..DeleteOptions::default() };
                self.registry.delete(target, object.id.name(), &self.caller, &options).await.map(|_| ())
            }
            State::Elsewhere(number, _) => {
                let Some(access) = self.elsewhere.access(*number)? else { return Ok(()) };
                let policy = match policy {
                    PropagationPolicy::Orphan => "Orphan",
                    PropagationPolicy::Background => "Background",
                    PropagationPolicy::Foreground => "Foreground",
                };
                let options = json!({
                    "kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": policy,
                    "preconditions": { "uid": uid, "resourceVersion": object.resource_version() },
                });
                access.servers.delete(&access.resource, &object.id.key, options).await
            }
        }
    }

    /// Removes the references to these owners, by uid, from an object.
    pub(super) async fn remove_owners(&self, object: &VisitedObject, owners: &[String]) -> Result<(), ApiError> {
        match &object.state {
            State::Here(target, ..) => {
                let uid = &object.metadata().uid;
                self.registry.remove_owners(target, object.id.name(), uid, owners, &self.caller).await
            }
            State::Elsewhere(number, known) => {
                let owners: HashSet<&str> = owners.iter().map(String::as_str).collect();
                let gone = |reference: &Value| reference["uid"].as_str().is_some_and(|owner| owners.contains(owner));
                let left = known.owner_list().into_iter().filter(|reference| !gone(reference)).collect();
                self.patch(*number, known, "ownerReferences", left).await
            }
        }
    }

    pub(super) async fn remove_finalizer(&self, object: &VisitedObject, finalizer: &str) -> Result<(), ApiError> {
        match &object.state {
            State::Here(target, ..) => {
                let uid = &object.metadata().uid;
                self.registry.remove_finalizer(target, object.id.name(), uid, finalizer, &self.caller).await
            }
            State::Elsewhere(number, known) => {
                let left = known.finalizers.iter().filter(|held| *held != finalizer).map(|held| json!(held)).collect();
                self.patch(*number, known, "finalizers", left).await
            }
        }
    }

    /// Removes `blockOwnerDeletion` from an object's owner references.
    pub(super) async fn unblock_owners(&self, object: &VisitedObject) -> Result<(), ApiError> {
        match &object.state {
            State::Here(target, ..) => {
                let uid = &object.metadata().uid;
                self.registry.unblock_owners(target, object.id.name(), uid, &self.caller).await
            }
            State::Elsewhere(number, known) => {
                let mut references = known.owner_list();
                for reference in references.iter_mut().filter_map(Value::as_object_mut) {
                    reference.insert("blockOwnerDeletion", json!(false));
                }
                self.patch(*number, known, "ownerReferences", references).await
            }
        }
    }

    async fn patch(
        &self,
        number: RemoteKindNumber,
        known: &RemoteObject,
        field: &str,
        list: Vec<Value>,
    ) -> Result<(), ApiError> {
        let Some(access) = self.elsewhere.access(number)? else { return Ok(()) };
        access.servers.patch(&access.resource, &known.key, known.patch(field, list)).await
    }
}
