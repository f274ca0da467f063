//! Equality of values as schemas define it: regardless of the notation of numbers and the order of fields.
//!
//! In JSON, 1 and 1.0 are the same number, but `Value`'s equality distinguishes them. Equal values have equal hashes,
//! so items of long lists are looked up instead of compared pairwise.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};

use keelson_meta::json::Value;

use super::rules::{Identity, Node};

pub(super) fn equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(one), Value::Number(other)) => {
            one == other || one.as_i64().is_none_or(|_| other.as_i64().is_none()) && one.as_f64() == other.as_f64()
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(left, right)| equal(left, right))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(name, left)| other.get(name).is_some_and(|right| equal(left, right)))
        }
        _ => left == right,
    }
}

/// Returns true if a value equals its old value. Items of a list of type map may have another order.
pub(super) fn is_unchanged(node: &Node, old: &Value, new: &Value) -> bool {
    match (old, new) {
        (Value::Array(before), Value::Array(after)) => match (&node.lists.identity, &node.lists.items) {
            (Identity::Keys(keys), Some(of_items)) => {
                let known: HashMap<_, _> = before.iter().map(|item| (SameKeys { keys, item }, item)).collect();
                let stays = |item| {
                    let old = known.get(&SameKeys { keys, item });
                    old.is_some_and(|old| is_unchanged(of_items, old, item))
                };
                before.len() == after.len() && after.iter().all(stays)
            }
            _ => equal(old, new),
        },
        (Value::Object(before), Value::Object(after)) => {
            let stays = |(name, new): (&str, &Value)| match (before.get(name), node.member(name)) {
                (Some(old), Some(of_member)) => is_unchanged(of_member, old, new),
                (Some(old), None) => equal(old, new),
                (None, _) => false,
            };
            before.len() == after.len() && after.iter().all(stays)
        }
        _ => equal(old, new),
    }
}

/// A value that is compared by this equality.
#[derive(Clone, Copy)]
pub(super) struct CelEqual<'v>(pub(super) &'v Value);

impl PartialEq for CelEqual<'_> {
    fn eq(&self, other: &Self) -> bool {
        equal(self.0, other.0)
    }
}

impl Eq for CelEqual<'_> {}

impl Hash for CelEqual<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::mem::discriminant(self.0).hash(state);
        match self.0 {
            Value::Null => {}
            Value::Bool(flag) => flag.hash(state),
            // Adding zero turns -0.0 into 0.0.
            Value::Number(number) => number.as_f64().map(|number| (number + 0.0).to_bits()).hash(state),
            Value::String(text) => text.hash(state),
            Value::Array(items) => {
                items.len().hash(state);
                items.iter().for_each(|item| CelEqual(item).hash(state));
            }
            Value::Object(map) => {
                let mut fields: Vec<_> = map.iter().map(|(name, value)| (name, CelEqual(value))).collect();
                fields.sort_unstable_by_key(|(name, _)| *name);
                fields.hash(state);
            }
        }
    }
}

/// An item of a list of type map, compared by its keys.
#[derive(Clone, Copy)]
pub(super) struct SameKeys<'v> {
    /// The names of the keys.
    pub(super) keys: &'v [String],
    pub(super) item: &'v Value,
}

impl<'v> SameKeys<'v> {
    fn values(self) -> impl Iterator<Item = Option<CelEqual<'v>>> {
        self.keys.iter().map(move |key| self.item.get(key.as_str()).map(CelEqual))
    }
}

impl PartialEq for SameKeys<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.values().eq(other.values())
    }
}

impl Eq for SameKeys<'_> {}

impl Hash for SameKeys<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.values().for_each(|value| value.hash(state));
    }
}

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasher as _, RandomState};

    use keelson_meta::json::json;

    use super::*;

    #[test]
    fn equal_values_have_equal_hashes() {
        let hasher = RandomState::new();
        let check = |left: Value, right: Value, expected: bool| {
            assert_eq!(equal(&left, &right), expected, "{left} and {right}");
            let hashes = [&left, &right].map(|value| hasher.hash_one(CelEqual(value)));
            assert!(!expected || hashes[0] == hashes[1], "{left} and {right}");
        };
        check(json!(1), json!(1.0), true);
        check(json!(0.0), json!(-0.0), true);
        check(json!(i64::MAX), json!(i64::MAX - 1), false);
        check(json!({"a": [1], "b": null}), json!({"b": null, "a": [1.0]}), true);
        check(json!({"a": null}), json!({}), false);
        check(json!("1"), json!(1), false);
        let keys = ["k".to_owned()];
        let [one, other, none] = [json!({"k": 1, "x": 2}), json!({"x": 3, "k": 1.0}), json!({})];
        let [one, other, none] = [&one, &other, &none].map(|item| SameKeys { keys: &keys, item });
        assert!(one == other && hasher.hash_one(one) == hasher.hash_one(other) && one != none && none == none);
    }
}
