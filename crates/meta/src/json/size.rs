//! Approximate sizes of values, for limits.
//!
//! A size is that of the JSON text without its escapes. Parsing has limited the depth of the text, so recursion is
//! safe.

use super::{Map, Value};

/// The approximate size of a value in JSON, in bytes.
///
/// Cost: one visit of each value in the tree.
pub fn about_bytes(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) => 5,
        Value::Number(_) => 8,
        Value::String(text) => text.len() + 2,
        Value::Array(items) => 2 + items.iter().map(|item| 1 + about_bytes(item)).sum::<usize>(),
        Value::Object(map) => about_bytes_of_members(map),
    }
}

/// The approximate size of an object with these members.
pub fn about_bytes_of_members(map: &Map) -> usize {
    2 + map.iter().map(|(name, value)| name.len() + 4 + about_bytes(value)).sum::<usize>()
}
