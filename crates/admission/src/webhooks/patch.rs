//! Applies the patches of webhooks.
//!
//! They have the rules of patches from clients. Errors of patches that do not apply are upstream's.

use keelson_codec::json;
use keelson_meta::go_format::quote;
use keelson_meta::json::Value;
use keelson_meta::{ApiError, Object};
use keelson_patch::PatchError;
use keelson_patch::json_patch::{Limits, Operations};
use keelson_supervision::turns;

use super::call::CallFault;
use crate::told::told_of_patch;

/// Patches above this size in bytes are applied on another thread.
const LARGE_BYTES: usize = 64 << 10;

/// The result of a patch.
pub(super) enum Patched {
    /// The patch is empty.
    Nothing,
    /// The changed object, with the patch.
    Object(Object, Value),
}

/// Applies a patch of a type from the webhook `name` to an object; `None` if there is no object.
pub(super) async fn apply(
    name: &str,
    (patch, of): (Vec<u8>, String),
    object: Option<Object>,
) -> Result<Patched, CallFault> {
    if patch.len() <= LARGE_BYTES {
        return apply_now(name, &patch, &of, object);
    }
    let name = name.to_owned();
    turns::blocking(move || apply_now(&name, &patch, &of, object)).await
}

fn apply_now(name: &str, patch: &[u8], of: &str, object: Option<Object>) -> Result<Patched, CallFault> {
    let undecodable =
        |why: String| CallFault::Calling(format!("received undecodable patch in webhook response: {why}"));
    let patch = json::parse(patch).map_err(|error| undecodable(error.to_string()))?.value;
    let operations = Operations::read(&patch, Limits::default()).map_err(|error| undecodable(unread(&error)))?;
    if patch.as_array().is_none_or(Vec::is_empty) {
        return Ok(Patched::Nothing);
    }
    let internal = |why: String| CallFault::Broken(ApiError::Internal(why));
    let Some(object) = object else {
        let name = quote(name);
        return Err(internal(format!(
            "admission webhook {name} attempted to modify the object, which is not supported for this operation"
        )));
    };
    if of != "JSONPatch" {
        return Err(CallFault::Calling(format!("unsupported patch type {}", quote(of))));
    }
    let patched = operations.apply(object.into_value()).map_err(|error| internal(told_of_patch(&error, &patch)))?;
    match Object::from_value(patched) {
        Some(object) => Ok(Patched::Object(object, patch)),
        None => Err(internal("the patched value is not an object".to_owned())),
    }
}

fn unread(error: &PatchError) -> String {
    match error {
        PatchError::Malformed { found, .. } => {
            format!("json: cannot unmarshal {found} into Go value of type jsonpatch.Patch")
        }
        other => other.to_string(),
    }
}
