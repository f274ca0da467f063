//! Times and durations: parsing, formatting, arithmetic, and their parts.
//!
//! A time keeps its original offset from UTC for output. Equality ignores the offset.

use super::zones;
use crate::values::{EvalError, Outcome, Value};
use std::fmt;

/// A point in time, and its original offset from UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timestamp {
    /// Seconds since 1970 in UTC.
    pub seconds: i64,
    /// Nanoseconds within the second.
    pub nanos: u32,
    /// The offset from UTC in seconds.
    pub offset: i32,
}

/// The first second of the year 1 and the last of 9999.
const FIRST: i64 = -62_135_596_800;
const LAST: i64 = 253_402_300_799;
const DAY: i64 = 86_400;
const NANOS: i64 = 1_000_000_000;

/// A date and a time of day.
struct Civil {
    year: i64,
    month: i64,
    day: i64,
    second_of_day: i64,
    days: i64,
}

impl Timestamp {
    /// The point in time without the offset.
    pub fn instant(self) -> (i64, u32) {
        (self.seconds, self.nanos)
    }

    fn civil(self, offset: i64) -> Civil {
        let local = self.seconds + offset;
        let days = local.div_euclid(DAY);
        let (year, month, day) = date_of(days);
        Civil { year, month, day, second_of_day: local.rem_euclid(DAY), days }
    }

    /// The time that is `nanos` nanoseconds later.
    fn plus(self, nanos: i128) -> Result<Self, EvalError> {
        let total = i128::from(self.seconds) * i128::from(NANOS) + i128::from(self.nanos) + nanos;
        let seconds = total.div_euclid(i128::from(NANOS));
        let seconds = i64::try_from(seconds).ok().filter(|seconds| (FIRST..=LAST).contains(seconds));
        let nanos = total.rem_euclid(i128::from(NANOS)) as u32;
        let seconds = seconds.ok_or_else(|| EvalError::new("timestamp overflow"))?;
        Ok(Self { seconds, nanos, offset: self.offset })
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let civil = self.civil(i64::from(self.offset));
        let (hour, minute, second) =
            (civil.second_of_day / 3600, civil.second_of_day / 60 % 60, civil.second_of_day % 60);
        write!(f, "{:04}-{:02}-{:02}T{hour:02}:{minute:02}:{second:02}", civil.year, civil.month, civil.day)?;
        if self.nanos > 0 {
            write!(f, ".{}", format!("{:09}", self.nanos).trim_end_matches('0'))?;
        }
        if self.offset == 0 {
            return f.write_str("Z");
        }
        let (sign, offset) = if self.offset < 0 { ('-', -self.offset) } else { ('+', self.offset) };
        write!(f, "{sign}{:02}:{:02}", offset / 3600, offset / 60 % 60)
    }
}

/// The date of a day, which is counted from the start of 1970.
fn date_of(days: i64) -> (i64, i64, i64) {
    // Counting starts at the first of March of a year divisible by 400, so that each leap day is the last day of its
    // four years.
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// The day of a date, counted from the start of 1970.
fn day_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Parses a time in the format of RFC 3339.
pub fn parse_timestamp(text: &str) -> Option<Timestamp> {
    let bytes = text.as_bytes();
    let number = |start: usize, end: usize| -> Option<i64> {
        let digits = bytes.get(start..end)?;
        digits.iter().all(u8::is_ascii_digit).then(|| digits.iter().fold(0, |n, d| n * 10 + i64::from(d - b'0')))
    };
    let mark = |at: usize, mark: u8| (bytes.get(at) == Some(&mark)).then_some(());
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    for (at, c) in [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')] {
        mark(at, c)?;
    }
    let mut at = 19;
    let mut nanos = 0;
    if bytes.get(at) == Some(&b'.') {
        let digits = bytes[at + 1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits == 0 {
            return None;
        }
        let kept = digits.min(9);
        nanos = number(at + 1, at + 1 + kept)? * 10_i64.pow(9 - u32::try_from(kept).ok()?);
        at += 1 + digits;
    }
    let offset = match &bytes[at..] {
        b"Z" => 0,
        [sign @ (b'+' | b'-'), _, _, b':', _, _] => {
            let (hours, minutes) = (number(at + 1, at + 3)?, number(at + 4, at + 6)?);
            if hours > 23 || minutes > 59 {
                return None;
            }
            (hours * 3600 + minutes * 60) * if *sign == b'-' { -1 } else { 1 }
        }
        _ => return None,
    };
    let days = day_of(year, month, day);
    // If the date is invalid, converting it back yields another date.
    if date_of(days) != (year, month, day) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let seconds = days * DAY + hour * 3600 + minute * 60 + second - offset;
    let offset = i32::try_from(offset).ok()?;
    (FIRST..=LAST).contains(&seconds).then_some(Timestamp { seconds, nanos: u32::try_from(nanos).ok()?, offset })
}

/// The time `seconds` after the start of 1970, if it is in range.
pub fn from_seconds(seconds: i64) -> Option<Timestamp> {
    (FIRST..=LAST).contains(&seconds).then_some(Timestamp { seconds, nanos: 0, offset: 0 })
}

/// Parses a duration such as `1h30m`. Returns nanoseconds.
pub fn parse_duration(text: &str) -> Option<i64> {
    let (is_negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, behind) = rest.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return None;
        }
        let unit_end = behind.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(unit_end);
        let unit: i128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        let whole: i128 = if whole.is_empty() { 0 } else { whole.parse::<i64>().ok()?.into() };
        total += whole * unit;
        let mut weight = unit;
        for digit in fraction.bytes().take(18) {
            total += i128::from(digit - b'0') * weight / 10;
            weight /= 10;
        }
        rest = behind;
        if total > i128::from(i64::MAX) + 1 {
            return None;
        }
    }
    i64::try_from(if is_negative { -total } else { total }).ok()
}

/// A duration as seconds with an `s`.
pub fn duration_text(nanos: i64) -> String {
    let (sign, magnitude) = if nanos < 0 { ("-", nanos.unsigned_abs()) } else { ("", nanos.unsigned_abs()) };
    let (seconds, rest) = (magnitude / NANOS.unsigned_abs(), magnitude % NANOS.unsigned_abs());
    let fraction = if rest == 0 { String::new() } else { format!(".{}", format!("{rest:09}").trim_end_matches('0')) };
    format!("{sign}{seconds}{fraction}s")
}

/// Adds a duration to a time.
pub(super) fn add(time: Timestamp, nanos: i64) -> Outcome<'static> {
    time.plus(nanos.into()).map(Value::Timestamp)
}

/// Subtracts a duration from a time.
pub(super) fn subtract(time: Timestamp, nanos: i64) -> Outcome<'static> {
    time.plus(-i128::from(nanos)).map(Value::Timestamp)
}

/// The duration between two times.
pub(super) fn between(later: Timestamp, earlier: Timestamp) -> Outcome<'static> {
    let whole = i128::from(later.seconds) - i128::from(earlier.seconds);
    let nanos = whole * i128::from(NANOS) + i128::from(later.nanos) - i128::from(earlier.nanos);
    i64::try_from(nanos).map(Value::Duration).map_err(|_| EvalError::new("integer overflow"))
}

pub(super) fn find(name: &str) -> Option<super::Native> {
    Some(match name {
        "getFullYear" => |args| of_time(args, |civil| civil.year),
        "getMonth" => |args| of_time(args, |civil| civil.month - 1),
        "getDate" => |args| of_time(args, |civil| civil.day),
        "getDayOfMonth" => |args| of_time(args, |civil| civil.day - 1),
        "getDayOfYear" => |args| of_time(args, |civil| civil.days - day_of(civil.year, 1, 1)),
        // The first day of 1970 was a Thursday, and Sunday is 0.
        "getDayOfWeek" => |args| of_time(args, |civil| (civil.days + 4).rem_euclid(7)),
        "getHours" => |args| part(args, 3_600 * NANOS, |civil| civil.second_of_day / 3600),
        "getMinutes" => |args| part(args, 60 * NANOS, |civil| civil.second_of_day / 60 % 60),
        "getSeconds" => |args| part(args, NANOS, |civil| civil.second_of_day % 60),
        "getMilliseconds" => |args| match args {
            [Value::Duration(nanos)] => Ok(Value::Int(nanos / 1_000_000)),
            [Value::Timestamp(time)] | [Value::Timestamp(time), Value::String(_)] => {
                Ok(Value::Int(i64::from(time.nanos / 1_000_000)))
            }
            _ => Err(EvalError::no_overload()),
        },
        _ => return None,
    })
}

/// A part of a time, or a duration converted to a unit.
fn part<'a>(args: &[Value<'a>], unit: i64, of: fn(&Civil) -> i64) -> Outcome<'a> {
    match args {
        [Value::Duration(nanos)] => Ok(Value::Int(nanos / unit)),
        _ => of_time(args, of),
    }
}

fn of_time<'a>(args: &[Value<'a>], of: fn(&Civil) -> i64) -> Outcome<'a> {
    let (time, offset) = match args {
        [Value::Timestamp(time)] => (time, 0),
        [Value::Timestamp(time), Value::String(zone)] => (time, zones::offset(zone, time.seconds)?),
        _ => return Err(EvalError::no_overload()),
    };
    Ok(Value::Int(of(&time.civil(offset))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_and_day_numbers_convert_to_each_other() {
        for days in (-719_162..2_932_896).step_by(37) {
            let (year, month, day) = date_of(days);
            assert_eq!(day_of(year, month, day), days);
        }
        assert_eq!(date_of(0), (1970, 1, 1));
        assert_eq!(date_of(11_016), (2000, 2, 29));
    }

    #[test]
    fn durations_are_read_and_written() {
        let check = |text: &str, written: Option<&str>| {
            assert_eq!(parse_duration(text).map(duration_text).as_deref(), written, "{text}");
        };
        check("1h30m", Some("5400s"));
        check("1.5s", Some("1.5s"));
        check("-100ms", Some("-0.1s"));
        check("0", Some("0s"));
        check("1", None);
        check("1d", None);
        check("", None);
        check("-", None);
        check("1.2.3s", None);
        check("9999999h", None);
        check("99999999999999999999h", None);
    }
}
