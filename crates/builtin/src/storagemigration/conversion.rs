//! Migrations of `storagemigration.k8s.io/v1alpha1`. They name a version of the resource, and their conditions have
//! another type.
//!
//! The continue token is dropped, so the migration starts again.

use keelson_meta::json::{Map, json};

use crate::converting::conversion::ConversionError;
use crate::converting::families::{Family, family, hub};
use crate::converting::retired::{ALPHA, RetiredVersions, row};
use crate::converting::tree::{append_rest, each_in, fill, object, take};

const GROUP: &str = "storagemigration.k8s.io";

pub(crate) const FAMILIES: &[Family] = &[family("StorageVersionMigration", &[hub(GROUP, "v1beta1"), hub(GROUP, "v1")])];

pub(crate) const RETIRED: &[RetiredVersions] =
    &[row("StorageVersionMigration", GROUP, ALPHA).to(GROUP, "v1beta1").by(migration_from_v1alpha1)];

/// Converts from v1alpha1 to v1beta1.
pub(crate) fn migration_from_v1alpha1(migration: &mut Map) -> Result<(), ConversionError> {
    if let Some(spec) = object(migration, "spec")? {
        take(spec, "continueToken");
        if let Some(resource) = object(spec, "resource")? {
            take(resource, "version");
        }
    }
    let Some(status) = object(migration, "status")? else { return Ok(()) };
    each_in(status, "conditions", |condition| {
        let mut rest = std::mem::take(condition);
        for (from, to) in [("type", "type"), ("status", "status"), ("lastUpdateTime", "lastTransitionTime")] {
            if let Some(value) = take(&mut rest, from) {
                condition.insert(to, value);
            }
        }
        append_rest(condition, rest);
        fill(condition, "reason", json!(""));
        fill(condition, "message", json!(""));
        Ok(())
    })
}
