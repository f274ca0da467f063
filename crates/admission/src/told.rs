//! Messages of refusals and errors that several plugins share. They are upstream's.
//!
//! Clients compare these messages, and operators search for them.

use keelson_meta::Object;
use keelson_meta::json::Value;
use keelson_patch::PatchError;

/// The name of an object in messages.
pub(crate) fn told_name(name: &str, object: Option<&Object>) -> String {
    let of = |object: &Object| match (object.name(), object.generate_name()) {
        ("", "") => None,
        ("", base) => Some(base.to_owned()),
        (name, _) => Some(name.to_owned()),
    };
    if name.is_empty() { object.and_then(of).unwrap_or_else(|| "Unknown".to_owned()) } else { name.to_owned() }
}

/// Upstream's message for a JSON patch operation that fails.
pub(crate) fn told_of_patch(error: &PatchError, patch: &Value) -> String {
    match error {
        PatchError::MissingPath { operation: "remove", path } => {
            let key = path.rsplit('/').next().unwrap_or_default();
            format!("error in remove for path: '{path}': Unable to remove nonexistent key: {key}: missing value")
        }
        PatchError::MissingPath { .. } => format!("{error}: missing value"),
        PatchError::MissingField(field) => {
            let mut operations = patch.as_array().into_iter().flatten();
            let lacking = operations.find(|operation| operation[*field].is_null());
            let operation = lacking.and_then(|operation| operation["op"].as_str()).unwrap_or_default();
            format!("{operation} operation failed to decode {field}: missing value")
        }
        other => other.to_string(),
    }
}
