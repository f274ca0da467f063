//! Parsing and arithmetic of resource quantities.
//!
//! Functions that compare quantities are in `semver`, which has functions with the same names.

use super::no_overload_of;
use crate::values::{EvalError, Outcome, Value};
use keelson_meta::Quantity;
use keelson_meta::quantity::canonical;

pub(super) fn find(name: &str) -> Option<super::Native> {
    Some(match name {
        "quantity" => |args| match args {
            [Value::String(text)] => {
                Quantity::parse(text).map(Value::Quantity).ok_or_else(|| EvalError::new(fault(text)))
            }
            _ => Err(no_overload_of("quantity", args)),
        },
        "isQuantity" => |args| match args {
            [Value::String(text)] => Ok(Value::Bool(Quantity::parse(text).is_some())),
            _ => Err(no_overload_of("isQuantity", args)),
        },
        "sign" => |args| match args {
            [Value::Quantity(amount)] => Ok(Value::Int(amount.cmp(&Quantity::ZERO) as i64)),
            _ => Err(no_overload_of("sign", args)),
        },
        "isInteger" => |args| match args {
            [Value::Quantity(amount)] => Ok(Value::Bool(whole(*amount).is_some())),
            _ => Err(no_overload_of("isInteger", args)),
        },
        "asInteger" => |args| match args {
            [Value::Quantity(amount)] => {
                whole(*amount).map(Value::Int).ok_or_else(|| EvalError::new("cannot convert value to integer"))
            }
            _ => Err(no_overload_of("asInteger", args)),
        },
        "asApproximateFloat" => |args| match args {
            [Value::Quantity(amount)] => Ok(Value::Double(amount.over(Quantity::units(1)))),
            _ => Err(no_overload_of("asApproximateFloat", args)),
        },
        "add" => |args| changed(args, "add", Quantity::plus),
        "sub" => |args| changed(args, "sub", Quantity::minus),
        _ => return None,
    })
}

/// The fault of a text that is not a quantity.
fn fault(text: &str) -> String {
    const FORM: &str = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
    canonical(text).err().unwrap_or_else(|| FORM.to_owned())
}

fn whole(amount: Quantity) -> Option<i64> {
    if amount.is_whole() { i64::try_from(amount.rounded_up()).ok() } else { None }
}

fn changed<'a>(args: &[Value<'a>], name: &str, by: fn(Quantity, Quantity) -> Quantity) -> Outcome<'a> {
    match args {
        [Value::Quantity(amount), Value::Quantity(other)] => Ok(Value::Quantity(by(*amount, *other))),
        [Value::Quantity(amount), Value::Int(other)] => Ok(Value::Quantity(by(*amount, Quantity::units(*other)))),
        _ => Err(no_overload_of(name, args)),
    }
}
