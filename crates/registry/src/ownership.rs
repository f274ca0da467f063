//! Changes that a garbage collector makes in the metadata of an object: it removes finished finalizers, and references
//! to deleted owners.
//!
//! The server makes these changes itself and changes nothing else, so an object that today's rules would refuse can
//! still be deleted. Each change has the uid of its object: another object of the same name is left alone.

use std::collections::HashSet;

use keelson_cache::Entry;
use keelson_meta::json::{Value, json};
use keelson_meta::{ApiError, Object};

use crate::admission::{Operation, WriteOptions};
use crate::caller::Caller;
use crate::managed;
use crate::registry::Registry;
use crate::target::Target;
use crate::write::{Change, Edit, Live, ManagedObject, Update, WriteRequest};

impl Registry {
    /// Removes a finalizer from an object. An object that is being deleted is deleted with its last finalizer.
    ///
    /// # Errors
    /// 404 when the object is gone.
    pub async fn remove_finalizer(
        &self,
        target: &Target,
        name: &str,
        uid: &str,
        finalizer: &str,
        caller: &Caller,
    ) -> Result<(), ApiError> {
        self.edit_metadata(target, name, uid, caller, |object| {
            retain(object, "finalizers", |held| held != finalizer);
        })
        .await
    }

    /// Removes the references to the owners with these uids from an object.
    ///
    /// # Errors
    /// 404 when the object is gone.
    pub async fn remove_owners(
        &self,
        target: &Target,
        name: &str,
        uid: &str,
        owners: &[String],
        caller: &Caller,
    ) -> Result<(), ApiError> {
        // An object may have thousands of owners, so the uids are in a set.
        let owners: HashSet<&str> = owners.iter().map(String::as_str).collect();
        let gone = |reference: &Value| {
            reference.get("uid").and_then(Value::as_str).is_some_and(|owner| owners.contains(owner))
        };
        self.edit_metadata(target, name, uid, caller, |object| {
            retain(object, "ownerReferences", |reference| !gone(reference));
        })
        .await
    }

    /// Clears `blockOwnerDeletion` in all owner references, so that the object no longer blocks the deletion of its
    /// owners.
    ///
    /// # Errors
    /// 404 when the object is gone.
    pub async fn unblock_owners(
        &self,
        target: &Target,
        name: &str,
        uid: &str,
        caller: &Caller,
    ) -> Result<(), ApiError> {
        self.edit_metadata(target, name, uid, caller, |object| {
            let Some(Value::Array(references)) = object.metadata_mut().get_mut("ownerReferences") else { return };
            for reference in references.iter_mut().filter_map(Value::as_object_mut) {
                reference.insert("blockOwnerDeletion", json!(false));
            }
        })
        .await
    }

    async fn edit_metadata(
        &self,
        target: &Target,
        name: &str,
        uid: &str,
        caller: &Caller,
        edit: impl Fn(&mut Object) + Send + Sync,
    ) -> Result<(), ApiError> {
        let mut edit = Edit::new(|registry: &Registry, live: &Entry| {
            let Live { object: mut before, managed_fields: known } = Live::stored(live);
            let mut object = before.clone();
            if object.uid() != uid {
                return Err(ApiError::NotFound { resource: target.group_resource(), name: name.to_owned() });
            }
            edit(&mut object);
            let managed_fields =
                managed::track_metadata(target, &mut before, &mut object, known.as_deref(), caller, registry.now());
            object.remove_meta("resourceVersion");
            let held = object.deletion_timestamp().is_none() || !object.finalizers().is_empty();
            let stays = held || !target.strategy().delete.may_go(&object);
            let next = ManagedObject::new(object, managed_fields);
            let change = if stays { Change::Put(next) } else { Change::Remove(next.encode(target).into_object()) };
            Ok(Update::Change(change, Some(Operation::Update)))
        });
        let request = WriteRequest::new(target, name, caller, WriteOptions::None);
        self.write(&request, &mut edit).await.map(|_| ())
    }
}

/// Keeps the elements of a metadata list that pass, and removes an empty list.
fn retain(object: &mut Object, field: &str, keep: impl Fn(&Value) -> bool) {
    let Some(Value::Array(list)) = object.metadata_mut().get_mut(field) else { return };
    list.retain(keep);
    if list.is_empty() {
        object.remove_meta(field);
    }
}
