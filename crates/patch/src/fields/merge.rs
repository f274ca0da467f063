//! Merges an applied object into a live one.
//!
//! Lists are merged by the keys in their schema. New items get the position that they have in the applied list.
//! `remove` removes fields.

use keelson_meta::json::{Map, Value};

use super::identity::{Items, Keys, order_identities};
use super::schema::FieldSchema;
use super::view::{View, Walk};

/// Returns the object with the values of `applied`: scalars and atomic values are replaced, granular objects and lists
/// are merged. Cost: proportional to both.
///
/// Nothing is removed: null in `applied` does not clear an object or list that has parts or is not nullable. Applied
/// items have the order of `applied`. Items that are only in `object` stay near their previous neighbours.
pub fn merge<'a>(schema: impl FieldSchema<'a>, object: &Value, applied: &Value) -> Value {
    // Cloning the whole object costs less than assembling it from clones of its parts, since most parts stay.
    let mut merged = object.clone();
    lay(View::Known(schema), &mut merged, applied, Nulls::AsApplied);
    merged
}

/// Merges the applied object again, after fields were removed from the result of the first merge. This restores empty
/// lists and nulls that were removed with these fields, except nulls that the schema does not allow.
pub(super) fn lay_again<'a>(schema: impl FieldSchema<'a>, object: &mut Value, applied: &Value) {
    lay(View::Known(schema), object, applied, Nulls::WhereTaken);
}

/// The nulls that a merge adds as new members.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Nulls {
    /// All nulls. Validation may refuse them later.
    AsApplied,
    /// Only nulls that the schema allows.
    WhereTaken,
}

fn lay<'a>(view: View<impl FieldSchema<'a>>, object: &mut Value, applied: &Value, nulls: Nulls) {
    match (view.walk(applied), &mut *object, applied) {
        (Walk::Members, Value::Object(members), Value::Object(applied)) => lay_members(view, members, applied, nulls),
        (Walk::Items, Value::Array(items), Value::Array(applied)) if !items.is_empty() => {
            lay_items(view, items, applied, nulls);
        }
        (Walk::Members, Value::Object(members), Value::Null) if !members.is_empty() || !view.takes_null() => {}
        (Walk::Items, Value::Array(items), Value::Null) if !items.is_empty() || !view.takes_null() => {}
        (_, Value::String(text), Value::String(applied)) if text == applied => {}
        (_, object, applied) => *object = applied.clone(),
    }
}

fn lay_members<'a>(view: View<impl FieldSchema<'a>>, object: &mut Map, applied: &Map, nulls: Nulls) {
    let (mut next, mut shared, mut near) = (applied.iter().peekable(), 0, 0);
    for (name, value) in object.iter_mut() {
        let partner = match next.next_if(|(other, _)| *other == name) {
            Some((_, partner)) => Some(partner),
            None => applied.get(name),
        };
        if let Some(partner) = partner {
            shared += 1;
            lay(view.member_near(name, &mut near).0, value, partner, nulls);
        }
    }
    for (name, value) in applied.iter().filter(|_| shared < applied.len()) {
        let mut is_taken = || !value.is_null() || view.member_near(name, &mut near).0.takes_null();
        if !object.contains_key(name) && (nulls == Nulls::AsApplied || is_taken()) {
            object.insert(name, value.clone());
        }
    }
}

/// An item of the object's list, and its index in the applied list if it is there.
struct Live {
    value: Value,
    applied: Option<usize>,
}

fn lay_items<'a>(view: View<impl FieldSchema<'a>>, object: &mut Vec<Value>, applied: &[Value], nulls: Nulls) {
    let keys = Keys::from_list(view);
    if keys.are_in_step(object, applied) {
        object.iter_mut().zip(applied).for_each(|(item, applied)| lay(view.items(), item, applied, nulls));
        return;
    }
    let places = places(&keys, object, applied);
    let mut partners: Vec<Vec<usize>> = vec![Vec::new(); applied.len()];
    for (at, place) in places.iter().enumerate() {
        if let Some(place) = place {
            partners[*place].push(at);
        }
    }
    let merged = applied.iter().zip(&partners).map(|(item, partners)| match partners[..] {
        [partner] => {
            let mut merged = object[partner].take();
            lay(view.items(), &mut merged, item, nulls);
            merged
        }
        // Repeated items are replaced.
        _ => item.clone(),
    });
    let merged: Vec<_> = merged.collect();
    let shared = (0..applied.len()).filter(|place| !partners[*place].is_empty()).collect::<Vec<_>>();
    let live = object.drain(..).zip(places).map(|(value, applied)| Live { value, applied }).collect();
    *object = interleave(live, merged, &shared);
}

/// The index of each live item in the applied list.
fn places(keys: &Keys<'_>, live: &[Value], applied: &[Value]) -> Vec<Option<usize>> {
    let (live_items, applied_items) = (Items::new(keys, live), Items::new(keys, applied));
    let mut places = vec![None; live.len()];
    let mut groups = applied_items.groups().peekable();
    for group in live_items.groups() {
        let identity = live_items.identity(group.start);
        let order = |other: usize| order_identities(applied_items.identity(other), identity);
        while groups.next_if(|other| order(other.start).is_lt()).is_some() {}
        let partner = groups.peek().filter(|other| order(other.start).is_eq());
        let place = partner.and_then(|partner| applied_items.places(partner.clone()).last().copied());
        live_items.places(group).iter().for_each(|at| places[*at] = place);
    }
    places
}

/// Inserts the live items that were not applied between the applied ones. `shared` has the indexes of the applied items
/// that are also live. A live item before a shared item stays before it.
fn interleave(live: Vec<Live>, applied: Vec<Value>, shared: &[usize]) -> Vec<Value> {
    let mut merged = Vec::with_capacity(live.len() + applied.len());
    let mut done = vec![false; applied.len()];
    let mut shared = shared.iter().copied();
    let mut next_shared = shared.next();
    let (mut live, mut applied) = (live.into_iter().peekable(), applied.into_iter().enumerate().peekable());
    while live.peek().is_some() || applied.peek().is_some() {
        let at_applied = applied.peek().map(|(at, _)| *at);
        match live.peek().map(|live| live.applied) {
            Some(None) => {
                merged.extend(live.next().map(|live| live.value));
                continue;
            }
            Some(Some(place)) if Some(place) == at_applied => drop(live.next()),
            Some(Some(place)) if next_shared.is_some_and(|next| next != place) => {
                // The order differs: the applied list places this item elsewhere.
                live.next();
                continue;
            }
            // This is the repetition of an item that is already in the result.
            Some(Some(place)) if done[place] => drop(live.next()),
            Some(Some(_)) | None => {}
        }
        if let Some((at, item)) = applied.next() {
            merged.push(item);
            done[at] = true;
            if next_shared == Some(at) {
                next_shared = shared.next();
            }
        }
    }
    merged
}
