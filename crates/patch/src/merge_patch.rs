//! JSON merge patch (RFC 7396): a partial object that is merged into the target. Null removes a member.
//!
//! Existing fields keep their order, and new ones come last. The caller validates the result.

use keelson_meta::Object;
use keelson_meta::json::{Map, Value};

use crate::error::PatchError;

/// Merges the patch into the target. Cost: proportional to the patch, plus the objects that lose members.
///
/// Arrays are replaced as a whole. A patch that is not an object replaces the target.
pub fn apply(target: &mut Value, patch: &Value) {
    match patch {
        Value::Object(patch) => {
            if !target.is_object() {
                *target = Value::Object(Map::new());
            }
            if let Value::Object(target) = target {
                apply_members(target, patch);
            }
        }
        other => *target = other.clone(),
    }
}

/// Merges the patch into an API object.
///
/// # Errors
/// [`PatchError::Malformed`] if the patch is not an object.
pub fn apply_to_object(target: &mut Object, patch: &Value) -> Result<(), PatchError> {
    match patch {
        Value::Object(patch) => {
            apply_members(&mut target.0, patch);
            Ok(())
        }
        other => Err(PatchError::malformed(other, "value of type map[string]interface {}")),
    }
}

/// Sorts the members of every object in which the patch has members. Upstream writes patched objects in this order
/// before it decodes them again.
pub fn order(patched: &mut Value, patch: &Value) {
    match (patched, patch) {
        (Value::Object(patched), Value::Object(patch)) => {
            patched.sort_keys();
            for (key, patch) in patch {
                if let Some(member) = patched.get_mut(key) {
                    order(member, patch);
                }
            }
        }
        (Value::Array(patched), Value::Array(patch)) => {
            patched.iter_mut().zip(patch).for_each(|(patched, patch)| order(patched, patch));
        }
        _ => {}
    }
}

fn apply_members(target: &mut Map, patch: &Map) {
    for (key, value) in patch {
        if value.is_null() {
            target.remove(key);
        } else {
            apply(target.entry(key).or_insert(Value::Null), value);
        }
    }
}
