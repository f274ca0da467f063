//! Checks scalars against their types, rewrites them in canonical form, and supplies zero values.
//!
//! The canonical form is the one that Go writes, so that equal objects have equal bytes. The walker handles objects and
//! lists.

use keelson_meta::json::{Map, Number, Value};
use keelson_meta::quantity;

use super::times::{Canonical, Precision};
use super::{base64, times};
use crate::layout::Type;
use crate::schemas::SchemaRef;

/// The reason why a value does not fit its type.
pub(super) enum Fault {
    /// The value is of another JSON type, or is a number out of range.
    Type,
    /// The value is of the wrong type for a Go type with its own decoder.
    TypeOf(&'static str),
    /// The value has the right type but cannot be parsed, for this reason.
    Text(String),
    /// A parse error of a type with its own decoder.
    Fatal(String),
}

/// Checks a scalar that is not null. With `rewrite`, also rewrites it in canonical form.
pub(super) fn check(of: Type, value: &mut Value, rewrite: bool) -> Result<(), Fault> {
    match (of, &*value) {
        (Type::String, Value::String(_)) | (Type::Boolean, Value::Bool(_)) | (Type::Number, Value::Number(_)) => Ok(()),
        (Type::Int32, Value::Number(number)) => check_int32(number).ok_or(Fault::Type),
        (Type::Int64, Value::Number(number)) => number.as_i64().map(|_| ()).ok_or(Fault::Type),
        (Type::IntOrString, Value::String(_)) => Ok(()),
        (Type::IntOrString, Value::Number(number)) => check_int32(number).ok_or(Fault::TypeOf("int32")),
        (Type::IntOrString, _) => Err(Fault::TypeOf("int32")),
        (Type::Quantity, _) => check_quantity(value, rewrite),
        (Type::Time, Value::String(text)) => {
            check_time(text, Precision::Seconds).map(|new| replace(value, new, rewrite))
        }
        (Type::MicroTime, Value::String(text)) => {
            check_time(text, Precision::Microseconds).map(|new| replace(value, new, rewrite))
        }
        (Type::Time | Type::MicroTime, _) => Err(Fault::TypeOf("string")),
        (Type::Bytes, Value::String(text)) => {
            let new = base64::canonical(text).map_err(Fault::Text)?;
            replace(value, new.map(Value::from), rewrite);
            Ok(())
        }
        // Go also accepts bytes as an array of small numbers, and writes them as a string.
        (Type::Bytes, Value::Array(numbers)) => {
            let bytes: Option<Vec<u8>> = numbers.iter().map(byte).collect();
            let text = base64::encoded(&bytes.ok_or(Fault::Type)?);
            replace(value, Some(Value::from(text)), rewrite);
            Ok(())
        }
        _ => Err(Fault::Type),
    }
}

/// Reads one number of such an array.
fn byte(number: &Value) -> Option<u8> {
    match number {
        Value::Null => Some(0),
        Value::Number(number) => number.as_u64().and_then(|number| u8::try_from(number).ok()),
        _ => None,
    }
}

fn replace(value: &mut Value, new: Option<Value>, rewrite: bool) {
    if rewrite && let Some(new) = new {
        *value = new;
    }
}

fn check_int32(number: &Number) -> Option<()> {
    number.as_i64().and_then(|n| i32::try_from(n).ok()).map(|_| ())
}

fn check_quantity(value: &mut Value, rewrite: bool) -> Result<(), Fault> {
    let written = match &*value {
        Value::String(text) => {
            let trimmed = text.trim();
            let spaced = || (trimmed.len() < text.len()).then(|| trimmed.to_owned());
            quantity::canonical(trimmed).map_err(Fault::Fatal)?.or_else(spaced)
        }
        // The decoder of quantities parses the text of any JSON value, so numbers are accepted.
        other => {
            let text = other.to_string();
            Some(quantity::canonical(&text).map_err(Fault::Fatal)?.unwrap_or(text))
        }
    };
    replace(value, written.map(Value::from), rewrite);
    Ok(())
}

fn check_time(text: &str, precision: Precision) -> Result<Option<Value>, Fault> {
    match times::canonical(text, precision).map_err(Fault::Fatal)? {
        Canonical::Unchanged => Ok(None),
        Canonical::Text(text) => Ok(Some(Value::from(text))),
        Canonical::Null => Ok(Some(Value::Null)),
    }
}

/// The zero value that is written for an absent field.
pub(super) fn zero(schema: SchemaRef<'_>) -> Value {
    if schema.pointer() {
        return Value::Null;
    }
    match schema.value_type() {
        Type::Any | Type::Map | Type::Array | Type::Time | Type::MicroTime | Type::Either | Type::Bytes => Value::Null,
        Type::Object => Value::Object(Map::new()),
        Type::String => Value::from(""),
        Type::Int32 | Type::Int64 | Type::Number | Type::IntOrString => Value::from(0),
        Type::Boolean => Value::Bool(false),
        Type::Quantity => Value::from("0"),
    }
}

/// Sets an empty list, map or byte string to null. Storage does not distinguish it from an absent one.
pub(super) fn clear_empty(field: SchemaRef<'_>, value: &mut Value) {
    let empty = match (field.value_type(), &*value) {
        (Type::Array, Value::Array(items)) => items.is_empty(),
        (Type::Map, Value::Object(map)) => map.is_empty(),
        (Type::Bytes, Value::String(text)) => text.is_empty(),
        _ => false,
    };
    if empty && !field.pointer() {
        *value = Value::Null;
    }
}

/// Returns true if a field with this value is omitted.
pub(super) fn is_left_out(field: SchemaRef<'_>, value: &Value) -> bool {
    if !field.omitted_when_zero() {
        return false;
    }
    match value {
        Value::Null => true,
        _ if field.pointer() => false,
        Value::Bool(on) => !on,
        Value::String(text) => text.is_empty() && field.value_type() != Type::IntOrString,
        Value::Number(number) => number.as_f64() == Some(0.0) && field.value_type() != Type::IntOrString,
        Value::Array(_) | Value::Object(_) => false,
    }
}
