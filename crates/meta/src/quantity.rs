//! Parses and formats resource quantities as Kubernetes does: `0.5` becomes `500m`, `1024Mi` becomes `1Gi`, `1500m`
//! stays.
//!
//! A quantity with more digits or a larger exponent than 128 bits can represent is validated, but its notation is not
//! changed.

use std::fmt;

const WRONG_FORMAT: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const WRONG_NUMBER: &str = "unable to parse numeric part of quantity";
const WRONG_SUFFIX: &str = "unable to parse quantity's suffix";

/// Decimal suffixes and their powers of ten.
const DECIMAL: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
/// Binary suffixes and their powers of two.
const BINARY: [(&str, u32); 6] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];
/// The power of ten of the smallest unit. Smaller fractions are rounded.
const NANO: i32 = -9;
/// The number of decimal digits that always fit in 64 bits. A shorter text that is already canonical is not changed.
const FAST_DIGITS: i32 = 18;
/// The number of digits or powers of ten beyond which the notation of a quantity is not changed.
const MOST_DIGITS: usize = 28;

/// An amount in billionths of a unit, for comparisons and sums. Amounts beyond 128 bits saturate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Quantity(i128);

/// The number of billionths in a unit.
const UNIT: i128 = 1_000_000_000;

impl Quantity {
    /// Zero.
    pub const ZERO: Self = Self(0);

    /// Parses an amount. `None` if it is invalid.
    pub fn parse(text: &str) -> Option<Self> {
        let parts = split(text).ok().filter(|_| !text.is_empty())?;
        let form = form(parts.suffix)?;
        let places = i32::try_from(parts.fraction.len()).ok()?;
        let digits = parts.whole.bytes().chain(parts.fraction.bytes());
        let value = digits.fold(0i128, |value, digit| value.saturating_mul(10).saturating_add((digit - b'0').into()));
        let amount = match form {
            Form::Exponent(power) | Form::Decimal(power) => shift(value, power.saturating_sub(places)),
            Form::Binary(power) => shift(value.saturating_mul(1 << power), -places),
        };
        Some(Self(if parts.negative { -amount } else { amount }))
    }

    /// An amount of `number` whole units.
    pub const fn units(number: i64) -> Self {
        Self(number as i128 * UNIT)
    }

    /// The number of billionths of a unit.
    pub const fn nanos(self) -> i128 {
        self.0
    }

    /// Returns true for a whole number of units.
    pub fn is_whole(self) -> bool {
        self.0 % UNIT == 0
    }

    /// The number of units, rounded away from zero. Kubernetes converts quantities to numbers in this way.
    pub fn rounded_up(self) -> i128 {
        self.0 / UNIT + if self.0 % UNIT == 0 { 0 } else { self.0.signum() }
    }

    /// Returns true for a multiple of another amount. Nothing is a multiple of zero.
    pub fn is_multiple_of(self, part: Self) -> bool {
        part.0 != 0 && self.0 % part.0 == 0
    }

    /// The ratio to another amount.
    pub fn over(self, other: Self) -> f64 {
        self.0 as f64 / other.0 as f64
    }

    /// The sum.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The difference.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

/// Formats with decimal suffixes, as Kubernetes writes sums of quantities.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&decimal(self.0, NANO, false).unwrap_or_else(|| self.rounded_up().to_string()))
    }
}

/// Converts `value * 10^power` units to billionths of a unit.
fn shift(value: i128, power: i32) -> i128 {
    let power = power.saturating_sub(NANO);
    let factor = 10i128.checked_pow(power.unsigned_abs());
    match (power >= 0, factor) {
        (true, Some(factor)) => value.saturating_mul(factor),
        (true, None) => value.saturating_mul(i128::MAX),
        (false, Some(factor)) => value / factor + if value % factor == 0 { 0 } else { value.signum() },
        (false, None) => value.signum(),
    }
}

/// The notation of a quantity, which is kept when the quantity is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// With a power of ten after `e`.
    Exponent(i32),
    /// With a decimal suffix of this power of ten.
    Decimal(i32),
    /// With a binary suffix of this power of two.
    Binary(u32),
}

/// The components of a quantity.
struct Components<'a> {
    negative: bool,
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
}

/// Returns the quantity as Kubernetes writes it. `None` if that is the same text.
///
/// # Errors
/// The quantity is invalid, with upstream's message.
pub fn canonical(text: &str) -> Result<Option<String>, String> {
    // White space around a quantity is ignored.
    let trimmed = text.trim();
    if trimmed.len() < text.len() {
        return Ok(Some(canonical(trimmed)?.unwrap_or_else(|| trimmed.to_owned())));
    }
    if text.is_empty() {
        return Err(WRONG_FORMAT.to_owned());
    }
    if text == "0" {
        return Ok(None);
    }
    let parts = split(text)?;
    let form = form(parts.suffix).ok_or(WRONG_SUFFIX)?;
    let digits = format!("{}{}", parts.whole, parts.fraction);
    if digits.is_empty() || digits.len() > MOST_DIGITS {
        return if digits.is_empty() { Err(WRONG_NUMBER.to_owned()) } else { Ok(None) };
    }
    let value: i128 = digits.parse().map_err(|_| WRONG_NUMBER.to_owned())?;
    if is_kept(&parts, form, &digits, value) {
        return Ok(None);
    }
    let value = if parts.negative { -value } else { value };
    Ok(write(value, parts.fraction.len(), form).filter(|written| written != text))
}

/// Returns true if upstream treats the text as canonical. Some such texts are not canonical in fact: `05` is kept too.
fn is_kept(parts: &Components<'_>, form: Form, digits: &str, value: i128) -> bool {
    let length = i32::try_from(digits.len()).unwrap_or(i32::MAX);
    let places = i32::try_from(parts.fraction.len()).unwrap_or(i32::MAX);
    match form {
        Form::Exponent(power) | Form::Decimal(power) => {
            let scale = power - places;
            length <= FAST_DIGITS
                && scale >= NANO
                && scale % 3 == 0
                && !digits.ends_with("000")
                && !digits.starts_with('0')
        }
        Form::Binary(power) => {
            let weight = i32::try_from(power).unwrap_or(i32::MAX) * 3 / 10;
            parts.fraction.is_empty() && 15 - length - weight > 0 && value & 7 != 0
        }
    }
}

/// The number of billionths in a thousandth of a unit.
const MILLI: i128 = UNIT / 1000;

/// Rounds the quantity away from zero to whole thousandths of a unit. `None` if it needs no rounding, or is invalid.
pub fn rounded_to_millis(text: &str) -> Option<String> {
    // Nearly all quantities are digits with a suffix of `m` or larger, and need no rounding.
    if !text.bytes().any(|byte| matches!(byte, b'.' | b'n' | b'u' | b'e' | b'E')) {
        return None;
    }
    let text = text.trim();
    let Quantity(nanos) = Quantity::parse(text)?;
    // An amount that has saturated is not known exactly, but is too large to need rounding.
    if nanos % MILLI == 0 || nanos.unsigned_abs() >= i128::MAX.unsigned_abs() {
        return None;
    }
    let millis = nanos / MILLI + nanos.signum();
    match form(split(text).ok()?.suffix)? {
        Form::Exponent(_) => decimal(millis, -3, true),
        Form::Decimal(_) => decimal(millis, -3, false),
        Form::Binary(_) => binary(millis, 3, 0),
    }
}

fn split(text: &str) -> Result<Components<'_>, String> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let stripped = unsigned.trim_start_matches('0');
    let (whole, rest) = take(stripped, |b| b.is_ascii_digit());
    // If a text starts with neither a digit nor a point, its number is zero.
    let whole = if whole.is_empty() { "0" } else { whole };
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(rest) => take(rest, |b| b.is_ascii_digit()),
        None => ("", rest),
    };
    let (_, after) = take(rest, |b| b"eEinumkKMGTP".contains(&b));
    let signed = after.strip_prefix(['+', '-']).unwrap_or(after);
    let (_, end) = take(signed, |b| b.is_ascii_digit());
    if !end.is_empty() {
        return Err(WRONG_FORMAT.to_owned());
    }
    Ok(Components { negative: text.starts_with('-'), whole, fraction, suffix: rest })
}

fn take(text: &str, accept: impl Fn(u8) -> bool) -> (&str, &str) {
    let end = text.bytes().position(|b| !accept(b)).unwrap_or(text.len());
    // The accepted bytes are ASCII, so the end is a character boundary.
    text.split_at(end)
}

fn form(suffix: &str) -> Option<Form> {
    if let Some((_, power)) = DECIMAL.iter().find(|(s, _)| *s == suffix) {
        return Some(Form::Decimal(*power));
    }
    if let Some((_, power)) = BINARY.iter().find(|(s, _)| *s == suffix) {
        return Some(Form::Binary(*power));
    }
    let exponent = suffix.strip_prefix(['e', 'E'])?;
    exponent.parse().ok().map(Form::Exponent)
}

/// Formats the value `digits * 10^-places * suffix`. `None` if that needs more than 128 bits.
fn write(digits: i128, places: usize, form: Form) -> Option<String> {
    let places = i32::try_from(places).ok()?;
    match form {
        Form::Exponent(power) => decimal(digits, power.checked_sub(places)?, true),
        Form::Decimal(power) => decimal(digits, power - places, false),
        Form::Binary(power) => binary(digits, places, power),
    }
}

fn binary(digits: i128, places: i32, power: u32) -> Option<String> {
    let scaled = digits.checked_mul(1i128.checked_shl(power)?)?;
    let unit = 10i128.pow(u32::try_from(places).ok()?);
    let whole = scaled / unit;
    // With a binary suffix, small amounts would be confusing and fractions would lose precision.
    if whole.abs() < 1024 || scaled % unit != 0 {
        return decimal(scaled, -places, false);
    }
    let mut value = whole.clamp(-i128::from(i64::MAX), i128::from(i64::MAX));
    let mut steps = 0;
    while value % 1024 == 0 && steps < BINARY.len() {
        value /= 1024;
        steps += 1;
    }
    let suffix = if steps == 0 { "" } else { BINARY[steps - 1].0 };
    Some(format!("{value}{suffix}"))
}

/// Formats `value * 10^scale` exactly, with the largest possible power of ten that is a multiple of three.
fn decimal(value: i128, scale: i32, exponent_form: bool) -> Option<String> {
    let (mut value, mut scale) = round_up(value, scale)?;
    if value == 0 {
        return Some("0".to_owned());
    }
    while value % 10 == 0 {
        value /= 10;
        scale += 1;
    }
    let extra = scale.rem_euclid(3);
    value = value.checked_mul(10i128.pow(extra.unsigned_abs()))?;
    scale -= extra;
    match (exponent_form, scale) {
        (true, 0) => Some(value.to_string()),
        (true, scale) => Some(format!("{value}e{scale}")),
        (false, scale) => {
            DECIMAL.iter().find(|(_, power)| *power == scale).map(|(suffix, _)| format!("{value}{suffix}"))
        }
    }
}

/// Rounds away from zero to whole nano units.
fn round_up(value: i128, scale: i32) -> Option<(i128, i32)> {
    if scale >= NANO {
        return Some((value, scale));
    }
    let lost = NANO.checked_sub(scale)?.unsigned_abs();
    let unit = 10i128.checked_pow(lost).unwrap_or(i128::MAX);
    let rounded = value / unit + if value % unit == 0 { 0 } else { value.signum() };
    Some((rounded, NANO))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quantities_are_written_canonically() {
        for (given, expected) in [
            ("1 ", "1"),
            (" 1.5 ", "1500m"),
            ("0.5", "500m"),
            ("1.5", "1500m"),
            ("0.1", "100m"),
            ("1000m", "1"),
            ("1000", "1k"),
            ("1024Mi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("0.5Ki", "512"),
            ("1.5Ki", "1536"),
            ("0.0000000001", "1n"),
            ("100000", "100k"),
            ("00", "0"),
            ("0m", "0"),
            ("-0.5", "-500m"),
            ("1e4", "10e3"),
            ("1e2", "100"),
            ("8192Mi", "8Gi"),
            ("2048Pi", "2Ei"),
        ] {
            assert_eq!(canonical(given), Ok(Some(expected.to_owned())), "{given}");
        }
    }

    #[test]
    fn canonical_quantities_stay() {
        for text in
            ["0", "1", "500m", "1M", "1Gi", "8Gi", "100Mi", "1e3", "1500m", "05", "+5", "3Ki", "128974848", "-2"]
        {
            assert_eq!(canonical(text), Ok(None), "{text}");
        }
    }

    #[test]
    fn amounts_below_a_thousandth_are_rounded_up() {
        for (given, expected) in [
            ("500u", "1m"),
            ("1n", "1m"),
            ("0.0005", "1m"),
            ("1.0005", "1001m"),
            ("-500u", "-1m"),
            ("999999n", "1m"),
            ("1999500u", "2"),
            ("0.0000001Ki", "1m"),
            ("1.9999999999Ki", "2Ki"),
            ("5e-4", "1e-3"),
            (" 500u ", "1m"),
        ] {
            assert_eq!(rounded_to_millis(given).as_deref(), Some(expected), "{given}");
        }
        for text in
            ["", "1", "1m", "1000u", "1.5", "0.001", "1.5Gi", "1e3", "5E", "1e40", "1.5e99", "x.y", "1 Gi", "none"]
        {
            assert_eq!(rounded_to_millis(text), None, "{text}");
        }
    }

    #[test]
    fn errors_read_as_upstream() {
        for (text, expected) in [
            ("", WRONG_FORMAT),
            ("1 Gi", WRONG_FORMAT),
            ("1Gib", WRONG_FORMAT),
            ("ten", WRONG_FORMAT),
            ("1ki", WRONG_SUFFIX),
            ("1mm", WRONG_SUFFIX),
        ] {
            assert_eq!(canonical(text), Err(expected.to_owned()), "{text:?}");
        }
    }

    #[test]
    fn quantities_compare_independent_of_their_notation() {
        let check =
            |left: &str, right: &str| assert_eq!(Quantity::parse(left), Quantity::parse(right), "{left} {right}");
        check("1", "1000m");
        check("1Ki", "1024");
        check("0.5Gi", "512Mi");
        check("1e3", "1k");
        check("-1.5", "-1500m");
        assert!(Quantity::parse("100m") < Quantity::parse("1"));
        assert!(Quantity::parse("9E") < Quantity::parse("9999999999999999999999999999E"));
        assert!(Quantity::parse("1Gi") > Quantity::parse("1G"));
        assert_eq!(Quantity::parse("0"), Some(Quantity::ZERO));
        assert_eq!(Quantity::parse("x"), None);
        assert_eq!(Quantity::parse(""), None);
        let of = |text| Quantity::parse(text).expect("a quantity");
        assert!(of("2").is_whole() && !of("1500m").is_whole());
        assert_eq!(of("1500m").plus(of("1Ki")).to_string(), "1025500m");
        assert_eq!((of("1500m").rounded_up(), of("2").rounded_up()), (2, 2));
        assert!(of("4Mi").is_multiple_of(of("2Mi")) && !of("3Mi").is_multiple_of(of("2Mi")));
    }

    proptest! {
        #[test]
        fn an_amount_is_that_of_its_canonical_form(text in "[1-9][0-9]{0,6}([.][0-9]{1,6})?(|n|u|m|k|M|G|T|Ki|Mi|Gi|e3|e-3)") {
            if let Some(written) = canonical(&text).unwrap() {
                prop_assert_eq!(Quantity::parse(&text), Quantity::parse(&written), "{} {}", text, written);
            }
        }

        #[test]
        fn writing_is_stable(digits in "[1-9][0-9]{0,10}", fraction in "([.][0-9]{1,9})?", suffix in "(|n|u|m|k|M|G|T|Ki|Mi|Gi|e3|e-3)") {
            let text = format!("{digits}{fraction}{suffix}");
            if let Some(written) = canonical(&text).unwrap() {
                // As upstream, a value that is not a multiple of 1024 is written without its suffix. From then on it is
                // decimal.
                prop_assume!(!suffix.ends_with('i') || written.ends_with('i'));
                prop_assert_eq!(canonical(&written).unwrap(), None, "{} was written {}", text, written);
            }
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,24}") {
            let _ = canonical(&text);
            let _ = rounded_to_millis(&text);
        }

        #[test]
        fn rounding_a_quantity_twice_changes_nothing(text in "-?[0-9]{1,9}([.][0-9]{1,12})?(|n|u|m|k|Ki|e-5|e3)") {
            if let Some(rounded) = rounded_to_millis(&text) {
                prop_assert_eq!(rounded_to_millis(&rounded), None, "{} became {}", &text, &rounded);
                prop_assert_eq!(canonical(&rounded), Ok(None), "{} became {}", &text, &rounded);
            }
        }
    }
}
