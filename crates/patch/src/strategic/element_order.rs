//! Merges lists for which the patch states an order with `$setElementOrder`.
//!
//! The directive names some of the items. The other items keep their order relative to these, by upstream's algorithm.

use keelson_meta::json::{Map, Value};

use super::error::StrategicError;
use super::list::{self, Mode};
use super::object::{adopted, list_field};
use super::order::{Identity, Order, arrange};
use super::{DIRECTIVE, ELEMENT_ORDER, MergeSchema, Strategy};
use crate::go_text;

/// The names of the lists that are merged and ordered.
pub(super) struct Ordered<'p>(Vec<&'p str>);

impl Ordered<'_> {
    pub(super) fn contains(&self, name: &str) -> bool {
        self.0.contains(&name)
    }
}

/// Merges every list that has an order in the patch.
pub(super) fn merge_ordered<'p, 'a>(
    target: &mut Map,
    patch: &'p Map,
    schema: impl MergeSchema<'a>,
) -> Result<Ordered<'p>, StrategicError> {
    let mut ordered = Vec::new();
    for (name, order) in patch {
        let Some(rest) = name.strip_prefix(ELEMENT_ORDER) else {
            continue;
        };
        let order = order.as_array().ok_or_else(|| StrategicError::not_a_list(order))?;
        let list = rest.strip_prefix('/').ok_or(StrategicError::BadElementOrder)?;
        if let Some(merged) = merge_list(target, patch, list, order, schema)? {
            target.insert(list, merged);
            ordered.push(list);
        }
    }
    Ok(Ordered(ordered))
}

/// Returns `None` if neither side has the list.
fn merge_list<'a>(
    target: &Map,
    patch: &Map,
    name: &str,
    order: &[Value],
    schema: impl MergeSchema<'a>,
) -> Result<Option<Vec<Value>>, StrategicError> {
    let (in_target, in_patch) = (list_of(target, name)?, list_of(patch, name)?);
    let field = list_field(schema, name)?;
    let identity = match field.strategy() {
        Strategy::MergeByKey(key) => Identity::Key(key),
        Strategy::Unset | Strategy::Replace | Strategy::Merge => Identity::Whole,
    };
    check_order(in_patch.unwrap_or_default(), order, identity)?;
    let merged = match (in_target, in_patch) {
        (None, None) => return Ok(None),
        (Some(target), None) => target.to_vec(),
        (None, Some(patch)) => patch.iter().filter_map(adopted).collect(),
        (Some(target), Some(patch)) => list::merge(target.to_vec(), patch, field, Mode::Merge)?,
    };
    let target_order = Order::new(in_target.unwrap_or_default(), identity)?;
    arrange(merged, &Order::new(order, identity)?, &target_order, identity).map(Some)
}

fn list_of<'v>(object: &'v Map, name: &str) -> Result<Option<&'v [Value]>, StrategicError> {
    match object.get(name) {
        None => Ok(None),
        Some(Value::Array(items)) => Ok(Some(items)),
        Some(other) => Err(StrategicError::not_a_list(other)),
    }
}

/// Checks that the items of the patch are a subsequence of the order.
fn check_order(patch: &[Value], order: &[Value], identity: Identity<'_>) -> Result<(), StrategicError> {
    if order.is_empty() {
        return Ok(());
    }
    let mut rest = order.iter();
    for item in patch.iter().filter(|item| item.get(DIRECTIVE).is_none()) {
        let own = identity.value(item)?;
        loop {
            match rest.next() {
                Some(next) if identity.value(next)? == own => break,
                Some(_) => {}
                None => {
                    let (patch, order) = (go_text::list(patch), go_text::list(order));
                    return Err(StrategicError::OrderMismatch { patch, order });
                }
            }
        }
    }
    Ok(())
}
