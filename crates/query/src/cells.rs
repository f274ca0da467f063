//! Sort keys of table cells, for columns that are computed from several fields.
//!
//! Cells are short texts for people. Numbers in them compare as numbers, and durations by their length. The crate
//! receives cells through a trait, because only the registry knows the tables of kinds.

use std::borrow::Cow;
use std::fmt;

use crate::sort_key;
use crate::value::Value;

/// The cells of one object.
pub trait Cells: fmt::Debug {
    /// The cell of a column. `None` without such a column, and for cells that are lists or objects.
    fn cell(&self, column: &str) -> Option<Value<'_>>;
}

/// The texts of cells without a value.
const EMPTY: [&str; 5] = ["", "<none>", "<unknown>", "<unset>", "<invalid>"];
/// The units of a duration, with their length in seconds.
const UNITS: [(char, u64); 5] = [('y', 365 * 86_400), ('d', 86_400), ('h', 3_600), ('m', 60), ('s', 1)];

/// Returns true for a cell that stands for a missing value.
pub(crate) fn is_empty(cell: &Value<'_>) -> bool {
    matches!(cell, Value::Text(text) if EMPTY.contains(&&**text))
}

/// The value by which a cell is compared.
pub(crate) fn comparable(cell: Value<'_>) -> Value<'_> {
    let Value::Text(text) = cell else { return cell };
    match seconds(&text) {
        Some(seconds) => Value::Number(Cow::Owned(seconds.to_string())),
        None => Value::Text(Cow::Owned(natural(&text))),
    }
}

/// The length of a duration such as `3d4h`, `5m30s` or `90s`. `None` for other texts.
fn seconds(text: &str) -> Option<u64> {
    let mut sum = 0_u64;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|next: char| !next.is_ascii_digit())?;
        let count: u64 = rest.get(..digits)?.parse().ok()?;
        let unit = rest[digits..].chars().next()?;
        let (_, length) = UNITS.iter().find(|(known, _)| *known == unit)?;
        sum = sum.checked_add(count.checked_mul(*length)?)?;
        rest = &rest[digits + unit.len_utf8()..];
    }
    (!text.is_empty()).then_some(sum)
}

/// A text whose bytewise order is that of the given one with each row of digits as a number. A row of digits becomes
/// `0`, the number of its digits, and the digits.
fn natural(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    let mut rest = text;
    while let Some(start) = rest.find(|next: char| next.is_ascii_digit()) {
        out.push_str(&rest[..start]);
        let row = &rest[start..];
        let end = row.find(|next: char| !next.is_ascii_digit()).unwrap_or(row.len());
        let digits = row[..end].trim_start_matches('0');
        // Only the first bytes of a text are compared, so a longer row needs no larger number.
        let length = u8::try_from(digits.len().min(sort_key::TEXT_BYTES / 4)).unwrap_or(u8::MAX);
        out.push('0');
        out.push(char::from(length + 1));
        out.push_str(digits);
        rest = &row[end..];
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_cells_compare_as_numbers() {
        let ordered = ["0/2", "1/2", "2/2", "2/10", "10/1", "50 (3m ago)", "400", "Completed", "CrashLoopBackOff"];
        let keys = ordered.map(natural);
        for (at, pair) in keys.windows(2).enumerate() {
            assert!(pair[0] < pair[1], "{} comes before {}", ordered[at], ordered[at + 1]);
        }
        assert_eq!(natural("007"), natural("7"));
    }

    #[test]
    fn durations_have_a_length_and_empty_cells_have_no_value() {
        for (text, expect) in [
            ("5m30s", Some(330)),
            ("90s", Some(90)),
            ("2y15d", Some(745 * 86_400)),
            ("3", None),
            ("s", None),
            ("3 m", None),
            ("99999999999999999999y", None),
        ] {
            assert_eq!(seconds(text), expect, "{text}");
        }
        assert!(EMPTY.into_iter().all(|empty| is_empty(&Value::Text(empty.into()))));
        assert_eq!(comparable(Value::Bool(true)), Value::Bool(true));
    }
}
