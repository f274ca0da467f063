//! Validates numbers: their range by type and format, multiples, and bounds.
//!
//! As upstream, a bound outside of the range of the type is reported with each value.

use keelson_meta::field_error::FieldError;
use keelson_meta::go_format;
use keelson_meta::json::{Number, Value};

use super::at::{At, nowhere};
use super::fault_list::FaultList;
use super::rules::{Bound, Kind, Node};

/// Reports all faults of a number in upstream's order.
pub(super) fn check(node: &Node, value: &Value, at: &At<'_>, faults: &mut FaultList) {
    let Value::Number(exact) = value else { return };
    let Some(number) = value.as_f64() else { return };
    let beyond = |what: &str, whole: Option<i64>, number: f64, faults: &mut FaultList| {
        faults.extend(
            range_fault(node, whole, number)
                .map(|range| nowhere(format!("{what} value must be of type {range} in {at}"))),
        );
    };
    let fault = |what: String| FieldError::invalid(at.to_string(), value.clone(), what);
    beyond("Checked", exact.as_i64(), number, faults);
    if let Some(factor) = node.numbers.multiple_of {
        beyond("MultipleOf", None, factor, faults);
        if factor <= 0.0 {
            let detail = format!("factor MultipleOf declared for {at} must be positive: {}", go_format::float(factor));
            faults.push(FieldError::invalid(at.to_string(), go_number(factor), detail));
        } else if !is_multiple(number, factor) {
            faults.push(fault(format!("{at} in body should be a multiple of {}", go_format::float(factor))));
        }
    }
    if let Some(Bound { value: least, exclusive }) = node.numbers.minimum {
        beyond("Minimum boundary", None, least, faults);
        if number < least || exclusive && number <= least {
            let than = if exclusive { "greater than" } else { "greater than or equal to" };
            faults.push(fault(format!("{at} in body should be {than} {}", go_format::float(least))));
        }
    }
    if let Some(Bound { value: most, exclusive }) = node.numbers.maximum {
        beyond("Maximum boundary", None, most, faults);
        if number > most || exclusive && number >= most {
            let than = if exclusive { "less than" } else { "less than or equal to" };
            faults.push(fault(format!("{at} in body should be {than} {}", go_format::float(most))));
        }
    }
}

/// The range of the schema's type and format, if the number is outside of it. A schema that also allows strings has no
/// range.
fn range_fault(node: &Node, whole: Option<i64>, number: f64) -> Option<String> {
    /// The first float above all 64-bit integers.
    const ABOVE_INT64: f64 = 9_223_372_036_854_775_808.0;
    let of = node.of.filter(|_| !node.int_or_string)?;
    let fits = match of {
        Kind::Integer => {
            let is_whole = whole.is_some() || number.fract() == 0.0 && (-ABOVE_INT64..ABOVE_INT64).contains(&number);
            is_whole && node.format.as_ref().is_none_or(|format| format.has_room(number))
        }
        Kind::Number => node.format.as_ref().is_none_or(|format| format.has_room(number)),
        _ => true,
    };
    let format =
        node.format.as_ref().map_or("(default format)".to_owned(), |format| format!("with format {}", format.name()));
    (!fits).then(|| format!("{} {format}", of.name()))
}

/// Returns true for an integer of 64 bits or a float with an exact integer value.
pub(super) fn is_whole(value: &Value) -> bool {
    const EXACT: f64 = 9_007_199_254_740_991.0;
    let Value::Number(number) = value else { return false };
    number.as_i64().is_some() || number.as_f64().is_some_and(|float| float.fract() == 0.0 && float.abs() <= EXACT)
}

fn go_number(number: f64) -> Value {
    Number::from_f64(number).map_or(Value::Null, |found| match go_format::float(number).parse::<i64>() {
        Ok(whole) => Value::from(whole),
        Err(_) => Value::Number(found),
    })
}

/// Returns true for a multiple of a factor, within the precision of their digits: 0.3 is a multiple of 0.1.
fn is_multiple(number: f64, factor: f64) -> bool {
    let quotient = if factor < 1.0 { 1.0 / factor * number } else { number / factor };
    quotient.fract() == 0.0 || (quotient - quotient.round()).abs() < f64::EPSILON * quotient.abs()
}
