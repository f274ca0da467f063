//! Laying what a client applies over an object.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::element::PathElement;
use super::identity::of_item;
use super::schema::FieldSchema;
use super::view::{View, Walk};

/// The object with everything that `applied` says in it: values are replaced, objects and lists that are owned by their
/// parts are merged. Cost: proportional to both.
///
/// Nothing goes away: null in `applied` does not remove an object or a list that has something in it. Items stand in the
/// order of `applied`, those that only `object` has between them, near where they were.
pub fn merge<'a>(schema: impl FieldSchema<'a>, object: &Value, applied: &Value) -> Value {
    both(View::Known(schema), object, applied)
}

fn both<'a>(view: View<impl FieldSchema<'a>>, object: &Value, applied: &Value) -> Value {
    match (view.walk(applied), object, applied) {
        (Walk::Members, Value::Object(members), Value::Object(applied)) => merge_members(view, members, applied),
        (Walk::Items, Value::Array(items), Value::Array(applied)) if !items.is_empty() => {
            merge_items(view, items, applied).into()
        }
        (Walk::Members, Value::Object(members), Value::Null) if !members.is_empty() => object.clone(),
        (Walk::Items, Value::Array(items), Value::Null) if !items.is_empty() => object.clone(),
        _ => applied.clone(),
    }
}

fn merge_members<'a>(
    view: View<impl FieldSchema<'a>>,
    object: &Map<String, Value>,
    applied: &Map<String, Value>,
) -> Value {
    let mut merged = Map::with_capacity(object.len().max(applied.len()));
    for (name, value) in object {
        let value = match applied.get(name) {
            Some(applied) => both(view.member(name).0, value, applied),
            None => value.clone(),
        };
        merged.insert(name.clone(), value);
    }
    for (name, value) in applied.iter().filter(|(name, _)| !object.contains_key(*name)) {
        merged.insert(name.clone(), value.clone());
    }
    merged.into()
}

/// An item of the object's list, and its place among the applied items if it is one of them.
struct Live<'v> {
    value: &'v Value,
    applied: Option<usize>,
}

fn merge_items<'a>(view: View<impl FieldSchema<'a>>, object: &[Value], applied: &[Value]) -> Vec<Value> {
    let applied: Vec<_> = applied.iter().filter_map(|item| Some((of_item(view, item).ok()?, item))).collect();
    let places: BTreeMap<_, _> = applied.iter().enumerate().map(|(place, (element, _))| (element, place)).collect();
    let mut partners: Vec<Vec<&Value>> = vec![Vec::new(); applied.len()];
    let mut live = Vec::with_capacity(object.len());
    for value in object {
        let place = of_item(view, value).ok().and_then(|element: PathElement| places.get(&element).copied());
        if let Some(partners) = place.and_then(|place| partners.get_mut(place)) {
            partners.push(value);
        }
        live.push(Live { value, applied: place });
    }
    let merged = applied.iter().zip(&partners).map(|((_, item), partners)| match partners[..] {
        [partner] => both(view.items(), partner, item),
        // What was there more than once is replaced.
        _ => (*item).clone(),
    });
    let shared = (0..applied.len()).filter(|place| partners.get(*place).is_some_and(|partners| !partners.is_empty()));
    interleave(&live, &merged.collect::<Vec<_>>(), &shared.collect::<Vec<_>>())
}

/// Puts live items that are not applied between the applied ones. `shared` are the places of the applied items that are
/// live too: what stands before one of them in the live list goes before it.
fn interleave(live: &[Live<'_>], applied: &[Value], shared: &[usize]) -> Vec<Value> {
    let mut merged = Vec::with_capacity(live.len() + applied.len());
    let mut done = vec![false; applied.len()];
    let mut shared = shared.iter().copied();
    let mut next_shared = shared.next();
    let (mut at_live, mut at_applied) = (0, 0);
    while at_live < live.len() || at_applied < applied.len() {
        match live.get(at_live).map(|live| (live.value, live.applied)) {
            Some((value, None)) => {
                merged.push(value.clone());
                at_live += 1;
                continue;
            }
            Some((_, Some(place))) if place == at_applied => at_live += 1,
            Some((_, Some(place))) if next_shared.is_some_and(|next| next != place) => {
                // It is another shared item's turn; this one comes where the applied list has it.
                at_live += 1;
                continue;
            }
            // There more than once, and merged already.
            Some((_, Some(place))) if done[place] => at_live += 1,
            Some((_, Some(_))) | None => {}
        }
        if let Some(item) = applied.get(at_applied) {
            merged.push(item.clone());
            done[at_applied] = true;
            if next_shared == Some(at_applied) {
                next_shared = shared.next();
            }
            at_applied += 1;
        }
    }
    merged
}
