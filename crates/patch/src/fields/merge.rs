//! Laying what a client applies over an object.
//!
//! Lists are merged by the keys that their schema names, and items that are new come where the client has them. Nothing is
//! removed here; that is `remove`.

use keelson_meta::json::{Map, Value};

use super::identity::{Items, Keys, order_identities};
use super::schema::FieldSchema;
use super::view::{View, Walk};

/// The object with everything that `applied` says in it: values are replaced, objects and lists that are owned by their
/// parts are merged. Cost: proportional to both.
///
/// Nothing goes away: null in `applied` does not remove an object or a list that has something in it, or that can't be null. Items
/// stand in the order of `applied`, those that only `object` has between them, near where they were.
pub fn merge<'a>(schema: impl FieldSchema<'a>, object: &Value, applied: &Value) -> Value {
    // Most of it stays, and a copy of the whole is cheaper than one put together of copies of its parts.
    let mut merged = object.clone();
    lay(View::Known(schema), &mut merged, applied, Nulls::AsApplied);
    merged
}

/// Lays an applied object again over the result of a merge from which fields were removed since. Empty lists and nulls that went with
/// these fields come back, but no null that the schema does not take.
pub(super) fn lay_again<'a>(schema: impl FieldSchema<'a>, object: &mut Value, applied: &Value) {
    lay(View::Known(schema), object, applied, Nulls::WhereTaken);
}

/// The nulls that are added as new members.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Nulls {
    /// All nulls; validation may refuse them later.
    AsApplied,
    /// Only nulls that the schema takes.
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

/// An item of the object's list, and its place among the applied items if it is one of them.
struct Live {
    value: Value,
    applied: Option<usize>,
}

fn lay_items<'a>(view: View<impl FieldSchema<'a>>, object: &mut Vec<Value>, applied: &[Value], nulls: Nulls) {
    let keys = Keys::of(view);
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
        // What was there more than once is replaced.
        _ => item.clone(),
    });
    let merged: Vec<_> = merged.collect();
    let shared = (0..applied.len()).filter(|place| !partners[*place].is_empty()).collect::<Vec<_>>();
    let live = object.drain(..).zip(places).map(|(value, applied)| Live { value, applied }).collect();
    *object = interleave(live, merged, &shared);
}

/// For each live item its place among the applied ones.
fn places(keys: &Keys<'_>, live: &[Value], applied: &[Value]) -> Vec<Option<usize>> {
    let (live_items, applied_items) = (Items::of(keys, live), Items::of(keys, applied));
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

/// Puts live items that are not applied between the applied ones. `shared` are the places of the applied items that are
/// live too: what stands before one of them in the live list goes before it.
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
                // It is another shared item's turn; this one comes where the applied list has it.
                live.next();
                continue;
            }
            // There more than once, and merged already.
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
