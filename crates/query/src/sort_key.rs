//! Sort keys: JSON scalars encoded as bytes whose bytewise order is the order of the values.
//!
//! No key is a prefix of another one, so several keys can be concatenated and compared as one. Descending order inverts
//! all bits.

use std::time::{SystemTime, UNIX_EPOCH};

use keelson_meta::clock::parse_rfc3339;
use keelson_meta::quantity::Quantity;

/// The compared length of a text in bytes.
pub(crate) const TEXT_BYTES: usize = 256;
/// The maximum number of compared digits of a number, more than a double has.
const DIGITS: usize = 40;
/// The encoding of a byte in a text that equals the terminator.
const ESCAPED_END: [u8; 2] = [0, 1];
const TEXT_END: [u8; 2] = [0, 0];

/// Appends the bytes of `write`, inverted if descending.
pub(crate) fn directed(descending: bool, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    write(out);
    if descending {
        out[start..].iter_mut().for_each(|byte| *byte = !*byte);
    }
}

/// Encodes a text.
pub(crate) fn text(text: &str, out: &mut Vec<u8>) {
    for byte in text.bytes().take(TEXT_BYTES) {
        match byte {
            0 => out.extend_from_slice(&ESCAPED_END),
            byte => out.push(byte),
        }
    }
    out.extend_from_slice(&TEXT_END);
}

/// Encodes a JSON number: sign, exponent, digits. `None` if it is invalid.
pub(crate) fn number(text: &str, out: &mut Vec<u8>) -> Option<()> {
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, power(exponent)?),
        None => (unsigned, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let is_number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    if (whole.is_empty() && fraction.is_empty()) || !is_number(whole) || !is_number(fraction) {
        return None;
    }
    let digits = || whole.bytes().chain(fraction.bytes());
    let zeros = digits().take_while(|digit| *digit == b'0').count();
    let significant = digits().skip(zeros).take(DIGITS);
    // The exponent of the form 0.d1d2...
    let point = i64::try_from(whole.len()).ok()? - i64::try_from(zeros).ok()? + exponent;
    let trimmed: Vec<u8> = significant.collect();
    let length = trimmed.iter().rposition(|digit| *digit != b'0').map_or(0, |last| last + 1);
    if length == 0 {
        out.push(1);
        return Some(());
    }
    out.push(if negative { 0 } else { 2 });
    directed(negative, out, |out| {
        // Flips the sign bit, so that negative exponents sort first.
        out.extend_from_slice(&(point ^ i64::MIN).to_be_bytes());
        out.extend(trimmed[..length].iter().map(|digit| digit - b'0' + 1));
        out.push(0);
    });
    Some(())
}

/// An exponent, clamped to the supported range.
fn power(text: &str) -> Option<i64> {
    let digits = text.trim_start_matches(['+', '-']);
    let signed = text.len() - digits.len() <= 1;
    if !signed || digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let most = i64::from(i32::MAX);
    let size = digits.parse::<i64>().unwrap_or(most).min(most);
    Some(if text.starts_with('-') { -size } else { size })
}

/// Encodes a Kubernetes quantity.
pub(crate) fn quantity(text: &str, out: &mut Vec<u8>) -> Option<()> {
    integer(Quantity::parse(text)?.nanos(), out);
    Some(())
}

/// Encodes an RFC 3339 time.
pub(crate) fn time(text: &str, out: &mut Vec<u8>) -> Option<()> {
    instant(parse_rfc3339(text)?, out);
    Some(())
}

fn instant(time: SystemTime, out: &mut Vec<u8>) {
    let nanos = |duration: std::time::Duration| i128::try_from(duration.as_nanos()).unwrap_or(i128::MAX);
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => integer(nanos(after), out),
        Err(before) => integer(-nanos(before.duration()), out),
    }
}

fn integer(number: i128, out: &mut Vec<u8>) {
    out.extend_from_slice(&(number ^ i128::MIN).to_be_bytes());
}

/// The end mark of versions. It sorts before the marks of a continuation.
const END: u8 = 1;
const DIGITS_NEXT: u8 = 2;
const LETTERS_NEXT: u8 = 3;
const PRERELEASE: u8 = 1;
const RELEASE: u8 = 2;

/// Encodes a version: `v1.30.2`, `1.9`, `2.0.0-rc.1+build`, `v1beta1`. Numbers compare by value, a prerelease comes
/// before its release, and build metadata is ignored.
pub(crate) fn version(text: &str, out: &mut Vec<u8>) -> Option<()> {
    let start = out.len();
    let written = write_version(text, out);
    if written.is_none() {
        out.truncate(start);
    }
    written
}

fn write_version(text: &str, out: &mut Vec<u8>) -> Option<()> {
    let text = text.split('+').next()?;
    if text.len() > TEXT_BYTES {
        // Such a text is not a real version, and its sort key would be as long as the text.
        return None;
    }
    let mut rest = text.strip_prefix('v').unwrap_or(text);
    loop {
        let (digits, behind) = split(rest, |byte| byte.is_ascii_digit());
        out.push(DIGITS_NEXT);
        version_number(digits, out)?;
        rest = behind;
        match rest.strip_prefix('.') {
            Some(next) => rest = next,
            None => break,
        }
    }
    out.push(END);
    if rest.is_empty() {
        out.push(RELEASE);
        return Some(());
    }
    out.push(PRERELEASE);
    rest = rest.strip_prefix('-').unwrap_or(rest);
    if rest.is_empty() {
        return None;
    }
    while let Some(first) = rest.bytes().next() {
        if matches!(first, b'.' | b'-') {
            rest = &rest[1..];
            continue;
        }
        let (digits, behind) = split(rest, |byte| byte.is_ascii_digit());
        if !digits.is_empty() {
            out.push(DIGITS_NEXT);
            version_number(digits, out)?;
            rest = behind;
            continue;
        }
        let (letters, behind) = split(rest, |byte| byte.is_ascii_alphabetic());
        if letters.is_empty() {
            return None;
        }
        out.push(LETTERS_NEXT);
        self::text(letters, out);
        rest = behind;
    }
    out.push(END);
    Some(())
}

fn split(text: &str, wanted: impl Fn(u8) -> bool) -> (&str, &str) {
    text.split_at(text.bytes().position(|byte| !wanted(byte)).unwrap_or(text.len()))
}

/// Encodes a number of a version: its length, then its digits.
fn version_number(digits: &str, out: &mut Vec<u8>) -> Option<()> {
    let significant = digits.trim_start_matches('0');
    if digits.is_empty() {
        return None;
    }
    out.push(u8::try_from(significant.len()).ok()?);
    out.extend_from_slice(significant.as_bytes());
    Some(())
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    use proptest::prelude::*;

    use super::*;

    type Form = fn(&str, &mut Vec<u8>) -> Option<()>;

    fn place(form: Form, of: &str) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        form(of, &mut out).map(|()| out)
    }

    /// Checks texts in ascending order. Texts in one group are equal.
    #[track_caller]
    fn check_ascends(form: Form, groups: &[&[&str]]) {
        let places = |group: &[&str]| -> Vec<Vec<u8>> {
            group.iter().map(|text| place(form, text).unwrap_or_else(|| panic!("{text} is none"))).collect()
        };
        for group in groups {
            let places = places(group);
            assert!(places.iter().all(|place| *place == places[0]), "{group:?}");
        }
        for pair in groups.windows(2) {
            assert!(places(pair[0])[0] < places(pair[1])[0], "{pair:?}");
        }
    }

    #[test]
    fn numbers_compare_by_value() {
        let groups: [&[&str]; 11] = [
            &["-1e400"],
            &["-100", "-1e2", "-100.0"],
            &["-99.5"],
            &["-0.001"],
            &["0", "-0", "0.0", "0e9"],
            &["1e-400"],
            &["0.5", "5e-1", ".5"],
            &["9"],
            &["10", "1e1", "1E+1"],
            &["9007199254740993"],
            &["9007199254740994"],
        ];
        check_ascends(number, &groups);
        for none in ["", "-", "a", "1a", "1e", "e1", "1.2.3", "1e+-1", "--1"] {
            assert_eq!(place(number, none), None, "{none}");
        }
    }

    #[test]
    fn quantities_times_and_versions_have_orders_of_their_own() {
        check_ascends(quantity, &[&["-1"], &["0"], &["100m", "0.1"], &["1"], &["1k", "1000"], &["1Ki"], &["5Gi"]]);
        check_ascends(
            time,
            &[
                &["1969-12-31T23:59:59Z"],
                &["2026-01-01T00:00:00Z", "2026-01-01T01:00:00+01:00"],
                &["2026-01-01T00:00:00.5Z"],
                &["2026-01-01T00:00:01Z"],
            ],
        );
        check_ascends(
            version,
            &[
                &["1.2"],
                &["1.2.0-alpha"],
                &["1.2.0-alpha.1"],
                &["1.2.0-beta.2"],
                &["1.2.0-beta.11"],
                &["1.2.0", "v1.2.0", "1.02.0", "1.2.0+build"],
                &["1.9.1"],
                &["1.10.0"],
                &["v2"],
            ],
        );
        check_ascends(version, &[&["v1alpha1"], &["v1beta1"], &["v1beta10"], &["v1"], &["v2alpha1"]]);
        for none in ["", "v", "latest", "1.", "1.2-", "1.2_3"] {
            assert_eq!(place(version, none), None, "{none}");
        }
    }

    fn written(of: &str) -> Vec<u8> {
        let mut out = Vec::new();
        text(of, &mut out);
        out
    }

    proptest! {
        #[test]
        fn whole_numbers_compare_as_numbers(a: i64, b: i64) {
            let place = |of: i64| place(number, &of.to_string()).unwrap();
            prop_assert_eq!(place(a).cmp(&place(b)), a.cmp(&b));
        }

        #[test]
        fn doubles_compare_as_numbers(a: f64, b: f64) {
            prop_assume!(a.is_finite() && b.is_finite());
            let place = |of: f64| place(number, &format!("{of:e}")).unwrap();
            prop_assert_eq!(Some(place(a).cmp(&place(b))), a.partial_cmp(&b));
        }

        #[test]
        fn texts_compare_by_their_bytes_and_none_begins_another(a in "[a\0é]{0,6}", b in "[a\0é]{0,6}") {
            let (one, other) = (written(&a), written(&b));
            prop_assert_eq!(one.cmp(&other), a.as_bytes().cmp(b.as_bytes()));
            prop_assert!(a == b || !other.starts_with(&one));
        }

        #[test]
        fn no_version_sort_key_is_a_prefix_of_another(a in "v?[0-9]{1,3}(\\.[0-9]{1,3}){0,2}(-[a-c0-2.]{1,4})?", b in "v?[0-9.a-c-]{0,8}") {
            if let (Some(one), Some(other)) = (place(version, &a), place(version, &b)) {
                prop_assert!(one.cmp(&other) == Ordering::Equal || !other.starts_with(&one));
            }
        }
    }
}
