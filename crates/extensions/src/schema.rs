//! The schema of one version of a definition, compiled: by it objects are pruned, filled in, judged, merged and owned.
//!
//! What a schema may say was checked when the definition was written.

use keelson_meta::GroupVersionKind;
use keelson_meta::json::Value;
use keelson_schema::Schema;

/// The schema of a version; `None` where it says nothing that can be used, and then objects are taken as they are.
pub(crate) fn of_version(kind: &GroupVersionKind, version: &Value) -> Option<Schema> {
    let document = version.get("schema")?.get("openAPIV3Schema")?;
    match Schema::structural(kind, document) {
        Ok(schema) => Some(schema),
        Err(error) => {
            // Only an older server can have stored it.
            tracing::warn!(group = kind.group, version = kind.version, kind = kind.kind, %error, "a schema can't be used, so that objects are taken as they are");
            None
        }
    }
}
