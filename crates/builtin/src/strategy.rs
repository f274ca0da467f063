//! Steps that strategies of several groups share.
//!
//! The strategies are in `<group>/strategy.rs`. `keelson_registry::strategy` has their traits.

pub(crate) mod classes;

use keelson_meta::Object;
use keelson_meta::json::{Map, Value, json};
use keelson_registry::strategy::{
    DeleteStrategy, FieldPath, StatusOnlyStrategy, Strategies, UpdateStrategy, metadata_of_status,
};
use keelson_registry::{BuiltinStagePlugin, Registry};

/// Strategies of a kind with only one rule: writes of the status do not change the metadata.
pub(crate) const STATUS_ALONE: Strategies = Strategies::ORDINARY.update(&StatusOnlyStrategy);

/// Strategies of a kind whose deletion returns the object. Writes of its status do not change the metadata.
pub(crate) const RETURNS_DELETED: Strategies = Strategies::ORDINARY.update(&ReturnsDeleted).delete(&ReturnsDeleted);

struct ReturnsDeleted;

impl UpdateStrategy for ReturnsDeleted {
    fn kept(&self, subresource: &str) -> &'static [FieldPath] {
        metadata_of_status(subresource)
    }
}

impl DeleteStrategy for ReturnsDeleted {
    fn returns_deleted(&self) -> bool {
        true
    }
}

/// The object at a path. Absent objects are created.
pub(crate) fn inner<'a>(map: &'a mut Map, path: &[&str]) -> Option<&'a mut Map> {
    path.iter().try_fold(map, |map, name| {
        let value = map.entry(*name).or_insert(Value::Null);
        if value.is_null() {
            *value = json!({});
        }
        value.as_object_mut()
    })
}

/// Adds a finalizer to an object, which keeps it while it is in use. Returns false if this protection is disabled.
pub(crate) fn protect(registry: &Registry, object: &mut Object, finalizer: &str) -> bool {
    if !registry.does(BuiltinStagePlugin::StorageObjectInUseProtection) {
        return false;
    }
    let mut finalizers: Vec<String> = object.finalizers().into_iter().map(str::to_owned).collect();
    if !finalizers.iter().any(|held| held == finalizer) {
        finalizers.push(finalizer.to_owned());
        object.set_meta("finalizers", finalizers);
    }
    true
}
