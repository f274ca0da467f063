//! Operators: arithmetic, order, membership, access to elements, sizes.
//!
//! Overflow is an error.

use super::times;
use crate::values::{EvalError, Map, Outcome, Value, compare, equals, joined};
use std::cmp::Ordering;

pub(super) fn find(name: &str) -> Option<super::Native> {
    Some(match name {
        "_==_" => |args| match args {
            [a, b] => Ok(Value::Bool(equals(a, b))),
            _ => Err(EvalError::no_overload()),
        },
        "_!=_" => |args| match args {
            [a, b] => Ok(Value::Bool(!equals(a, b))),
            _ => Err(EvalError::no_overload()),
        },
        "_<_" => |args| ordered(args, Ordering::is_lt),
        "_<=_" => |args| ordered(args, Ordering::is_le),
        "_>_" => |args| ordered(args, Ordering::is_gt),
        "_>=_" => |args| ordered(args, Ordering::is_ge),
        "_+_" => add,
        "_-_" => subtract,
        "_*_" => multiply,
        "_/_" => divide,
        "_%_" => remainder,
        "-_" => |args| match args {
            [Value::Int(a)] => a.checked_neg().map(Value::Int).ok_or_else(overflow),
            [Value::Double(a)] => Ok(Value::Double(-a)),
            _ => Err(EvalError::no_overload()),
        },
        "!_" => |args| match args {
            [Value::Bool(a)] => Ok(Value::Bool(!a)),
            _ => Err(EvalError::no_overload()),
        },
        "@in" => contains,
        "_[_]" => index,
        "_[?_]" => optional_index,
        "size" => |args| match args {
            [value @ (Value::String(_) | Value::Bytes(_) | Value::List(_) | Value::Map(_))] => {
                Ok(Value::Int(i64::try_from(value.size()).unwrap_or(i64::MAX)))
            }
            _ => Err(EvalError::no_overload()),
        },
        _ => return None,
    })
}

fn overflow() -> EvalError {
    EvalError::new("integer overflow")
}

fn unsigned_overflow() -> EvalError {
    EvalError::new("unsigned integer overflow")
}

fn ordered<'a>(args: &[Value<'a>], holds: fn(Ordering) -> bool) -> Outcome<'a> {
    let [a, b] = args else { return Err(EvalError::no_overload()) };
    match compare(a, b) {
        // A comparison with NaN is false.
        Some(order) => Ok(Value::Bool(order.is_some_and(holds))),
        None => Err(EvalError::no_overload()),
    }
}

fn add<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    Ok(match args {
        [Value::Int(a), Value::Int(b)] => Value::Int(a.checked_add(*b).ok_or_else(overflow)?),
        [Value::Uint(a), Value::Uint(b)] => Value::Uint(a.checked_add(*b).ok_or_else(unsigned_overflow)?),
        [Value::Double(a), Value::Double(b)] => Value::Double(a + b),
        [Value::Duration(a), Value::Duration(b)] => Value::Duration(a.checked_add(*b).ok_or_else(overflow)?),
        [Value::Timestamp(a), Value::Duration(b)] | [Value::Duration(b), Value::Timestamp(a)] => {
            return times::add(*a, *b);
        }
        [Value::String(a), Value::String(b)] => super::bounded(format!("{}{}", &**a, &**b))?.into(),
        [Value::Bytes(a), Value::Bytes(b)] => {
            if a.len() + b.len() > super::MAX_TEXT {
                return Err(EvalError::TooCostly);
            }
            Value::Bytes([&**a, &**b].concat().into())
        }
        [Value::List(a), Value::List(b)] => Value::List(joined(a, b)),
        _ => return Err(EvalError::no_overload()),
    })
}

fn subtract<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    Ok(match args {
        [Value::Int(a), Value::Int(b)] => Value::Int(a.checked_sub(*b).ok_or_else(overflow)?),
        [Value::Uint(a), Value::Uint(b)] => Value::Uint(a.checked_sub(*b).ok_or_else(unsigned_overflow)?),
        [Value::Double(a), Value::Double(b)] => Value::Double(a - b),
        [Value::Duration(a), Value::Duration(b)] => Value::Duration(a.checked_sub(*b).ok_or_else(overflow)?),
        [Value::Timestamp(a), Value::Duration(b)] => return times::subtract(*a, *b),
        [Value::Timestamp(a), Value::Timestamp(b)] => return times::between(*a, *b),
        _ => return Err(EvalError::no_overload()),
    })
}

fn multiply<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    Ok(match args {
        [Value::Int(a), Value::Int(b)] => Value::Int(a.checked_mul(*b).ok_or_else(overflow)?),
        [Value::Uint(a), Value::Uint(b)] => Value::Uint(a.checked_mul(*b).ok_or_else(unsigned_overflow)?),
        [Value::Double(a), Value::Double(b)] => Value::Double(a * b),
        _ => return Err(EvalError::no_overload()),
    })
}

fn divide<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    Ok(match args {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => {
            return Err(EvalError::new("division by zero"));
        }
        [Value::Int(a), Value::Int(b)] => Value::Int(a.checked_div(*b).ok_or_else(overflow)?),
        [Value::Uint(a), Value::Uint(b)] => Value::Uint(a / b),
        [Value::Double(a), Value::Double(b)] => Value::Double(a / b),
        _ => return Err(EvalError::no_overload()),
    })
}

fn remainder<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    Ok(match args {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => {
            return Err(EvalError::new("modulus by zero"));
        }
        [Value::Int(a), Value::Int(b)] => Value::Int(a.checked_rem(*b).ok_or_else(overflow)?),
        [Value::Uint(a), Value::Uint(b)] => Value::Uint(a % b),
        _ => return Err(EvalError::no_overload()),
    })
}

fn contains<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    match args {
        [value, Value::List(list)] => Ok(Value::Bool(list.iter().any(|element| equals(&element, value)))),
        [key, Value::Map(map)] => Ok(Value::Bool(map.get(key).is_some())),
        _ => Err(EvalError::no_overload()),
    }
}

/// Converts a number to an index.
fn place(index: &Value<'_>) -> Result<i64, EvalError> {
    match index {
        Value::Int(index) => Ok(*index),
        Value::Uint(index) => i64::try_from(*index).map_err(|_| overflow()),
        Value::Double(index) if index.fract() == 0.0 => Ok(*index as i64),
        other => Err(EvalError::new(format!("unsupported index type '{}' in list", other.type_name()))),
    }
}

/// A key as messages print it.
pub fn key_text(key: &Value<'_>) -> String {
    match key {
        Value::String(text) => text.to_string(),
        Value::Int(key) => key.to_string(),
        Value::Uint(key) => key.to_string(),
        Value::Bool(key) => key.to_string(),
        Value::Double(key) => super::numbers::double_text(*key),
        other => other.type_name().to_owned(),
    }
}

/// Returns the element at an index or the value of a key. Fails if it is absent.
fn index<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let [target, key] = args else { return Err(EvalError::no_overload()) };
    if let Value::Optional(target) = target {
        return match target {
            Some(target) => lookup(target, key).map(|found| found.map_or(Value::Optional(None), Value::some)),
            None => Ok(Value::Optional(None)),
        };
    }
    lookup(target, key)?.ok_or_else(|| match target {
        Value::List(_) => EvalError::new(format!("index out of bounds: {}", key_text(key))),
        _ => EvalError::no_key(&key_text(key)),
    })
}

fn optional_index<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let [target, key] = args else { return Err(EvalError::no_overload()) };
    let target = match target {
        Value::Optional(Some(target)) => target,
        Value::Optional(None) => return Ok(Value::Optional(None)),
        target => target,
    };
    lookup(target, key).map(|found| found.map_or(Value::Optional(None), Value::some))
}

fn lookup<'a>(target: &Value<'a>, key: &Value<'a>) -> Result<Option<Value<'a>>, EvalError> {
    match (target, key) {
        (Value::List(list), key) => Ok(usize::try_from(place(key)?).ok().and_then(|at| list.get(at))),
        (Value::Map(map @ Map::Tree(_)), key @ Value::String(_)) => Ok(map.get(key)),
        (Value::Map(Map::Tree(_)), _) => Ok(None),
        (Value::Map(map), key) => Ok(map.get(key)),
        (Value::Fields(fields), Value::String(name)) => fields.field(name).transpose(),
        _ => Err(EvalError::no_overload()),
    }
}
