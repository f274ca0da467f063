//! Definitions of custom resources: the status lists every version that objects may have been stored in, and a definition that is
//! deleted stays until its objects are gone.
//!
//! A version stays in the list when another becomes the stored one, since objects of it may still be in the store. The objects are
//! deleted by whoever serves the definitions (`extensions`), which then takes the finalizer off.

use std::time::SystemTime;

use keelson_meta::Object;
use keelson_meta::json::{Map, Value, json};

use super::strategy::Strategy;
use crate::target::Target;

/// Holds a definition as long as there are objects of what it defines.
pub const CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// The stored versions of a new definition: the one that is stored. There is nothing if none is marked.
fn first_stored_versions(definition: &Object) -> Value {
    storage_version(definition).map_or(Value::Null, |version| json!([version]))
}

/// Adds the version that objects are stored in from now on to those that they may have been stored in.
fn add_stored_version(next: &mut Object) {
    let Some(version) = storage_version(next).map(|version| json!(version)) else { return };
    if let Some(stored) = list_in_status(next, "storedVersions")
        && !stored.contains(&version)
    {
        stored.push(version);
    }
}

/// A list of the status, which is made where there is none.
fn list_in_status<'o>(definition: &'o mut Object, field: &str) -> Option<&'o mut Vec<Value>> {
    let status = definition.0.entry("status").or_insert_with(|| json!({})).as_object_mut()?;
    let list = status.entry(field).or_insert_with(|| json!([]));
    if list.is_null() {
        *list = json!([]);
    }
    list.as_array_mut()
}

/// The first version that is marked as the one to store.
fn storage_version(definition: &Object) -> Option<String> {
    let versions = definition.get(&["spec", "versions"])?.as_array()?;
    let stored = versions.iter().find(|version| version.get("storage").and_then(Value::as_bool) == Some(true))?;
    stored.get("name")?.as_str().map(str::to_owned)
}

/// Has a definition stay until its objects are gone, and says so.
fn mark_terminating(definition: &mut Object) {
    let since = definition.deletion_timestamp().unwrap_or_default().to_owned();
    let mut finalizers: Vec<String> = definition.finalizers().into_iter().map(str::to_owned).collect();
    if !finalizers.iter().any(|finalizer| finalizer == CLEANUP_FINALIZER) {
        finalizers.push(CLEANUP_FINALIZER.to_owned());
    }
    definition.set_meta("finalizers", finalizers);
    let Some(conditions) = list_in_status(definition, "conditions") else { return };
    conditions.retain(|condition| condition.get("type").and_then(Value::as_str) != Some("Terminating"));
    conditions.push(json!({
        "type": "Terminating",
        "status": "True",
        "lastTransitionTime": since,
        "reason": "InstanceDeletionPending",
        "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
    }));
}

/// The strategy of definitions of custom resources.
pub(super) struct CustomResourceDefinitions;

impl Strategy for CustomResourceDefinitions {
    fn is_judged_long(&self) -> bool {
        true
    }

    fn initial_status(&self, object: &Object, _: SystemTime) -> Map {
        Map::from_iter([("storedVersions".to_owned(), first_stored_versions(object))])
    }

    fn prepare_update(&self, target: &Target, _: &Object, next: &mut Object) -> bool {
        let whole = target.subresource.is_none();
        let says_none = next.get(&["status", "storedVersions"]).and_then(Value::as_array).is_none_or(Vec::is_empty);
        if whole || says_none {
            add_stored_version(next);
        }
        whole || says_none
    }

    fn checks_uid_as_update(&self) -> bool {
        true
    }

    fn states_grace_period(&self) -> bool {
        false
    }

    fn counts_deletion(&self) -> bool {
        false
    }

    fn mark_terminating(&self, object: &mut Object) {
        mark_terminating(object);
    }

    fn may_go(&self, object: &Object) -> bool {
        object.deletion_timestamp().is_some()
    }
}
