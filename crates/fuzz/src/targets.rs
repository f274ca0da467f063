//! The parsers of client input, and the properties of each.
//!
//! A check panics if a property is violated. It returns a number for the kind of input: for a refused one from its
//! error without quoted parts, for an accepted one from the types of its values.

mod bytes;
mod expressions;
mod patches;
mod queries;
mod texts;

use std::hash::{DefaultHasher, Hash, Hasher};

use keelson_meta::json::Value;

/// One parser.
pub struct Target {
    /// The name on the command line, and of its corpus folder.
    pub name: &'static str,
    /// Initial inputs.
    pub(crate) seeds: &'static [&'static [u8]],
    /// The words of its language.
    pub(crate) words: &'static [&'static str],
    /// Checks an input and returns its kind.
    pub(crate) check: fn(&[u8]) -> u64,
}

/// All targets.
pub fn all() -> &'static [Target] {
    &[
        bytes::JSON,
        bytes::YAML,
        bytes::YAML_TEXT,
        bytes::PROTOBUF,
        bytes::STORED,
        bytes::SCHEMA,
        patches::JSON_PATCH,
        patches::MERGE_PATCH,
        patches::STRATEGIC_PATCH,
        patches::APPLY,
        patches::MANAGED_FIELDS,
        texts::LABEL_SELECTOR,
        texts::FIELD_SELECTOR,
        texts::CONTINUE_TOKEN,
        texts::QUANTITY,
        texts::QUERY,
        queries::QUERY_PARAMETERS,
        texts::PATH,
        expressions::CEL,
        expressions::REGULAR_EXPRESSION,
    ]
}

/// The kind of a refusal: its text without parts that vary by input.
fn refused(error: &impl ToString) -> u64 {
    let text = error.to_string();
    let plain = text.bytes().take(80).map(|byte| if byte.is_ascii_digit() { b'0' } else { byte });
    let mut hasher = DefaultHasher::new();
    let mut quoted = false;
    for byte in plain {
        match byte {
            b'"' | b'\'' | b'`' => quoted = !quoted,
            _ if quoted => {}
            _ => byte.hash(&mut hasher),
        }
    }
    hasher.finish()
}

/// The kind of a value: the types in it, down to a few levels.
fn form(value: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    hash_form(value, 4, &mut hasher);
    hasher.finish()
}

fn hash_form(value: &Value, levels: usize, hasher: &mut DefaultHasher) {
    std::mem::discriminant(value).hash(hasher);
    match value {
        Value::Array(items) if levels > 0 => {
            items.len().min(3).hash(hasher);
            items.iter().take(3).for_each(|item| hash_form(item, levels - 1, hasher));
        }
        Value::Object(map) if levels > 0 => {
            map.len().min(4).hash(hasher);
            map.values().take(4).for_each(|item| hash_form(item, levels - 1, hasher));
        }
        Value::Number(number) => number.is_f64().hash(hasher),
        Value::String(text) => (text.is_empty(), text.is_ascii()).hash(hasher),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => {}
    }
}
