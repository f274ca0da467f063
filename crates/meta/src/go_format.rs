//! Formats texts as Go does. Upstream formats messages with Go's `%q`, `encoding/json` and `strconv`, and clients read
//! them and match on them.

use crate::json::{Value, ValueKind};
use std::fmt::Write;

/// The text in double quotes with Go's escapes, like `%q`.
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match short_escape(c) {
            Some(escape) => out.push_str(escape),
            None if is_print(c) => out.push(c),
            None => push_escape(&mut out, u32::from(c)),
        }
    }
    out.push('"');
    out
}

/// The texts in double quotes between brackets, separated by spaces, as `%q` prints a slice: `["a" "b"]`.
pub fn quote_list(texts: &[impl AsRef<str>]) -> String {
    let quoted: Vec<String> = texts.iter().map(|text| quote(text.as_ref())).collect();
    format!("[{}]", quoted.join(" "))
}

/// The escape of a character as a backslash and one character, if Go has one.
pub fn short_escape(c: char) -> Option<&'static str> {
    Some(match c {
        '"' => "\\\"",
        '\\' => "\\\\",
        '\u{7}' => "\\a",
        '\u{8}' => "\\b",
        '\u{c}' => "\\f",
        '\n' => "\\n",
        '\r' => "\\r",
        '\t' => "\\t",
        '\u{b}' => "\\v",
        _ => return None,
    })
}

fn push_escape(out: &mut String, code: u32) {
    let written = match code {
        0..=0x7f => write!(out, "\\x{code:02x}"),
        0x80..=0xffff => write!(out, "\\u{code:04x}"),
        _ => write!(out, "\\U{code:08x}"),
    };
    debug_assert!(written.is_ok(), "writing to a string cannot fail");
}

/// Returns true if Go considers the character printable: letters, marks, numbers, punctuation, symbols and the ASCII
/// space.
pub fn is_print(c: char) -> bool {
    match c {
        ' '..='~' => true,
        c if c.is_ascii() => false,
        // Rust's debug form escapes the same categories as Go. It also escapes combining marks, but only at the start
        // of a text, which the leading letter prevents.
        c => {
            let pair: String = ['a', c].iter().collect();
            pair.escape_debug().eq(pair.chars())
        }
    }
}

/// The value as Go's `encoding/json` writes it: compact, with `<`, `>`, `&` and the line separators escaped.
pub fn json(value: &Value) -> String {
    let plain = value.to_string();
    let mut out = String::with_capacity(plain.len());
    for c in plain.chars() {
        match c {
            // In JSON, the escaped characters occur only inside strings, so the complete text can be escaped.
            '<' => out.push_str("\\u003c"),
            '>' => out.push_str("\\u003e"),
            '&' => out.push_str("\\u0026"),
            '\u{2028}' => out.push_str("\\u2028"),
            '\u{2029}' => out.push_str("\\u2029"),
            c => out.push(c),
        }
    }
    out
}

/// Parses a signed decimal number.
///
/// # Errors
/// Go's message, such as `strconv.ParseInt: parsing "abc": invalid syntax`.
pub fn parse_int(text: &str) -> Result<i64, String> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    check_digits("ParseInt", text, digits)?;
    text.parse().map_err(|_| number_error("ParseInt", text, "value out of range"))
}

/// Parses an unsigned decimal number without a sign.
///
/// # Errors
/// Go's message, such as `strconv.ParseUint: parsing "-1": invalid syntax`.
pub fn parse_uint(text: &str) -> Result<u64, String> {
    check_digits("ParseUint", text, text)?;
    text.parse().map_err(|_| number_error("ParseUint", text, "value out of range"))
}

/// Parses a boolean query parameter. It is false if it is absent, `false` or `0`. Any other value is true, even an
/// empty one.
pub fn parse_bool(text: &str) -> bool {
    !(text == "0" || text.eq_ignore_ascii_case("false"))
}

/// The message for a JSON value of the wrong type for a field, such as
/// `json: cannot unmarshal number into Go struct field ConfigMap.data of type string`.
pub fn type_error(field: &str, found: &ValueKind, go_type: &str) -> String {
    format!("json: cannot unmarshal {} into Go struct field {field} of type {go_type}", self::found(found, go_type))
}

/// Go's name for the JSON value in the message that it does not fit this type.
pub fn found(found: &ValueKind, go_type: &str) -> String {
    match found {
        ValueKind::Boolean => "bool".to_owned(),
        // For an integer type, Go includes the number itself.
        ValueKind::Integer(number) | ValueKind::Number(number) if go_type.starts_with("int") => {
            format!("number {number}")
        }
        ValueKind::Integer(_) => "number".to_owned(),
        ValueKind::Null | ValueKind::Number(_) | ValueKind::String | ValueKind::Array | ValueKind::Object => {
            found.name().to_owned()
        }
    }
}

/// Go's name for the JSON type of a value.
pub fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Formats a number that is not an integer, or is too large for one, as `encoding/json` does: without an exponent from
/// 1e-6 up to 1e21.
pub fn float(number: f64) -> String {
    let size = number.abs();
    if size == 0.0 || (1e-6..1e21).contains(&size) {
        return number.to_string();
    }
    let text = format!("{number:e}");
    if text.contains("e-") { text } else { text.replace('e', "e+") }
}

fn check_digits(function: &str, text: &str, digits: &str) -> Result<(), String> {
    let valid = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if valid { Ok(()) } else { Err(number_error(function, text, "invalid syntax")) }
}

fn number_error(function: &str, text: &str, why: &str) -> String {
    format!("strconv.{function}: parsing {}: {why}", quote(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::json;

    #[test]
    fn quoting_escapes_as_go_does() {
        for (text, expected) in [
            ("plain", "\"plain\""),
            ("a\"b\\c", r#""a\"b\\c""#),
            ("tab\tnl\n", r#""tab\tnl\n""#),
            ("\u{1}\u{7f}", r#""\x01\x7f""#),
            ("grüße 日本", "\"grüße 日本\""),
            ("e\u{301}", "\"e\u{301}\""),
            ("\u{a0}\u{200b}", r#""\u00a0\u200b""#),
            ("\u{e0001}", r#""\U000e0001""#),
            ("it's", "\"it's\""),
        ] {
            assert_eq!(quote(text), expected);
        }
    }

    #[test]
    fn json_is_escaped_for_html() {
        assert_eq!(json(&json!({"a": ["<b>", "x & y"]})), r#"{"a":["\u003cb\u003e","x \u0026 y"]}"#);
    }

    #[test]
    fn numbers_fail_with_go_texts() {
        assert_eq!(parse_int("-12"), Ok(-12));
        assert_eq!(parse_int("+12"), Ok(12));
        assert_eq!(parse_int("abc"), Err("strconv.ParseInt: parsing \"abc\": invalid syntax".into()));
        assert_eq!(parse_int(""), Err("strconv.ParseInt: parsing \"\": invalid syntax".into()));
        assert_eq!(
            parse_int("9223372036854775808"),
            Err("strconv.ParseInt: parsing \"9223372036854775808\": value out of range".into())
        );
        assert_eq!(parse_uint("007"), Ok(7));
        assert_eq!(parse_uint("+7"), Err("strconv.ParseUint: parsing \"+7\": invalid syntax".into()));
        assert_eq!(
            parse_uint("18446744073709551616"),
            Err("strconv.ParseUint: parsing \"18446744073709551616\": value out of range".into())
        );
    }

    #[test]
    fn floats_are_written_as_go_does() {
        for (number, expected) in [
            (1.5, "1.5"),
            (1.0, "1"),
            (1e20, "100000000000000000000"),
            (1e21, "1e+21"),
            (-2.5e30, "-2.5e+30"),
            (1e-6, "0.000001"),
            (1e-7, "1e-7"),
        ] {
            assert_eq!(float(number), expected);
        }
    }

    #[test]
    fn only_false_and_zero_are_false() {
        assert!(["1", "true", "", "yes", "no", "t"].into_iter().all(parse_bool));
        assert!(!["0", "false", "False", "FALSE"].into_iter().any(parse_bool));
    }
}
