//! Strategy of persistent volume claims. A new claim gets the default storage class and a finalizer. Its data source is
//! in two fields.
//!
//! The older field permits fewer kinds. If a request has one field, the other is set too, so that old and new clients
//! agree.

use std::time::SystemTime;

use keelson_meta::json::{Map, Value, json};
use keelson_meta::{ApiError, Object};
use keelson_registry::strategy::{ClosedFields, CreateStrategy, DeleteStrategy, UpdateStrategy};
use keelson_registry::{Registry, Target, Warnings};

use crate::storage::strategy as storage;
use crate::strategy::protect;

/// The fields of a claim that feature gates guard.
pub(super) fn gated_fields() -> Vec<ClosedFields> {
    vec![ClosedFields::new("CSIVolumeHealth", &["status"], &[&["healthStatus"]])]
}

/// Makes `dataSource` and `dataSourceRef` agree (KEP-1495).
///
/// The older field only supports claims and snapshots. Other kinds are dropped from it, unless the stored claim has a
/// source. References to other namespaces are not supported and are dropped.
fn settle_sources(current: Option<&Object>, claim: &mut Object) {
    let old = current.and_then(|current| current.0.get("spec")?.as_object());
    let has = |spec: &Map, field: &str| spec.get(field).is_some_and(|source| !source.is_null());
    let had_source = old.is_some_and(|old| has(old, "dataSource") || has(old, "dataSourceRef"));
    let reached_out = old.is_some_and(|old| leads_elsewhere(old.get("dataSourceRef")));
    let Some(Value::Object(spec)) = claim.0.get_mut("spec") else { return };
    if !had_source && spec.get("dataSource").is_some_and(|source| !is_claim_or_snapshot(source)) {
        spec.remove("dataSource");
    }
    if leads_elsewhere(spec.get("dataSourceRef")) && !reached_out {
        spec.remove("dataSourceRef");
    }
    if leads_elsewhere(spec.get("dataSourceRef")) {
        return;
    }
    for (from, to) in [("dataSource", "dataSourceRef"), ("dataSourceRef", "dataSource")] {
        if !has(spec, to)
            && let Some(source @ Value::Object(_)) = spec.get(from).cloned()
        {
            spec.insert(to, source);
        }
    }
}

fn is_claim_or_snapshot(source: &Value) -> bool {
    let text = |field: &str| source.get(field).and_then(Value::as_str).unwrap_or_default();
    matches!(
        (text("apiGroup"), text("kind")),
        ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot")
    )
}

fn leads_elsewhere(source: Option<&Value>) -> bool {
    let namespace = source.and_then(|source| source.get("namespace")).and_then(Value::as_str);
    namespace.is_some_and(|namespace| !namespace.is_empty())
}

/// The strategy of claims.
pub(super) struct Claims;

impl CreateStrategy for Claims {
    fn initial_status(&self, _: &Object, _: SystemTime) -> Map {
        Map::from_iter([("phase".to_owned(), json!("Pending"))])
    }

    fn admit(&self, registry: &Registry, _: &Target, object: &mut Object) -> Result<bool, ApiError> {
        protect(registry, object, "kubernetes.io/pvc-protection");
        storage::take_default_class(registry, object).map(|()| true)
    }

    fn prepare_create(&self, object: &mut Object, _: &Warnings) -> bool {
        settle_sources(None, object);
        true
    }
}

impl UpdateStrategy for Claims {
    fn prepare_update(&self, target: &Target, current: &Object, next: &mut Object) -> bool {
        let whole = target.subresource.is_none();
        if whole {
            settle_sources(Some(current), next);
        }
        whole
    }
}

impl DeleteStrategy for Claims {
    fn returns_deleted(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_source_mirrors_data_source_ref_where_possible() {
        let check = |old: Option<Value>, spec: Value, expected: Value| {
            let object = |spec: Value| Object::from_value(json!({ "spec": spec })).unwrap();
            let mut claim = object(spec);
            settle_sources(old.map(object).as_ref(), &mut claim);
            assert_eq!(claim.0["spec"], expected);
        };
        let claim = json!({ "kind": "PersistentVolumeClaim", "name": "a" });
        let both = json!({ "dataSource": claim, "dataSourceRef": claim });
        check(None, json!({ "dataSource": claim }), both.clone());
        check(None, json!({ "dataSourceRef": claim }), both);
        let other = json!({ "apiGroup": "apps", "kind": "Deployment", "name": "a" });
        check(None, json!({ "dataSource": other }), json!({}));
        let both = json!({ "dataSource": other, "dataSourceRef": other });
        check(None, json!({ "dataSourceRef": other }), both.clone());
        check(Some(json!({ "dataSource": other })), json!({ "dataSource": other }), both);
        let abroad = json!({ "kind": "User", "name": "a", "namespace": "b" });
        check(None, json!({ "dataSourceRef": abroad }), json!({}));
    }
}
