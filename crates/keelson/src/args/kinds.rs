//! Parsers of flag values. Each kind of value has one parser, so all flags of a kind accept the same forms.
//!
//! The rules are those of kube-apiserver's flags, so that its manifests can be used unchanged. A switch takes `=true`
//! or `=false`, or no value. The last value of a repeated flag counts, but lists accumulate. A list may be empty. A
//! duration is a sequence of decimal numbers with units.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use clap::builder::Resettable;
use clap::{ArgAction, Command};

/// The units of durations, in nanoseconds, the longer names first.
const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60 * 1_000_000_000),
    ("h", 3600 * 1_000_000_000),
];

/// Makes the switches and repeated flags of a command follow the rules of this file.
pub(super) fn uniform(command: Command) -> Command {
    let command = command.args_override_self(true).mut_args(|arg| match arg.get_action() {
        ArgAction::SetTrue => arg
            .action(ArgAction::Set)
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true")
            .default_value("false")
            .hide_default_value(true)
            .value_name("BOOL")
            .value_parser(switch),
        _ => arg,
    });
    command.mut_subcommands(uniform)
}

/// Makes a command read no environment variables.
pub(super) fn without_environment(command: Command) -> Command {
    command.mut_args(|arg| arg.env(Resettable::Reset)).mut_subcommands(without_environment)
}

/// A switch with kube-apiserver's values, and the values that environment variables allowed in earlier releases.
pub(super) fn switch(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" | "y" | "yes" | "on" => Ok(true),
        "" | "0" | "f" | "F" | "false" | "FALSE" | "False" | "n" | "no" | "off" => Ok(false),
        _ => Err(format!("{text:?} is neither true nor false")),
    }
}

/// One value of a list flag.
#[derive(Clone, Debug)]
pub(crate) struct List<T>(Vec<T>);

/// The items of a list, between commas.
pub(super) fn list<T: FromStr<Err: Display>>(text: &str) -> Result<List<T>, String> {
    list_of(text, |item| item.parse().map_err(|error: T::Err| error.to_string()))
}

/// The items of a list, each read by `read`.
pub(super) fn list_of<T>(text: &str, read: impl Fn(&str) -> Result<T, String>) -> Result<List<T>, String> {
    list_between(text, ',', read)
}

/// The items of a list between other marks than commas.
pub(super) fn list_between<T>(
    text: &str,
    mark: char,
    read: impl Fn(&str) -> Result<T, String>,
) -> Result<List<T>, String> {
    text.split(mark).filter(|item| !item.is_empty()).map(read).collect::<Result<_, _>>().map(List)
}

/// Values of a list flag, as one list.
pub(crate) trait ListValues<T> {
    /// All items in their order.
    fn joined(self) -> Vec<T>;
}

impl<T> ListValues<T> for Vec<List<T>> {
    fn joined(self) -> Vec<T> {
        self.into_iter().flat_map(|list| list.0).collect()
    }
}

/// A duration such as `5m`, `90s`, `1m0.5s`, `250ms` or `0`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let bad = || format!("{text:?} is not a duration; write it like 5m, 90s or 1h30m");
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let (mut rest, mut total) = (text, Duration::ZERO);
    while !rest.is_empty() || text.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(bad)?;
        let (number, behind) = rest.split_at(end);
        let unit = UNITS.iter().find(|(unit, _)| {
            behind
                .strip_prefix(unit)
                .is_some_and(|next| next.chars().next().is_none_or(|c| c.is_ascii_digit() || c == '.'))
        });
        let (unit, nanoseconds) = unit.ok_or_else(bad)?;
        let part = scaled(number, *nanoseconds).ok_or_else(bad)?;
        total = total.checked_add(Duration::from_nanos(part)).ok_or_else(bad)?;
        rest = &behind[unit.len()..];
    }
    Ok(total)
}

/// A decimal number of units, without fractions of a nanosecond.
fn scaled(number: &str, unit: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let (mut part, mut place) = (0, unit);
    for digit in fraction.bytes() {
        // Units of ten that do not divide evenly lose less than a nanosecond for each digit.
        part += place * u64::from(digit - b'0') / 10;
        place /= 10;
    }
    whole.checked_mul(unit)?.checked_add(part)
}

/// A duration that is not zero.
pub(super) fn some_duration(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err(format!("{text:?} is no time; write it like 5m, 90s or 1h30m")),
        duration => Ok(duration),
    }
}

/// A duration, or none where it is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OptionalDuration(pub(crate) Option<Duration>);

/// A duration of which zero means never.
pub(super) fn duration_or_never(text: &str) -> Result<OptionalDuration, String> {
    duration(text).map(|duration| OptionalDuration(Some(duration).filter(|duration| !duration.is_zero())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_those_of_go() {
        let check = |text: &str, expect: Duration| assert_eq!(duration(text), Ok(expect), "{text}");
        check("5m", Duration::from_secs(300));
        check("1h30m", Duration::from_secs(5400));
        check("250ms", Duration::from_millis(250));
        check("1m0.5s", Duration::from_millis(60_500));
        check("1.5h", Duration::from_secs(5400));
        check(".5s", Duration::from_millis(500));
        check("2us3ns", Duration::from_nanos(2003));
        for zero in ["0", "0s", "0h0m0s"] {
            check(zero, Duration::ZERO);
            assert_eq!(duration_or_never(zero), Ok(OptionalDuration(None)));
            assert!(some_duration(zero).is_err(), "{zero}");
        }
        for bad in ["", "5", "m", "5 m", "-5s", "5d", "1.2.3s", ".s", "99999999999999999999s", "9999999999h"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
        assert_eq!(duration_or_never("10m"), Ok(OptionalDuration(Some(Duration::from_mins(10)))));
        assert!(duration_or_never("often").is_err());
    }

    #[test]
    fn lists_may_be_empty_and_add_up() {
        let read = |texts: &[&str]| texts.iter().map(|text| list::<String>(text).unwrap()).collect::<Vec<_>>().joined();
        assert_eq!(read(&["a,b", "", "c"]), ["a", "b", "c"]);
        assert!(read(&[""]).is_empty());
        assert!(list::<u16>("1,x").is_err());
    }
}
