//! Steps that strategies of several groups share.
//!
//! A strategy itself is in `<group>/strategy.rs`, and the steps that there are in `keelson_registry::strategy`.

pub(crate) mod classes;

use keelson_meta::Object;
use keelson_meta::json::{Map, Value, json};
use keelson_registry::strategy::{
    DeleteStrategy, FieldPath, StatusAlone, Strategies, UpdateStrategy, metadata_of_status,
};
use keelson_registry::{InherentPlugin, Registry};

/// A kind whose status is written without its metadata, and that has no other rules.
pub(crate) const STATUS_ALONE: Strategies = Strategies::ORDINARY.update(&StatusAlone);

/// A kind whose deletion is answered with the object itself, and whose status, if there is one, is written without its metadata.
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

/// The object at a path, made where there is nothing.
pub(crate) fn inner<'a>(map: &'a mut Map, path: &[&str]) -> Option<&'a mut Map> {
    path.iter().try_fold(map, |map, name| {
        let value = map.entry(*name).or_insert(Value::Null);
        if value.is_null() {
            *value = json!({});
        }
        value.as_object_mut()
    })
}

/// Holds an object until nothing uses it any more. Returns true if it does.
pub(crate) fn protect(registry: &Registry, object: &mut Object, finalizer: &str) -> bool {
    if !registry.does(InherentPlugin::StorageObjectInUseProtection) {
        return false;
    }
    let mut finalizers: Vec<String> = object.finalizers().into_iter().map(str::to_owned).collect();
    if !finalizers.iter().any(|held| held == finalizer) {
        finalizers.push(finalizer.to_owned());
        object.set_meta("finalizers", finalizers);
    }
    true
}
