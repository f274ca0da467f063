//! Volumes: a new one is pending, and is held by a finalizer until nobody uses it any more.
//!
//! The finalizer is taken off by a controller that knows who uses the volume.

use std::time::SystemTime;

use keelson_meta::clock::rfc3339;
use keelson_meta::json::{Map, json};
use keelson_meta::{ApiError, Object};

use crate::kinds::protect;
use crate::kinds::strategy::Strategy;
use crate::registry::Registry;
use crate::target::Target;

/// The strategy of volumes.
pub(super) struct Volumes;

impl Strategy for Volumes {
    fn initial_status(&self, _: &Object, now: SystemTime) -> Map {
        Map::from_iter([
            ("phase".to_owned(), json!("Pending")),
            ("lastPhaseTransitionTime".to_owned(), json!(rfc3339(now))),
        ])
    }

    fn admit(&self, registry: &Registry, _: &Target, object: &mut Object) -> Result<bool, ApiError> {
        Ok(protect(registry, object, "kubernetes.io/pv-protection"))
    }

    fn returns_deleted(&self) -> bool {
        true
    }
}
