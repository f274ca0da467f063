//! Looks up values by hash. A lookup takes as long as reading the value, however many values there are.
//!
//! Equal values have equal hashes. The hash of a list or map ignores the order, since some are equal in any order.
//! Hashes depend on a secret, so that clients can't provoke collisions.

use super::{Value, equals};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::mem::discriminant;

/// Values in order of insertion.
#[derive(Debug, Default)]
pub struct Elements<'a> {
    values: Vec<Value<'a>>,
    secret: RandomState,
    places: HashMap<u64, Vec<usize>>,
}

impl<'a> Elements<'a> {
    /// The index of the first equal value.
    pub fn place_of(&self, value: &Value<'_>) -> Option<usize> {
        let places = self.places.get(&hash(&self.secret, value))?;
        places.iter().copied().find(|place| equals(&self.values[*place], value))
    }

    /// Returns true if there is an equal value.
    pub fn contains(&self, value: &Value<'_>) -> bool {
        self.place_of(value).is_some()
    }

    /// Appends a value.
    pub fn push(&mut self, value: Value<'a>) {
        let places = self.places.entry(hash(&self.secret, &value)).or_default();
        places.push(self.values.len());
        self.values.push(value);
    }

    /// The values.
    pub fn into_values(self) -> Vec<Value<'a>> {
        self.values
    }
}

impl<'a> FromIterator<Value<'a>> for Elements<'a> {
    fn from_iter<I: IntoIterator<Item = Value<'a>>>(values: I) -> Self {
        let mut elements = Self::default();
        values.into_iter().for_each(|value| elements.push(value));
        elements
    }
}

fn hash(secret: &RandomState, value: &Value<'_>) -> u64 {
    let of = discriminant(value);
    let sum = |sum: u64, hash: u64| sum.wrapping_add(hash);
    match value {
        Value::Bool(value) => secret.hash_one(value),
        // Numbers of different types may be equal, so all are hashed as doubles.
        Value::Int(number) => of_number(secret, *number as f64),
        Value::Uint(number) => of_number(secret, *number as f64),
        Value::Double(number) => of_number(secret, *number),
        Value::String(text) | Value::Type(text) => secret.hash_one((of, &**text)),
        Value::Bytes(bytes) => secret.hash_one(bytes),
        Value::Duration(nanos) => secret.hash_one((of, nanos)),
        Value::Timestamp(time) => secret.hash_one(time.instant()),
        Value::List(list) => {
            let elements = list.iter().map(|element| hash(secret, &element)).fold(0, sum);
            secret.hash_one((of, list.len(), elements))
        }
        Value::Map(map) => {
            let entries = map.entries();
            let hashes = entries.iter().map(|(key, value)| secret.hash_one((hash(secret, key), hash(secret, value))));
            secret.hash_one((of, entries.len(), hashes.fold(0, sum)))
        }
        Value::Optional(value) => secret.hash_one((of, value.as_deref().map(|value| hash(secret, value)))),
        Value::Url(url) => secret.hash_one((of, url.text())),
        Value::Ip(address) => secret.hash_one(address),
        Value::Cidr(address, bits) => secret.hash_one((address, bits)),
        Value::Quantity(quantity) => secret.hash_one(quantity),
        // Null has only one value. Values of the other types do not occur in objects, so collisions do not matter.
        Value::Null | Value::Semver(_) | Value::Format(_) | Value::Authorization(_) | Value::Fields(_) => {
            secret.hash_one(of)
        }
    }
}

fn of_number(secret: &RandomState, number: f64) -> u64 {
    // Adding zero turns -0.0 into 0.0, which is equal to it.
    secret.hash_one((number + 0.0).to_bits())
}

#[cfg(test)]
mod tests {
    use super::super::{Decl, List, from_tree};
    use super::*;
    use keelson_meta::json::json;

    #[test]
    fn values_that_are_the_same_are_found_whatever_their_type() {
        let tree = json!([1, 2.5, "a", [1, 2], {"a": 1, "b": [true]}, null, -0.0, 9_007_199_254_740_993_i64]);
        let Value::List(list) = from_tree(&tree, None::<&Decl>) else { panic!("a list") };
        let elements: Elements<'_> = list.iter().collect();
        for (place, value) in list.iter().enumerate() {
            assert_eq!(elements.place_of(&value), Some(place));
        }
        let other = json!({"b": [true], "a": 1.0});
        assert_eq!(elements.place_of(&from_tree(&other, None)), Some(4));
        for (value, place) in
            [(Value::Double(1.0), Some(0)), (Value::Uint(1), Some(0)), (Value::Int(0), Some(6)), (Value::Int(2), None)]
        {
            assert_eq!(elements.place_of(&value), place, "{value:?}");
        }
        let made = Value::List(List::Made(std::rc::Rc::new(vec![Value::Uint(1), Value::Double(2.0)])));
        assert_eq!(elements.place_of(&made), Some(3));
        assert!(!elements.contains(&from_tree(&json!([2, 1]), None)), "the order of a plain list counts");
    }
}
