//! The type of a JSON value, for messages about values of a wrong type.
//!
//! The type keeps the digits of a number, which some messages repeat, but no other content.

use super::Value;
use crate::go_format;

/// The type of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// Null.
    Null,
    /// True or false.
    Boolean,
    /// An integer in its notation.
    Integer(String),
    /// Another number in its notation.
    Number(String),
    /// A text.
    String,
    /// A list.
    Array,
    /// An object.
    Object,
}

impl ValueKind {
    /// The type of this value.
    pub fn from_value(value: &Value) -> Self {
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

    /// The type's name in JSON schema.
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
