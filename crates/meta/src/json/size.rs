//! The sizes of values, as far as a bound needs to know them.
//!
//! They are those of the text in JSON without its escapes. What nests deeply was refused when it was read.

use super::{Map, Value};

/// About how many bytes a value has in JSON.
///
/// Cost: a look at each value in it.
pub fn about_bytes(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) => 5,
        Value::Number(_) => 8,
        Value::String(text) => text.len() + 2,
        Value::Array(items) => 2 + items.iter().map(|item| 1 + about_bytes(item)).sum::<usize>(),
        Value::Object(map) => about_bytes_of_members(map),
    }
}

/// The same of an object with these members.
pub fn about_bytes_of_members(map: &Map) -> usize {
    2 + map.iter().map(|(name, value)| name.len() + 4 + about_bytes(value)).sum::<usize>()
}
