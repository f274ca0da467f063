//! The order of the items of a merged list.
//!
//! Items of the patch have the patch's order. The other items keep their order in the target. Both sequences are
//! interleaved so that the target's order between them is kept where possible.

use std::collections::HashMap;

use keelson_meta::json::Value;

use super::error::StrategicError;

/// The identity of list items.
#[derive(Clone, Copy, Debug)]
pub(super) enum Identity<'a> {
    /// The whole item, in lists of scalars.
    Whole,
    /// The value of this key.
    Key(&'a str),
}

impl Identity<'_> {
    pub(super) fn value(self, item: &Value) -> Result<&Value, StrategicError> {
        match (self, item) {
            (Self::Whole, item) => Ok(item),
            (Self::Key(key), Value::Object(object)) => {
                object.get(key).ok_or_else(|| StrategicError::no_merge_key(object, key))
            }
            (Self::Key(_), other) => Err(StrategicError::not_a_map(other)),
        }
    }
}

/// The index of each item of a list. Of repeated items the first one counts.
#[derive(Clone, Default)]
pub(super) struct Order(HashMap<Value, usize>);

impl Order {
    pub(super) fn new(items: &[Value], identity: Identity<'_>) -> Result<Self, StrategicError> {
        let mut places = HashMap::with_capacity(items.len());
        for (place, item) in items.iter().enumerate() {
            places.entry(identity.value(item)?.clone()).or_insert(place);
        }
        Ok(Self(places))
    }

    pub(super) fn place(&self, identity: &Value) -> Option<usize> {
        self.0.get(identity).copied()
    }

    /// Adds an item at the end of the list.
    pub(super) fn add(&mut self, identity: Value, place: usize) {
        self.0.entry(identity).or_insert(place);
    }
}

/// An item and its index in the target's list.
struct Item {
    target: Option<usize>,
    value: Value,
}

/// Sorts merged items. `patch` is the order of the patch, `target` that of the target's list.
pub(super) fn arrange(
    merged: Vec<Value>,
    patch: &Order,
    target: &Order,
    identity: Identity<'_>,
) -> Result<Vec<Value>, StrategicError> {
    let count = merged.len();
    let (mut named, mut others) = (Vec::with_capacity(count), Vec::with_capacity(count));
    for value in merged {
        let own = identity.value(&value)?;
        let place = patch.place(own);
        let item = Item { target: target.place(own), value };
        match place {
            Some(place) => named.push((place, item)),
            None => others.push(item),
        }
    }
    named.sort_by_key(|(place, _)| *place);
    others.sort_by_key(|item| item.target.unwrap_or(usize::MAX));
    Ok(interleave(others, named.into_iter().map(|(_, item)| item)))
}

/// Interleaves both. Another item goes before an item of the patch only if it is before that item in the target.
fn interleave(others: Vec<Item>, named: impl Iterator<Item = Item>) -> Vec<Value> {
    let mut arranged = Vec::with_capacity(others.len());
    let mut others = others.into_iter().peekable();
    for item in named {
        let before = |other: &Item| matches!((other.target, item.target), (Some(other), Some(item)) if other < item);
        while let Some(other) = others.next_if(before) {
            arranged.push(other.value);
        }
        arranged.push(item.value);
    }
    arranged.extend(others.map(|item| item.value));
    arranged
}
