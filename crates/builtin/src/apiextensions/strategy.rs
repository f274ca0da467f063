//! Strategy of CustomResourceDefinitions. The status lists every version in which objects may be stored. A deleted
//! definition stays until its objects are deleted.
//!
//! A version stays in the list when another one becomes the storage version, since the store may still have objects of
//! it. The crate `extensions` deletes the objects and removes the finalizer.

use std::time::SystemTime;

use keelson_meta::field_error::FieldError;
use keelson_meta::json::{Map, Value, json};
use keelson_meta::{ApiError, Object};
use keelson_registry::strategy::{CreateStrategy, DeleteStrategy, Strategies, UpdateStrategy, WriteStrategy};
use keelson_registry::{Registry, Target};
use keelson_resources::CLEANUP_FINALIZER;

/// The strategies of a resource of the group.
pub(crate) fn strategies(plural: &str) -> &'static Strategies {
    match plural {
        "customresourcedefinitions" => {
            &const {
                Strategies::ORDINARY
                    .write(&CustomResourceDefinitions)
                    .create(&CustomResourceDefinitions)
                    .update(&CustomResourceDefinitions)
                    .delete(&CustomResourceDefinitions)
            }
        }
        _ => &Strategies::ORDINARY,
    }
}

/// The stored versions of a new definition: the storage version. Empty if no version has `storage: true`.
fn first_stored_versions(definition: &Object) -> Value {
    storage_version(definition).map_or(Value::Null, |version| json!([version]))
}

/// Adds the storage version to the list of stored versions.
fn add_stored_version(next: &mut Object) {
    let Some(version) = storage_version(next).map(|version| json!(version)) else { return };
    if let Some(stored) = list_in_status(next, "storedVersions")
        && !stored.contains(&version)
    {
        stored.push(version);
    }
}

/// A list of the status. Creates it if it is absent.
fn list_in_status<'o>(definition: &'o mut Object, field: &str) -> Option<&'o mut Vec<Value>> {
    let status = definition.0.entry("status").or_insert_with(|| json!({})).as_object_mut()?;
    let list = status.entry(field).or_insert_with(|| json!([]));
    if list.is_null() {
        *list = json!([]);
    }
    list.as_array_mut()
}

/// The first version with `storage: true`.
fn storage_version(definition: &Object) -> Option<String> {
    let versions = definition.get(&["spec", "versions"])?.as_array()?;
    let stored = versions.iter().find(|version| version.get("storage").and_then(Value::as_bool) == Some(true))?;
    stored.get("name")?.as_str().map(str::to_owned)
}

/// Refuses the removal of a stored version that is still in use: by stored objects, or by a server that writes it. The
/// cache has the newest revision for this check.
///
/// # Errors
/// 422 with the versions that are in use.
fn refuse_dropped_versions(
    registry: &Registry,
    target: &Target,
    current: &Object,
    next: &Object,
) -> Result<(), ApiError> {
    let listed = |definition: &Object| -> Vec<String> {
        let listed = definition.get(&["status", "storedVersions"]).and_then(Value::as_array);
        listed.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let kept = listed(next);
    let dropped = listed(current).into_iter().filter(|version| !kept.contains(version));
    let stored = storage_version(current);
    let mut errors = Vec::new();
    for version in dropped {
        // An empty list means the storage version.
        let is_stored = stored.as_deref() == Some(&*version);
        let why = match in_use(registry, current, &version) {
            _ if is_stored && kept.is_empty() => continue,
            _ if is_stored => format!("must have the storage version {version}"),
            Some(why) => format!("{version} can't be taken out: {why}"),
            None => continue,
        };
        errors.push(FieldError::invalid("status.storedVersions", json!(kept), why));
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(ApiError::Invalid { kind: target.group_kind(), name: current.name().to_owned(), errors })
}

/// The remaining use of a version of the custom resource; `None` if there is none.
fn in_use(registry: &Registry, definition: &Object, version: &str) -> Option<String> {
    let text = |path: &[&str]| definition.get(path).and_then(Value::as_str).unwrap_or_default();
    let (group, plural) = (text(&["spec", "group"]), text(&["spec", "names", "plural"]));
    let api_version = format!("{group}/{version}");
    let surface = registry.surface();
    let encodings = surface.resource(group, plural).and_then(|served| served.stored()).map(|stored| stored.encodings());
    let of_version = encodings.into_iter().flatten().filter(|(encoding, _)| encoding.api_version() == api_version);
    let objects: usize = of_version.map(|(_, count)| count).sum();
    if objects > 0 {
        return Some(format!("{objects} objects are stored in it"));
    }
    let versions = surface.target("internal.apiserver.k8s.io", "storageversions").ok()?;
    let published = versions.collection().ok()?.get(&format!("{group}.{plural}"))?;
    let published = published.object().decode(published.revision);
    let mut servers = published.get(&["status", "storageVersions"]).and_then(Value::as_array).into_iter().flatten();
    let writer = servers.find(|server| server["encodingVersion"] == *api_version)?;
    Some(format!("the server {} stores objects in it", writer["apiServerID"].as_str().unwrap_or_default()))
}

/// Adds the finalizer and the condition for a definition whose objects must be deleted first.
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

/// The strategy of CustomResourceDefinitions.
pub(super) struct CustomResourceDefinitions;

impl WriteStrategy for CustomResourceDefinitions {
    fn has_long_validation(&self) -> bool {
        true
    }

    /// A changed definition applies when its response is sent: requests compare the served definitions with the cache.
    fn counts_at_once(&self) -> bool {
        true
    }
}

impl CreateStrategy for CustomResourceDefinitions {
    fn initial_status(&self, object: &Object, _: SystemTime) -> Map {
        Map::from_iter([("storedVersions".to_owned(), first_stored_versions(object))])
    }
}

impl UpdateStrategy for CustomResourceDefinitions {
    fn admit_update(
        &self,
        registry: &Registry,
        target: &Target,
        current: &Object,
        next: &mut Object,
    ) -> Result<bool, ApiError> {
        if target.subresource_name() == Some("status") {
            refuse_dropped_versions(registry, target, current, next)?;
        }
        Ok(false)
    }

    fn prepare_update(&self, target: &Target, _: &Object, next: &mut Object) -> bool {
        let whole = target.subresource.is_none();
        let says_none = next.get(&["status", "storedVersions"]).and_then(Value::as_array).is_none_or(Vec::is_empty);
        if whole || says_none {
            add_stored_version(next);
        }
        whole || says_none
    }
}

impl DeleteStrategy for CustomResourceDefinitions {
    fn is_deleted_by_uid(&self) -> bool {
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
