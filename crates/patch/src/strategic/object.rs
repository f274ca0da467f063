//! Merges an object of the patch into one of the target, member by member.
//!
//! Directives such as `$patch: replace` are handled before the members. `list` merges lists.

use std::collections::HashSet;
use std::mem;

use keelson_meta::json::{Map, Value};

use super::element_order::{self, Ordered};
use super::error::StrategicError;
use super::list::{self, Mode};
use super::{DELETE_FROM, DIRECTIVE, ELEMENT_ORDER, GoKind, MergeSchema, RETAIN_KEYS, Strategy};
use crate::go_text;

/// Merges `patch` into `target`. After an error, `target` is partly merged.
pub(super) fn merge<'a>(target: &mut Map, patch: &Map, schema: impl MergeSchema<'a>) -> Result<(), StrategicError> {
    if let Some(directive) = patch.get(DIRECTIVE) {
        return follow_directive(target, patch, directive);
    }
    retain_keys(target, patch)?;
    let ordered = element_order::merge_ordered(target, patch, schema)?;
    for (name, value) in patch {
        if !is_done(name, &ordered) {
            merge_member(target, name, value, schema)?;
        }
    }
    Ok(())
}

fn is_done(name: &str, ordered: &Ordered<'_>) -> bool {
    name == RETAIN_KEYS || name.starts_with(ELEMENT_ORDER) || ordered.contains(name)
}

fn follow_directive(target: &mut Map, patch: &Map, directive: &Value) -> Result<(), StrategicError> {
    match directive.as_str() {
        Some("replace") => {
            target.clone_from(patch);
            target.remove(DIRECTIVE);
            Ok(())
        }
        Some("delete") => {
            target.clear();
            Ok(())
        }
        _ => Err(StrategicError::unknown_directive(patch)),
    }
}

/// Removes members that `$retainKeys` does not list.
fn retain_keys(target: &mut Map, patch: &Map) -> Result<(), StrategicError> {
    let Some(retained) = patch.get(RETAIN_KEYS) else {
        return Ok(());
    };
    let retained = retained.as_array().ok_or(StrategicError::BadRetainKeys)?;
    let retained: HashSet<&str> = retained.iter().filter_map(Value::as_str).collect();
    for (name, value) in patch {
        let is_directive = name == RETAIN_KEYS || name.starts_with(DELETE_FROM) || name.starts_with(ELEMENT_ORDER);
        if !value.is_null() && !is_directive && !retained.contains(name) {
            return Err(StrategicError::BadRetainKeys);
        }
    }
    target.retain(|name, _| retained.contains(name));
    Ok(())
}

fn merge_member<'a>(
    target: &mut Map,
    name: &str,
    value: &Value,
    schema: impl MergeSchema<'a>,
) -> Result<(), StrategicError> {
    let (name, mode) = match name.strip_prefix(DELETE_FROM) {
        None => (name, Mode::Merge),
        Some(rest) => (rest.strip_prefix('/').ok_or(StrategicError::BadDeletion)?, Mode::Delete),
    };
    if value.is_null() {
        target.remove(name);
        return Ok(());
    }
    let applies = mode == Mode::Merge || target.get(name).is_some_and(|current| same_type(current, value));
    match (target.get_mut(name), value) {
        (Some(Value::Object(target)), Value::Object(patch)) => {
            let field = field(schema, name)?;
            if field.strategy() == Strategy::Replace {
                target.clone_from(patch);
                return Ok(());
            }
            merge(target, patch, field)
        }
        (Some(Value::Array(target)), Value::Array(patch)) => {
            let field = list_field(schema, name)?;
            *target = list::merge(mem::take(target), patch, field, mode)?;
            Ok(())
        }
        _ if applies => {
            adopt_member(target, name, value);
            Ok(())
        }
        // The target has no list to delete items from.
        _ => Ok(()),
    }
}

fn same_type(left: &Value, right: &Value) -> bool {
    go_text::type_name(left) == go_text::type_name(right)
}

/// Sets a member that the target does not have.
fn adopt_member(target: &mut Map, name: &str, value: &Value) {
    match adopted(value) {
        Some(value) => {
            target.insert(name, value);
        }
        None => {
            target.remove(name);
        }
    }
}

/// Returns the value without null members, and without objects that have a directive. `None` if the value itself has
/// one.
pub(super) fn adopted(value: &Value) -> Option<Value> {
    match value {
        Value::Object(members) if members.contains_key(DIRECTIVE) => None,
        Value::Object(members) => {
            let set = members.iter().filter(|(_, value)| !value.is_null());
            Some(set.filter_map(|(name, value)| Some((name, adopted(value)?))).collect::<Map>().into())
        }
        Value::Array(items) => Some(items.iter().filter_map(adopted).collect()),
        scalar => Some(scalar.clone()),
    }
}

fn field<'a, S: MergeSchema<'a>>(schema: S, name: &str) -> Result<S, StrategicError> {
    schema.field(name).ok_or_else(|| StrategicError::no_field(schema.go_kind(), schema.type_name(), name))
}

/// The schema of a field that has to be a list.
pub(super) fn list_field<'a, S: MergeSchema<'a>>(schema: S, name: &str) -> Result<S, StrategicError> {
    let field = field(schema, name)?;
    match field.go_kind() {
        // Go represents arbitrary JSON as a pointer to a struct. A list there is replaced.
        GoKind::List | GoKind::Struct => Ok(field),
        GoKind::Map | GoKind::Scalar => Err(StrategicError::NoList { kind: schema.go_kind().kind() }),
    }
}
