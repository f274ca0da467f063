//! The types of plain scalars by the rules of `go-yaml` v2, a lenient YAML 1.1.
//!
//! The reader uses it to type plain text. The writer uses it to find strings that would lose their type if they were
//! written plain.

use std::borrow::Cow;

/// The meaning of a plain scalar.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Meaning {
    Null,
    Bool(bool),
    Int(i64),
    /// Larger than an `i64`.
    Unsigned(u64),
    /// May be infinite or not a number, which JSON cannot hold.
    Float(f64),
    /// A string that other YAML readers parse as a time.
    Timestamp,
    /// The key `<<`.
    Merge,
    Text,
}

/// Determines the meaning of a plain scalar.
pub(super) fn meaning(text: &str) -> Meaning {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Meaning::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => Meaning::Bool(true),
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => Meaning::Bool(false),
        ".nan" | ".NaN" | ".NAN" => Meaning::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => Meaning::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => Meaning::Float(f64::NEG_INFINITY),
        "<<" => Meaning::Merge,
        _ => match text.as_bytes()[0] {
            b'.' => float(text).unwrap_or(Meaning::Text),
            b'+' | b'-' | b'0'..=b'9' => number(text),
            _ => Meaning::Text,
        },
    }
}

/// Returns true for a number in base 60 in YAML 1.1, such as `12:30:45`. It is a string here, but it is written with
/// quotes for other readers.
pub(super) fn is_base_60(text: &str) -> bool {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (groups, fraction) = digits.split_once('.').map_or((digits, ""), |(groups, fraction)| (groups, fraction));
    let digits_only = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_');
    let mut groups = groups.split(':');
    let first = groups.next().unwrap_or_default();
    let mut sixtieths = groups.peekable();
    first.starts_with(|first: char| first.is_ascii_digit())
        && digits_only(first)
        && digits_only(fraction)
        && sixtieths.peek().is_some()
        && sixtieths.all(is_sixtieth)
}

fn is_sixtieth(group: &str) -> bool {
    match group.as_bytes() {
        [one] => one.is_ascii_digit(),
        [ten, one] => (b'0'..=b'5').contains(ten) && one.is_ascii_digit(),
        _ => false,
    }
}

/// A text that starts with a sign or a digit.
fn number(text: &str) -> Meaning {
    if is_timestamp(text) {
        return Meaning::Timestamp;
    }
    let plain: Cow<'_, str> = if text.contains('_') { text.replace('_', "").into() } else { text.into() };
    integer(&plain).or_else(|| float(&plain)).unwrap_or(Meaning::Text)
}

/// An integer in base 10, or in the base of its prefix. A leading `0` alone means octal.
fn integer(text: &str) -> Option<Meaning> {
    let (negative, digits) = match text.as_bytes() {
        [b'-', ..] => (true, &text[1..]),
        [b'+', ..] => (false, &text[1..]),
        _ => (false, text),
    };
    let (base, digits) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &digits[2..]),
        [b'0', b'o' | b'O', ..] => (8, &digits[2..]),
        [b'0', b'b' | b'B', ..] => (2, &digits[2..]),
        [b'0', _, ..] => (8, &digits[1..]),
        _ => (10, digits),
    };
    // Without this check the standard library's parser would accept a second sign.
    if !digits.starts_with(|first: char| first.is_ascii_alphanumeric()) {
        return None;
    }
    let magnitude = u64::from_str_radix(digits, base).ok()?;
    match (negative, i64::try_from(magnitude)) {
        (false, Ok(number)) => Some(Meaning::Int(number)),
        (false, Err(_)) => Some(Meaning::Unsigned(magnitude)),
        (true, _) => 0i64.checked_sub_unsigned(magnitude).map(Meaning::Int),
    }
}

/// A decimal fraction with an optional exponent, or an integer beyond 64 bits.
fn float(text: &str) -> Option<Meaning> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match digits.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent.strip_prefix(['+', '-']).unwrap_or(exponent))),
        None => (digits, None),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, "0"));
    let digits_only = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let well_formed = digits_only(whole)
        && digits_only(fraction)
        && !(whole.is_empty() && fraction.is_empty())
        && exponent.is_none_or(|exponent| !exponent.is_empty() && digits_only(exponent));
    if !well_formed {
        return None;
    }
    text.parse().ok().filter(|number: &f64| number.is_finite()).map(Meaning::Float)
}

/// Returns true for a text in the form of `go-yaml`'s times: a date, or a date and a time of day. Ranges are not
/// checked, so a few more strings than necessary are quoted.
fn is_timestamp(text: &str) -> bool {
    let bytes = text.as_bytes();
    if bytes.len() < 8 || !bytes[..4].iter().all(u8::is_ascii_digit) || bytes[4] != b'-' {
        return false;
    }
    let (date, time) = match text[5..].split_once(['T', 't', ' ']) {
        Some((date, time)) => (date, Some(time)),
        None => (&text[5..], None),
    };
    let one_or_two_digits = |text: &str| matches!(text.len(), 1 | 2) && text.bytes().all(|byte| byte.is_ascii_digit());
    let date_fits = date.split_once('-').is_some_and(|(month, day)| one_or_two_digits(month) && one_or_two_digits(day));
    let time_fits =
        time.is_none_or(|time| time.splitn(3, ':').take(2).all(one_or_two_digits) && time.matches(':').count() >= 2);
    date_fits && time_fits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn booleans_and_nulls_have_many_spellings() {
        for text in ["y", "Yes", "true", "ON"] {
            assert_eq!(meaning(text), Meaning::Bool(true), "{text}");
        }
        for text in ["n", "NO", "False", "off"] {
            assert_eq!(meaning(text), Meaning::Bool(false), "{text}");
        }
        for text in ["", "~", "null", "NULL"] {
            assert_eq!(meaning(text), Meaning::Null, "{text}");
        }
        for text in ["yEs", "nULL", "truely", "a"] {
            assert_eq!(meaning(text), Meaning::Text, "{text}");
        }
    }

    #[test]
    fn numbers_come_in_several_bases() {
        let cases = [
            ("0", 0),
            ("0644", 420),
            ("0o644", 420),
            ("-0x1f", -31),
            ("+12", 12),
            ("1_000", 1000),
            ("0b101", 5),
            ("-9223372036854775808", i64::MIN),
        ];
        for (text, number) in cases {
            assert_eq!(meaning(text), Meaning::Int(number), "{text}");
        }
        assert_eq!(meaning("18446744073709551615"), Meaning::Unsigned(u64::MAX));
        assert_eq!(meaning("08"), Meaning::Float(8.0));
        assert_eq!(meaning(".5"), Meaning::Float(0.5));
        assert_eq!(meaning("1."), Meaning::Float(1.0));
        assert_eq!(meaning("-1.5e-3"), Meaning::Float(-0.0015));
        for text in ["1e", "1.2.3", "--1", "-", "+", ".", "1e999", "0xz", "10m", "1:30"] {
            assert_eq!(meaning(text), Meaning::Text, "{text}");
        }
    }

    #[test]
    fn timestamps_are_detected() {
        for text in ["2026-01-02", "2026-1-2", "2026-01-02T03:04:05Z", "2026-01-02 03:04:05.5"] {
            assert_eq!(meaning(text), Meaning::Timestamp, "{text}");
        }
        for text in ["2026-01", "2026-01-02T", "2026-01-02x", "20260-1-1"] {
            assert_eq!(meaning(text), Meaning::Text, "{text}");
        }
    }

    #[test]
    fn base_60_numbers_are_detected() {
        for text in ["1:30", "12:30:45", "-1:0", "190:20:30.15"] {
            assert!(is_base_60(text), "{text}");
        }
        for text in ["", "1", "a:1", "1:", "1:60", ":30", "10.0.0.1:80"] {
            assert!(!is_base_60(text), "{text}");
        }
    }
}
