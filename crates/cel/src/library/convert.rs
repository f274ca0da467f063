//! Conversions between types.
//!
//! Strings are accepted in the forms that Go's parsers accept.

use super::numbers::{double_text, parse_double};
use super::times;
use crate::values::{EvalError, Outcome, Text, Value};

pub(super) fn find(name: &str) -> Option<super::Native> {
    Some(match name {
        "dyn" => |args| args.first().cloned().ok_or_else(EvalError::no_overload),
        "type" => |args| match args {
            [Value::Type(_)] => Ok(Value::Type(Text::Borrowed("type"))),
            [value] => Ok(Value::Type(Text::Borrowed(value.type_name()))),
            _ => Err(EvalError::no_overload()),
        },
        "bool" => |args| match args {
            [value @ Value::Bool(_)] => Ok(value.clone()),
            [Value::String(text)] => match &**text {
                "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Value::Bool(true)),
                "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Value::Bool(false)),
                _ => Err(failed(&args[0], "bool")),
            },
            _ => Err(EvalError::no_overload()),
        },
        "bytes" => |args| match args {
            [value @ Value::Bytes(_)] => Ok(value.clone()),
            [Value::String(text)] => Ok(Value::Bytes(text.as_bytes().into())),
            _ => Err(EvalError::no_overload()),
        },
        "int" => int,
        "uint" => uint,
        "double" => |args| match args {
            [value @ Value::Double(_)] => Ok(value.clone()),
            [Value::Int(value)] => Ok(Value::Double(*value as f64)),
            [Value::Uint(value)] => Ok(Value::Double(*value as f64)),
            [Value::String(text)] => parse_double(text).map(Value::Double).ok_or_else(|| failed(&args[0], "double")),
            _ => Err(EvalError::no_overload()),
        },
        "string" => string,
        "duration" => |args| match args {
            [value @ Value::Duration(_)] => Ok(value.clone()),
            [Value::Int(nanos)] => Ok(Value::Duration(*nanos)),
            [Value::String(text)] => times::parse_duration(text)
                .map(Value::Duration)
                .ok_or_else(|| failed(&args[0], "google.protobuf.Duration")),
            _ => Err(EvalError::no_overload()),
        },
        "timestamp" => |args| match args {
            [value @ Value::Timestamp(_)] => Ok(value.clone()),
            [Value::Int(seconds)] => {
                times::from_seconds(*seconds).map(Value::Timestamp).ok_or_else(|| EvalError::new("timestamp overflow"))
            }
            [Value::String(text)] => times::parse_timestamp(text)
                .map(Value::Timestamp)
                .ok_or_else(|| failed(&args[0], "google.protobuf.Timestamp")),
            _ => Err(EvalError::no_overload()),
        },
        _ => return None,
    })
}

/// Returns true if the function is a conversion. Upstream applies conversions to literals at compile time.
pub fn is_conversion(name: &str) -> bool {
    matches!(name, "bool" | "bytes" | "double" | "duration" | "dyn" | "int" | "string" | "timestamp" | "uint")
}

fn failed(value: &Value<'_>, to: &str) -> EvalError {
    EvalError::new(format!("type conversion error from '{}' to '{to}'", value.type_name()))
}

fn int<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let overflow = || EvalError::new("integer overflow");
    match args {
        [value @ Value::Int(_)] => Ok(value.clone()),
        [Value::Uint(value)] => i64::try_from(*value).map(Value::Int).map_err(|_| overflow()),
        [Value::Double(value)] => {
            let fits = *value > i64::MIN as f64 && *value < i64::MAX as f64;
            if fits { Ok(Value::Int(*value as i64)) } else { Err(overflow()) }
        }
        [Value::Duration(nanos)] => Ok(Value::Int(*nanos)),
        [Value::Timestamp(time)] => Ok(Value::Int(time.seconds)),
        [Value::String(text)] => text.parse().map(Value::Int).map_err(|_| failed(&args[0], "int")),
        _ => Err(EvalError::no_overload()),
    }
}

fn uint<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let overflow = || EvalError::new("unsigned integer overflow");
    match args {
        [value @ Value::Uint(_)] => Ok(value.clone()),
        [Value::Int(value)] => u64::try_from(*value).map(Value::Uint).map_err(|_| overflow()),
        [Value::Double(value)] => {
            let fits = *value >= 0.0 && *value < u64::MAX as f64;
            if fits { Ok(Value::Uint(*value as u64)) } else { Err(overflow()) }
        }
        [Value::String(text)] => {
            let digits = text.bytes().all(|byte| byte.is_ascii_digit());
            let parsed = if digits { text.parse().ok() } else { None };
            parsed.map(Value::Uint).ok_or_else(|| failed(&args[0], "uint"))
        }
        _ => Err(EvalError::no_overload()),
    }
}

fn string<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let [value] = args else { return Err(EvalError::no_overload()) };
    text_of(value)
}

/// A value as a text.
pub(super) fn text_of<'a>(value: &Value<'a>) -> Outcome<'a> {
    Ok(match value {
        Value::String(_) => value.clone(),
        Value::Bool(true) => Value::text("true"),
        Value::Bool(false) => Value::text("false"),
        Value::Int(value) => value.to_string().into(),
        Value::Uint(value) => value.to_string().into(),
        Value::Double(value) => double_text(*value).into(),
        Value::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => text.to_owned().into(),
            Err(_) => return Err(EvalError::new("invalid UTF-8 in bytes, cannot convert to string")),
        },
        Value::Duration(nanos) => times::duration_text(*nanos).into(),
        Value::Timestamp(time) => time.to_string().into(),
        Value::Type(name) => Value::String(name.clone()),
        Value::Ip(address) => address.to_string().into(),
        Value::Cidr(address, bits) => format!("{address}/{bits}").into(),
        _ => return Err(EvalError::no_overload()),
    })
}
