//! Strategy of persistent volumes: a new volume is pending, and a finalizer keeps it while a claim uses it.
//!
//! The volume protection controller removes the finalizer.

use std::time::SystemTime;

use keelson_meta::clock::rfc3339;
use keelson_meta::json::{Map, Value, json};
use keelson_meta::{ApiError, Object};
use keelson_registry::strategy::{CreateStrategy, DeleteStrategy, UpdateStrategy};
use keelson_registry::{Registry, Target};

use crate::strategy::protect;

/// The field with the time of the last phase change (KEP-3762).
const SINCE: &str = "lastPhaseTransitionTime";

/// The strategy of volumes.
pub(super) struct Volumes;

impl CreateStrategy for Volumes {
    fn initial_status(&self, _: &Object, now: SystemTime) -> Map {
        Map::from_iter([("phase".to_owned(), json!("Pending")), (SINCE.to_owned(), json!(rfc3339(now)))])
    }

    fn admit(&self, registry: &Registry, _: &Target, object: &mut Object) -> Result<bool, ApiError> {
        Ok(protect(registry, object, "kubernetes.io/pv-protection"))
    }
}

impl UpdateStrategy for Volumes {
    /// Sets the time of the last phase change, unless the client does.
    fn date_update(&self, target: &Target, current: &Object, next: &mut Object, now: SystemTime) -> bool {
        let of = |object: &Object, field| object.get(&["status", field]).cloned();
        let is_stated = of(next, SINCE).is_some_and(|since| !since.is_null()) && of(next, SINCE) != of(current, SINCE);
        if target.subresource_name() != Some("status") || of(current, "phase") == of(next, "phase") || is_stated {
            return false;
        }
        let status = next.0.get_mut("status").and_then(Value::as_object_mut);
        status.map(|status| status.insert(SINCE, rfc3339(now))).is_some()
    }
}

impl DeleteStrategy for Volumes {
    fn returns_deleted(&self) -> bool {
        true
    }
}
