//! Numbers as strings, in Go's forms.
//!
//! Clients compare messages and names that expressions create, so every digit must be the same as Go's.

use std::fmt::Write;

/// The power of ten from which a number is written with an exponent.
const SHORT: i32 = 6;

/// A double as `%g` writes it, with the fewest digits.
pub fn double_text(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let text = format!("{number:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if !(-4..SHORT).contains(&exponent) {
        return with_exponent(digits, exponent);
    }
    format!("{number}")
}

fn with_exponent(digits: &str, exponent: i32) -> String {
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
}

/// Formats a double with this number of decimals, and with commas between thousands.
pub fn grouped(number: f64, digits: usize) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "∞" } else { "-∞" }.to_owned();
    }
    let text = format!("{number:.digits$}");
    let (sign, rest) = text.strip_prefix('-').map_or(("", text.as_str()), |rest| ("-", rest));
    let (whole, fraction) = rest.split_once('.').map_or((rest, None), |(whole, fraction)| (whole, Some(fraction)));
    let mut out = sign.to_owned();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if let Some(fraction) = fraction {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

/// Formats a double with one digit before the point, six digits after it, and the exponent in superscript digits.
pub fn scientific(number: f64) -> String {
    if !number.is_finite() {
        return grouped(number, 0);
    }
    let text = format!("{number:.6e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let mut out = format!("{digits}×10");
    if exponent < 0 {
        out.push('⁻');
    }
    for digit in format!("{:02}", exponent.unsigned_abs()).chars() {
        out.push(
            char::to_digit(digit, 10)
                .map_or('⁰', |digit| ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'][digit as usize]),
        );
    }
    out
}

/// Bytes in hexadecimal.
pub fn hex(bytes: &[u8], upper: bool) -> String {
    let mut out = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let written = if upper { write!(out, "{byte:02X}") } else { write!(out, "{byte:02x}") };
        debug_assert!(written.is_ok(), "writing to a string cannot fail");
    }
    out
}

/// Parses a double in all forms that Go accepts, including underscores between digits, hexadecimal, `inf` and `nan`.
pub fn parse_double(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let sign = if text.starts_with('-') { -1.0 } else { 1.0 };
    let lower = unsigned.to_ascii_lowercase();
    match lower.as_str() {
        "inf" | "infinity" => return Some(sign * f64::INFINITY),
        "nan" => return Some(f64::NAN),
        _ => {}
    }
    let plain = without_underscores(&lower)?;
    if let Some(digits) = plain.strip_prefix("0x") {
        return Some(sign * hexadecimal(digits)?);
    }
    let fits = plain.bytes().all(|byte| byte.is_ascii_digit() || b".e+-".contains(&byte));
    let number: f64 = if fits { plain.parse().ok()? } else { return None };
    number.is_finite().then_some(sign * number)
}

fn without_underscores(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let is_between =
        |at: usize| at > 0 && bytes[at - 1].is_ascii_hexdigit() && bytes.get(at + 1).is_some_and(u8::is_ascii_hexdigit);
    let fits = bytes.iter().enumerate().all(|(at, byte)| *byte != b'_' || is_between(at));
    fits.then(|| text.replace('_', ""))
}

fn hexadecimal(text: &str) -> Option<f64> {
    let (digits, exponent) = text.split_once('p')?;
    let exponent: i32 = exponent.parse().ok().filter(|exponent: &i32| exponent.abs() < 2000)?;
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut value = 0.0;
    for digit in whole.chars().chain(fraction.chars()) {
        value = value * 16.0 + f64::from(digit.to_digit(16)?);
    }
    let places = i32::try_from(fraction.len()).ok()?.checked_mul(4)?;
    Some(value * 2.0_f64.powi(exponent - places)).filter(|value| value.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_are_written_as_go_writes_them() {
        let check = |number: f64, text: &str| assert_eq!(double_text(number), text);
        check(1.0, "1");
        check(-0.0, "-0");
        check(1e21, "1e+21");
        check(1e-7, "1e-07");
        check(0.0001, "0.0001");
        check(123_456_789.125, "1.23456789125e+08");
        check(1_000_000.0, "1e+06");
        check(999_999.0, "999999");
        check(50_703.0, "50703");
    }

    #[test]
    fn doubles_are_read_as_go_reads_them() {
        let check = |text: &str, number: Option<f64>| assert_eq!(parse_double(text), number, "{text}");
        check("1_0", Some(10.0));
        check("0x1p-2", Some(0.25));
        check("-inf", Some(f64::NEG_INFINITY));
        check("1e400", None);
        check("_1", None);
        check("x", None);
        check("", None);
    }
}
