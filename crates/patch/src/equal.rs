//! Compares JSON trees that are mostly alike, such as an object before and after a write.
//!
//! The result is that of `==`, but members are found with fewer searches. The module must not know the meaning of
//! values.

use keelson_meta::json::{Map, Value};

/// Returns true if two values are equal. Most compared objects have their members in the same order, in which no member
/// must be searched.
pub fn equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && side_by_side(left, right).all(|(_, left, right)| right.is_some_and(|right| equal(left, right)))
        }
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| equal(left, right))
        }
        (left, right) => left == right,
    }
}

/// The members of the left object, each with its value in the right one.
pub fn side_by_side<'v>(
    left: &'v Map,
    right: &'v Map,
) -> impl Iterator<Item = (&'v str, &'v Value, Option<&'v Value>)> {
    let mut next = right.iter().peekable();
    left.iter().map(move |(name, value)| {
        let other = match next.next_if(|(other, _)| *other == name) {
            Some((_, other)) => Some(other),
            None => right.get(name),
        };
        (name, value, other)
    })
}

#[cfg(test)]
mod tests {
    use keelson_meta::json::json;

    use super::*;

    #[test]
    fn the_order_of_members_does_not_matter_and_all_else_does() {
        let values = [
            json!({"a": 1, "b": [1, {"c": null}], "d": {}}),
            json!({"b": [1, {"c": null}], "d": {}, "a": 1}),
            json!({"a": 1, "b": [{"c": null}, 1], "d": {}}),
            json!({"a": 1, "b": [1, {"c": null}], "e": {}}),
            json!({"a": 1, "b": [1, {"c": null}]}),
            json!({"a": 1, "b": [1, {}], "d": {}}),
            json!(null),
            json!(1),
        ];
        for left in &values {
            for right in &values {
                assert_eq!(equal(left, right), left == right, "{left} and {right}");
            }
        }
    }
}
