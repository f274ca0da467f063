//! The kind of a JSON value, for messages about one that should be of another kind.
//!
//! Keeps a number's digits, which some messages repeat, and of no other value anything.

use super::Value;
use crate::go_format;

/// What stands where something else may be expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// Null.
    Null,
    /// True or false.
    Boolean,
    /// A whole number, as it is written.
    Integer(String),
    /// Another number, as it is written.
    Number(String),
    /// A text.
    String,
    /// A list.
    Array,
    /// An object.
    Object,
}

impl ValueKind {
    /// What a value is.
    pub fn of(value: &Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(_) => Self::Boolean,
            Value::Number(number) if number.as_i64().is_some() || number.as_u64().is_some() => {
                Self::Integer(number.to_string())
            }
            Value::Number(number) => Self::Number(number.as_f64().map_or_else(|| number.to_string(), go_format::float)),
            Value::String(_) => Self::String,
            Value::Array(_) => Self::Array,
            Value::Object(_) => Self::Object,
        }
    }

    /// The name that JSON schemas have for it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Boolean => "boolean",
            Self::Integer(_) => "integer",
            Self::Number(_) => "number",
            Self::String => "string",
            Self::Array => "array",
            Self::Object => "object",
        }
    }
}
