//! The status of a new object.
//!
//! For most kinds the status of a create is dropped. Fields that are always shown follow from the schema.

use std::time::SystemTime;

use keelson_meta::json::Value;
use keelson_meta::{GroupVersion, GroupVersionKind, Object};
use keelson_schema::{WalkOptions, WalkReport};

use crate::target::Target;

/// The status of a new object, with the fields that are written even if they are empty. `None` for no status.
pub(crate) fn initial_status(target: &Target, object: &Object, now: SystemTime) -> Option<Value> {
    let GroupVersion { group, version } = GroupVersion::parse(object.api_version()?)?;
    let schema = target.schema_of(&GroupVersionKind { group, version, kind: target.resource.kind.to_string() })?;
    let field = schema.field("status")?;
    let mut status = Object(target.strategy().create.initial_status(object, now));
    if status.0.is_empty() && field.omitted_when_zero() {
        return None;
    }
    field.walk(&mut status, &mut WalkReport::default(), WalkOptions::STORE);
    Some(status.into_value())
}
