//! The functions on strings: case, parts, replacements, joins.
//!
//! Indexes are in code points. The size of a result is checked before it is created.

use super::{MAX_TEXT, bounded, format, no_overload_of};
use crate::values::{EvalError, List, Outcome, Text, Value};
use keelson_meta::go_format::short_escape;

pub(super) fn find(name: &str) -> Option<super::Native> {
    Some(match name {
        "contains" => |args| pair(args, |a, b| a.contains(b)),
        "startsWith" => |args| pair(args, |a, b| a.starts_with(b)),
        "endsWith" => |args| pair(args, |a, b| a.ends_with(b)),
        "charAt" => char_at,
        "lowerAscii" => |args| one(args, "lowerAscii", str::to_ascii_lowercase),
        "upperAscii" => |args| one(args, "upperAscii", str::to_ascii_uppercase),
        "trim" => |args| one(args, "trim", |text| text.trim().to_owned()),
        "strings.quote" => |args| one(args, "strings.quote", quoted),
        "replace" => replace,
        "split" => split,
        "substring" => substring,
        "join" => join,
        "format" => |args| match args {
            [Value::String(text), Value::List(values)] => format::write(text, values).map(Value::from),
            _ => Err(no_overload_of("format", args)),
        },
        "jsonpatch.escapeKey" => {
            |args| one(args, "jsonpatch.escapeKey", |text| text.replace('~', "~0").replace('/', "~1"))
        }
        _ => return None,
    })
}

fn pair<'a>(args: &[Value<'a>], holds: fn(&str, &str) -> bool) -> Outcome<'a> {
    match args {
        [Value::String(a), Value::String(b)] => Ok(Value::Bool(holds(a, b))),
        _ => Err(EvalError::no_overload()),
    }
}

fn one<'a>(args: &[Value<'a>], name: &str, make: fn(&str) -> String) -> Outcome<'a> {
    match args {
        [Value::String(text)] => bounded(make(text)).map(Value::from),
        _ => Err(no_overload_of(name, args)),
    }
}

fn out_of_range(index: i64) -> EvalError {
    EvalError::new(format!("index out of range: {index}"))
}

/// The byte offset of a code point. The index after the last code point is valid too.
fn byte_at(text: &str, place: i64) -> Option<usize> {
    let place = usize::try_from(place).ok()?;
    text.char_indices().map(|(at, _)| at).chain([text.len()]).nth(place)
}

fn char_at<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::String(text), Value::Int(place)] = args else { return Err(no_overload_of("charAt", args)) };
    let at = byte_at(text, *place).ok_or_else(|| out_of_range(*place))?;
    Ok(text[at..].chars().next().map(String::from).unwrap_or_default().into())
}

fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match short_escape(c) {
            Some(escape) => out.push_str(escape),
            None => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Converts a limit for a number of parts. A negative number means no limit.
fn count(number: i64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn replace<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let (text, from, to, most) = match args {
        [Value::String(text), Value::String(from), Value::String(to)] => (text, from, to, usize::MAX),
        [Value::String(text), Value::String(from), Value::String(to), Value::Int(most)] => {
            (text, from, to, count(*most))
        }
        _ => return Err(no_overload_of("replace", args)),
    };
    // The empty text occurs before every character and at the end.
    let found = if from.is_empty() { text.chars().count() + 1 } else { text.matches(&**from).count() };
    let added = found.min(most).saturating_mul(to.len());
    if text.len().saturating_add(added) > MAX_TEXT {
        return Err(EvalError::TooCostly);
    }
    Ok(text.replacen(&**from, to, most).into())
}

fn split<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let (text, by, most) = match args {
        [Value::String(text), Value::String(by)] => (text, by, usize::MAX),
        [Value::String(text), Value::String(by), Value::Int(most)] => (text, by, count(*most)),
        _ => return Err(no_overload_of("split", args)),
    };
    if most == 0 {
        return Ok(Value::list(Vec::new()));
    }
    let parts: Vec<Value<'a>> = if by.is_empty() {
        let mut rest = &**text;
        let mut parts = Vec::new();
        while let Some(first) = rest.chars().next() {
            let end = if parts.len() + 1 == most { rest.len() } else { first.len_utf8() };
            parts.push(rest[..end].to_owned().into());
            rest = &rest[end..];
        }
        parts
    } else {
        text.splitn(most, &**by).map(|part| part.to_owned().into()).collect()
    };
    Ok(Value::list(parts))
}

fn substring<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let (text, start, end) = match args {
        [Value::String(text), Value::Int(start)] => (text, *start, None),
        [Value::String(text), Value::Int(start), Value::Int(end)] => (text, *start, Some(*end)),
        _ => return Err(no_overload_of("substring", args)),
    };
    if let Some(end) = end.filter(|end| start > *end) {
        return Err(EvalError::new(format!("invalid substring range. start: {start}, end: {end}")));
    }
    let from = byte_at(text, start).ok_or_else(|| out_of_range(start))?;
    let to = match end {
        Some(end) => byte_at(text, end).ok_or_else(|| out_of_range(end))?,
        None => text.len(),
    };
    Ok(match text {
        Text::Borrowed(text) => Value::text(&text[from..to]),
        Text::Made(text) => text[from..to].to_owned().into(),
    })
}

/// The index of a text in another text, searched from an index on. -1 without a match.
pub(super) fn index_of(text: &str, part: &str, from: i64) -> Result<i64, EvalError> {
    if from < 0 {
        return Err(out_of_range(from));
    }
    if part.is_empty() {
        return Ok(from);
    }
    let Some(start) = byte_at(text, from) else { return Ok(-1) };
    Ok(text[start..].find(part).map_or(-1, |at| place(&text[..start + at])))
}

/// The last index of a text in another text that is at most `from`. -1 without a match.
pub(super) fn last_index_of(text: &str, part: &str, from: Option<i64>) -> Result<i64, EvalError> {
    let size = place(text);
    let from = from.unwrap_or(size);
    if from < 0 {
        return Err(out_of_range(from));
    }
    if part.is_empty() {
        return Ok(from);
    }
    if from > size {
        return Ok(-1);
    }
    let end = byte_at(text, from.saturating_add(place(part))).unwrap_or(text.len());
    Ok(text[..end].rfind(part).map_or(-1, |at| place(&text[..at])))
}

/// The number of code points of a text.
fn place(text: &str) -> i64 {
    i64::try_from(text.chars().count()).unwrap_or(i64::MAX)
}

fn join<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let (list, between): (&List<'a>, &str) = match args {
        [Value::List(list)] => (list, ""),
        [Value::List(list), Value::String(between)] => (list, between),
        _ => return Err(no_overload_of("join", args)),
    };
    let mut out = String::new();
    for (at, element) in list.iter().enumerate() {
        let Value::String(text) = element else { return Err(no_overload_of("join", args)) };
        if at > 0 {
            out.push_str(between);
        }
        if out.len() + text.len() > MAX_TEXT {
            return Err(EvalError::TooCostly);
        }
        out.push_str(&text);
    }
    Ok(out.into())
}
