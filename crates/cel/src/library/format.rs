//! The function `format`, which inserts values into a string.
//!
//! Both the check of literals, which knows types, and the call, which knows values, use the pieces of the format.

use super::convert::text_of;
use super::numbers::{double_text, grouped, hex, scientific};
use super::{MAX_TEXT, times};
use crate::types::Type;
use crate::values::{EvalError, List, Value};
use keelson_meta::go_format::quote;
use std::iter::Peekable;
use std::str::Chars;

/// The maximum precision.
const MAX_PRECISION: usize = 1000;
/// The default precision.
const PRECISION: usize = 6;

/// A piece of a format.
#[derive(Debug, PartialEq)]
pub enum FormatPart {
    /// Literal text.
    Text(String),
    /// A place for a value.
    Value(Clause),
}

/// The form in which a value is inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clause {
    verb: char,
    precision: usize,
}

/// Splits a format for this number of values into pieces, up to the first fault.
pub fn pieces(format: &str, values: usize) -> impl Iterator<Item = Result<FormatPart, String>> {
    let mut rest = format.chars().peekable();
    let (mut used, mut is_over) = (0, false);
    std::iter::from_fn(move || {
        if is_over {
            return None;
        }
        let mut text = String::new();
        while let Some(c) = rest.next_if(|c| *c != '%') {
            text.push(c);
        }
        if !text.is_empty() {
            return Some(Ok(FormatPart::Text(text)));
        }
        rest.next()?;
        if rest.next_if_eq(&'%').is_some() {
            return Some(Ok(FormatPart::Text("%".to_owned())));
        }
        let piece = if rest.peek().is_none() {
            Err("unexpected end of string".to_owned())
        } else if used >= values {
            Err(format!("index {used} out of range"))
        } else {
            used += 1;
            clause(&mut rest)
                .map(FormatPart::Value)
                .map_err(|fault| format!("could not parse formatting clause: {fault}"))
        };
        is_over = piece.is_err();
        Some(piece)
    })
}

fn clause(rest: &mut Peekable<Chars<'_>>) -> Result<Clause, String> {
    let mut precision = PRECISION;
    if rest.next_if_eq(&'.').is_some() {
        let mut digits = String::new();
        while let Some(digit) = rest.next_if(char::is_ascii_digit) {
            digits.push(digit);
        }
        if rest.peek().is_none() {
            return Err("error while parsing precision: could not find end of precision specifier".to_owned());
        }
        precision = digits.parse().map_err(|_| {
            format!(
                "error while parsing precision: error while converting precision to integer: strconv.Atoi: parsing {}: {}",
                quote(&digits),
                if digits.is_empty() { "invalid syntax" } else { "value out of range" }
            )
        })?;
        if precision > MAX_PRECISION {
            return Err(format!("error while parsing precision: precision {precision} exceeds limit: {MAX_PRECISION}"));
        }
    }
    let verb = rest.next().unwrap_or_default();
    if "sdfebxXo".contains(verb) {
        Ok(Clause { verb, precision })
    } else {
        Err(format!("unrecognized formatting clause \"{verb}\""))
    }
}

impl Clause {
    /// The fault if a value has this other type.
    fn fault(self, found: &str) -> String {
        let only = match self.verb {
            's' => {
                "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps"
            }
            'd' => "decimal clause can only be used on integers",
            'f' => "fixed-point clause can only be used on doubles",
            'e' => "scientific clause can only be used on doubles",
            'b' => "only integers and bools can be formatted as binary",
            'o' => "octal clause can only be used on integers",
            _ => "only integers, byte buffers, and strings can be formatted as hex",
        };
        format!("{only}, was given {found}")
    }

    /// The fault if a value has this type. `None` if the type is allowed.
    pub fn type_fault(self, of: &Type) -> Option<String> {
        let fits = match (self.verb, of) {
            (_, Type::Dyn | Type::Error) => true,
            ('s', of) => !matches!(of, Type::Opaque(..) | Type::Object(_) | Type::Wrapper(_)),
            ('d' | 'o', of) => matches!(of, Type::Int | Type::Uint),
            ('f' | 'e', of) => matches!(of, Type::Double | Type::String),
            ('b', of) => matches!(of, Type::Int | Type::Uint | Type::Bool),
            (_, of) => matches!(of, Type::Int | Type::Uint | Type::String | Type::Bytes),
        };
        (!fits).then(|| self.fault(&of.runtime_name()))
    }

    fn write(self, value: &Value<'_>) -> Result<String, String> {
        let is_upper = self.verb == 'X';
        Ok(match (self.verb, value) {
            ('s', value) => return plain(value),
            ('d', Value::Int(value)) => value.to_string(),
            ('d', Value::Uint(value)) => value.to_string(),
            ('f', Value::Double(value)) => grouped(*value, self.precision),
            ('e', Value::Double(value)) => scientific(*value),
            ('f' | 'e', Value::String(text)) if matches!(&**text, "NaN" | "Infinity" | "-Infinity") => {
                let number = match &**text {
                    "NaN" => f64::NAN,
                    "Infinity" => f64::INFINITY,
                    _ => f64::NEG_INFINITY,
                };
                grouped(number, 0)
            }
            ('b', Value::Bool(value)) => u8::from(*value).to_string(),
            ('b', Value::Uint(value)) => format!("{value:b}"),
            ('b', Value::Int(value)) => signed(*value, format!("{:b}", value.unsigned_abs())),
            ('o', Value::Uint(value)) => format!("{value:o}"),
            ('o', Value::Int(value)) => signed(*value, format!("{:o}", value.unsigned_abs())),
            ('x' | 'X', Value::String(text)) => hex(text.as_bytes(), is_upper),
            ('x' | 'X', Value::Bytes(bytes)) => hex(bytes, is_upper),
            ('x' | 'X', Value::Uint(value)) => hex_number(*value, is_upper),
            ('x' | 'X', Value::Int(value)) => signed(*value, hex_number(value.unsigned_abs(), is_upper)),
            (_, value) => return Err(self.fault(value.type_name())),
        })
    }
}

fn signed(value: i64, digits: String) -> String {
    if value < 0 { format!("-{digits}") } else { digits }
}

fn hex_number(value: u64, upper: bool) -> String {
    if upper { format!("{value:X}") } else { format!("{value:x}") }
}

/// Formats values.
///
/// # Errors
/// The format is invalid, or the values do not fit it.
pub fn write(format: &str, values: &List<'_>) -> Result<String, EvalError> {
    let mut out = String::new();
    let mut used = 0;
    for piece in pieces(format, values.len()) {
        match piece.map_err(EvalError::new)? {
            FormatPart::Text(text) => out.push_str(&text),
            FormatPart::Value(clause) => {
                let value = values.get(used).unwrap_or(Value::Null);
                used += 1;
                let text = clause.write(&value);
                out.push_str(&text.map_err(|fault| EvalError::new(format!("error during formatting: {fault}")))?);
            }
        }
        if out.len() > MAX_TEXT {
            return Err(EvalError::TooCostly);
        }
    }
    Ok(out)
}

const STRING: Clause = Clause { verb: 's', precision: PRECISION };

/// A value as text.
fn plain(value: &Value<'_>) -> Result<String, String> {
    match value {
        Value::Null => Ok("null".to_owned()),
        Value::List(_) | Value::Map(_) => {
            let mut out = String::new();
            nested(value, &mut out)?;
            Ok(out)
        }
        Value::Bool(_)
        | Value::Int(_)
        | Value::Uint(_)
        | Value::Double(_)
        | Value::String(_)
        | Value::Bytes(_)
        | Value::Duration(_)
        | Value::Timestamp(_)
        | Value::Type(_) => match text_of(value) {
            Ok(Value::String(text)) => Ok(text.to_string()),
            Ok(_) => Ok(String::new()),
            Err(fault) => Err(fault.to_string()),
        },
        other => Err(STRING.fault(other.type_name())),
    }
}

/// Formats a value inside a list or a map, as it would be written in an expression.
fn nested(value: &Value<'_>, out: &mut String) -> Result<(), String> {
    if out.len() > MAX_TEXT {
        return Err("text is too long".to_owned());
    }
    match value {
        Value::List(list) => {
            out.push('[');
            for (at, element) in list.iter().enumerate() {
                if at > 0 {
                    out.push_str(", ");
                }
                nested(&element, out)?;
            }
            out.push(']');
        }
        Value::Map(map) => {
            let mut entries = Vec::new();
            for (key, value) in map.entries() {
                let key = match &key {
                    Value::String(text) => quote(text),
                    Value::Bool(_) | Value::Int(_) | Value::Uint(_) => plain(&key)?,
                    other => return Err(format!("no formatting function for map key of type {}", other.type_name())),
                };
                let mut written = String::new();
                nested(&value, &mut written)?;
                entries.push((key, written));
            }
            entries.sort_by(|(a, _), (b, _)| a.cmp(b));
            out.push('{');
            for (at, (key, value)) in entries.iter().enumerate() {
                out.push_str(if at > 0 { ", " } else { "" });
                out.push_str(key);
                out.push(':');
                out.push_str(value);
            }
            out.push('}');
        }
        Value::String(text) => out.push_str(&quote(text)),
        Value::Bytes(_) => out.push_str(&format!("b{}", quote(&plain(value)?))),
        Value::Double(number) if number.is_finite() => out.push_str(&format!("{number:.PRECISION$}")),
        Value::Double(number) => out.push_str(&quote(&double_text(*number))),
        Value::Duration(nanos) => out.push_str(&format!("duration({})", quote(&times::duration_text(*nanos)))),
        Value::Timestamp(time) => out.push_str(&format!("timestamp({})", quote(&time.to_string()))),
        Value::Null | Value::Bool(_) | Value::Int(_) | Value::Uint(_) | Value::Type(_) => out.push_str(&plain(value)?),
        other => return Err(format!("no formatting function for {}", other.type_name())),
    }
    Ok(())
}
