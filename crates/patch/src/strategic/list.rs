//! Merges a list of the patch into one of the target.
//!
//! The schema identifies items by a key or by value. Without either, the list is replaced.

use std::collections::HashSet;

use keelson_meta::json::{Map, Value};

use super::error::StrategicError;
use super::order::{Identity, Order, arrange};
use super::{DIRECTIVE, GoKind, MergeSchema, Strategy, object};
use crate::go_text;

/// The effect of the items in the patch's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Items are merged.
    Merge,
    /// Items are deleted. Only lists of scalars support it.
    Delete,
}

/// The result of merging `patch` into `target`, both values of the field with this schema.
pub(super) fn merge<'a>(
    target: Vec<Value>,
    patch: &[Value],
    field: impl MergeSchema<'a>,
    mode: Mode,
) -> Result<Vec<Value>, StrategicError> {
    let key = match field.strategy() {
        Strategy::Unset | Strategy::Replace if mode == Mode::Merge => return Ok(patch.to_vec()),
        Strategy::Unset | Strategy::Replace | Strategy::Merge => None,
        Strategy::MergeByKey(key) => Some(key),
    };
    if target.is_empty() && patch.is_empty() {
        return Ok(target);
    }
    match (holds_objects(&target, patch)?, key) {
        (false, _) if mode == Mode::Delete => Ok(without(target, patch)),
        (false, key) => merge_scalars(target, patch, key.map_or(Identity::Whole, Identity::Key)),
        (true, None) => {
            let kind = field.items().map_or(GoKind::Struct, MergeSchema::go_kind).kind();
            Err(StrategicError::NotMergeable { kind })
        }
        (true, Some(key)) => merge_objects(target, patch, key, field),
    }
}

/// Returns true if the items are objects. Fails unless all items have the same type.
fn holds_objects(target: &[Value], patch: &[Value]) -> Result<bool, StrategicError> {
    let mut types = target.iter().chain(patch).map(go_text::type_name);
    let first = types.next().unwrap_or_default();
    if first == go_text::type_name(&Value::Array(Vec::new())) {
        return Err(StrategicError::ListOfLists);
    }
    // Upstream panics if an item is null. Here it is an error.
    if first == go_text::type_name(&Value::Null) || types.any(|other| other != first) {
        return Err(StrategicError::mixed_types(target, patch));
    }
    Ok(first == go_text::type_name(&Value::Object(Map::new())))
}

fn without(mut target: Vec<Value>, deleted: &[Value]) -> Vec<Value> {
    let deleted: HashSet<&Value> = deleted.iter().collect();
    target.retain(|item| !deleted.contains(item));
    target
}

fn merge_scalars(target: Vec<Value>, patch: &[Value], identity: Identity<'_>) -> Result<Vec<Value>, StrategicError> {
    let (patch_order, target_order) = (Order::new(patch, identity)?, Order::new(&target, identity)?);
    let mut merged = target;
    merged.extend_from_slice(patch);
    let mut seen = HashSet::with_capacity(merged.len());
    merged.retain(|item| seen.insert(item.clone()));
    arrange(merged, &patch_order, &target_order, identity)
}

fn merge_objects<'a>(
    mut target: Vec<Value>,
    patch: &[Value],
    key: &'a str,
    field: impl MergeSchema<'a>,
) -> Result<Vec<Value>, StrategicError> {
    let identity = Identity::Key(key);
    let directives = Directives::read(patch, key)?;
    if directives.replace {
        return Ok(directives.plain.into_iter().cloned().map(Value::Object).collect());
    }
    if !directives.deleted.is_empty() {
        target.retain(|item| !item.get(key).is_some_and(|own| directives.deleted.contains(own)));
    }
    let target_order = Order::new(&target, identity)?;
    let mut places = target_order.clone();
    let mut patch_order = Order::default();
    let items = field.items().unwrap_or(field);
    for (place, item) in directives.plain.into_iter().enumerate() {
        let own = item.get(key).ok_or_else(|| StrategicError::no_merge_key(item, key))?;
        patch_order.add(own.clone(), place);
        match places.place(own).and_then(|place| target.get_mut(place)) {
            Some(Value::Object(current)) => object::merge(current, item, items)?,
            _ => {
                places.add(own.clone(), target.len());
                target.push(Value::Object(item.clone()));
            }
        }
    }
    arrange(target, &patch_order, &target_order, identity)
}

/// The items of a patch's list, grouped by directive.
struct Directives<'p> {
    /// Items without a directive.
    plain: Vec<&'p Map>,
    /// Keys of the items to be deleted.
    deleted: HashSet<&'p Value>,
    /// True if the list is to be replaced.
    replace: bool,
}

impl<'p> Directives<'p> {
    fn read(patch: &'p [Value], key: &str) -> Result<Self, StrategicError> {
        let mut read = Self { plain: Vec::with_capacity(patch.len()), deleted: HashSet::new(), replace: false };
        for item in patch {
            let item = item.as_object().ok_or_else(|| StrategicError::not_a_map(item))?;
            let Some(directive) = item.get(DIRECTIVE) else {
                read.plain.push(item);
                continue;
            };
            match directive.as_str() {
                Some("delete") => {
                    read.deleted.insert(item.get(key).ok_or_else(|| StrategicError::no_merge_key(item, key))?);
                }
                Some("replace") => read.replace = true,
                Some("merge") => return Err(StrategicError::MergeDirective),
                _ => return Err(StrategicError::unknown_directive(item)),
            }
        }
        Ok(read)
    }
}
