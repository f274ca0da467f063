//! Volumes, their claims and their classes: each is held by a finalizer until nobody uses it any more.
//!
//! The finalizers are upstream's, and are taken off by controllers that know who uses a volume. A claim that names no class
//! gets the default one here.

use std::time::SystemTime;

use keelson_meta::clock::rfc3339;
use keelson_meta::json::{Map, json};
use keelson_meta::{ApiError, Object};

use super::strategy::Strategy;
use super::{classes, volume_claims};
use crate::registry::Registry;
use crate::target::Target;

/// The strategy of claims.
pub(super) struct Claims;

impl Strategy for Claims {
    fn initial_status(&self, _: &Object, _: SystemTime) -> Map {
        Map::from_iter([("phase".to_owned(), json!("Pending"))])
    }

    fn admit(&self, registry: &Registry, _: &Target, object: &mut Object) -> Result<bool, ApiError> {
        classes::storage_class(registry, object).map(|()| true)
    }

    fn prepare_create(&self, object: &mut Object) -> bool {
        volume_claims::settle_sources(None, object);
        protect(object, "kubernetes.io/pvc-protection");
        true
    }

    fn prepare_update(&self, target: &Target, current: &Object, next: &mut Object) -> bool {
        let whole = target.subresource.is_none();
        if whole {
            volume_claims::settle_sources(Some(current), next);
        }
        whole
    }

    fn returns_deleted(&self) -> bool {
        true
    }
}

/// The strategy of volumes.
pub(super) struct Volumes;

impl Strategy for Volumes {
    fn initial_status(&self, _: &Object, now: SystemTime) -> Map {
        Map::from_iter([
            ("phase".to_owned(), json!("Pending")),
            ("lastPhaseTransitionTime".to_owned(), json!(rfc3339(now))),
        ])
    }

    fn prepare_create(&self, object: &mut Object) -> bool {
        protect(object, "kubernetes.io/pv-protection")
    }

    fn returns_deleted(&self) -> bool {
        true
    }
}

/// The strategy of classes of volume attributes.
pub(super) struct VolumeAttributesClasses;

impl Strategy for VolumeAttributesClasses {
    fn prepare_create(&self, object: &mut Object) -> bool {
        protect(object, "kubernetes.io/vac-protection")
    }
}

/// Holds an object until nobody uses it any more.
fn protect(object: &mut Object, finalizer: &str) -> bool {
    let mut finalizers: Vec<String> = object.finalizers().into_iter().map(str::to_owned).collect();
    if !finalizers.iter().any(|held| held == finalizer) {
        finalizers.push(finalizer.to_owned());
        object.set_meta("finalizers", finalizers);
    }
    true
}
