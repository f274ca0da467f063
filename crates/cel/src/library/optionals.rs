//! Functions of optional values.
//!
//! `or` and `orValue` are not here: the planner turns them into conditionals.

use super::no_overload_of;
use crate::values::{EvalError, Outcome, Value};

pub(super) fn find(name: &str) -> Option<super::Native> {
    Some(match name {
        "optional.of" => |args| match args {
            [value] => Ok(Value::some(value.clone())),
            _ => Err(no_overload_of("optional.of", args)),
        },
        "optional.ofNonZeroValue" => |args| match args {
            [value] if value.is_zero() => Ok(Value::Optional(None)),
            [value] => Ok(Value::some(value.clone())),
            _ => Err(no_overload_of("optional.ofNonZeroValue", args)),
        },
        "optional.none" => |_| Ok(Value::Optional(None)),
        "optional.unwrap" | "unwrapOpt" => unwrap,
        "hasValue" => |args| match args {
            [Value::Optional(value)] => Ok(Value::Bool(value.is_some())),
            _ => Err(EvalError::no_overload()),
        },
        "value" => |args| match args {
            [Value::Optional(Some(value))] => Ok((**value).clone()),
            [Value::Optional(None)] => Err(EvalError::new("optional.none() dereference")),
            _ => Err(EvalError::no_overload()),
        },
        "first" => |args| match args {
            [Value::List(list)] => Ok(list.get(0).map_or(Value::Optional(None), Value::some)),
            _ => Err(no_overload_of("first", args)),
        },
        "last" => |args| match args {
            [Value::List(list)] => {
                let last = list.len().checked_sub(1).and_then(|last| list.get(last));
                Ok(last.map_or(Value::Optional(None), Value::some))
            }
            _ => Err(no_overload_of("last", args)),
        },
        _ => return None,
    })
}

fn unwrap<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::List(list)] = args else { return Err(no_overload_of("optional.unwrap", args)) };
    let mut out = Vec::new();
    for element in list.iter() {
        match element {
            Value::Optional(Some(value)) => out.push((*value).clone()),
            Value::Optional(None) => {}
            other => {
                return Err(EvalError::new(format!("value of type {} is not an optional", other.type_name())));
            }
        }
    }
    Ok(Value::list(out))
}
