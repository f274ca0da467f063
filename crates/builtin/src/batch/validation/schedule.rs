//! Schedules of cron jobs: five fields or one of a few names, and the time zone.
//!
//! Messages are those of the cron parser that upstream uses.

use keelson_meta::go_format::{parse_int, quote};

use crate::validating::at::At;
use crate::validating::type_rules::Run;

/// The existing time zones (IANA), sorted.
const TIME_ZONES: &str = include_str!("time_zones.txt");

/// A field of a schedule: its range, and names for its numbers.
struct ScheduleField {
    least: i64,
    most: i64,
    names: &'static [&'static str],
    first: i64,
}

const fn numbers(least: i64, most: i64) -> ScheduleField {
    ScheduleField { least, most, names: &[], first: 0 }
}

const MONTHS: &[&str] = &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: &[&str] = &["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const PARTS: [ScheduleField; 5] = [
    numbers(0, 59),
    numbers(0, 23),
    numbers(1, 31),
    ScheduleField { least: 1, most: 12, names: MONTHS, first: 1 },
    ScheduleField { least: 0, most: 6, names: DAYS, first: 0 },
];

pub(super) fn schedule(at: &At<'_, '_>, run: &mut Run<'_>) {
    let text = at.text();
    if text.is_empty() {
        return;
    }
    if let Err(why) = parse(text) {
        at.invalid(run, text, why);
    }
    let zoned = |text: &str| text.contains("TZ");
    let had = at.old.as_str().is_some_and(zoned);
    let zone = at.parent().is_some_and(|spec| spec.field_is_set("timeZone"));
    if had && zoned(text) && zone {
        at.invalid(run, text, "cannot use both timeZone field and TZ or CRON_TZ in schedule");
    } else if !had && zoned(text) {
        at.invalid(run, text, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead");
    }
}

pub(super) fn time_zone(at: &At<'_, '_>, run: &mut Run<'_>) {
    if !at.is_set() || run.before.is_some() && at.is_unchanged() {
        return;
    }
    let name = at.text();
    if name.is_empty() {
        return at.invalid(run, "", "timeZone must be nil or non-empty string");
    }
    let fits = |c: char| c.is_ascii_alphanumeric() || ".-_+".contains(c);
    let part_fits = |part: &str| {
        !matches!(part, "." | "..")
            && !part.starts_with('-')
            && (1..=14).contains(&part.len())
            && part.chars().all(fits)
    };
    if !name.split('/').all(part_fits) {
        return at.invalid(run, name, format!("unknown time zone {name}"));
    }
    if name.eq_ignore_ascii_case("local") {
        let detail = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        at.invalid(run, name, detail);
    }
    let known = name == "Local" || TIME_ZONES.lines().any(|zone| zone == name);
    if !known {
        at.invalid(run, name, format!("unknown time zone {name}"));
    }
}

fn parse(text: &str) -> Result<(), String> {
    let text = match text.strip_prefix("TZ=").or_else(|| text.strip_prefix("CRON_TZ=")) {
        Some(zoned) => zoned.split_once(' ').map_or("", |(_, rest)| rest).trim(),
        None => text,
    };
    if let Some(name) = text.strip_prefix('@') {
        return match name {
            "yearly" | "annually" | "monthly" | "weekly" | "daily" | "midnight" | "hourly" => Ok(()),
            _ => match name.strip_prefix("every ") {
                Some(time) if is_duration(time) => Ok(()),
                Some(time) => Err(format!("failed to parse duration {text}: time: invalid duration {}", quote(time))),
                None => Err(format!("unrecognized descriptor: {text}")),
            },
        };
    }
    let fields: Vec<&str> = text.split_whitespace().collect();
    if fields.len() != PARTS.len() {
        return Err(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
    }
    fields.iter().zip(&PARTS).try_for_each(|(field, part)| parse_field(field, part))
}

fn parse_field(field: &str, part: &ScheduleField) -> Result<(), String> {
    field.split(',').filter(|range| !range.is_empty()).try_for_each(|range| parse_range(range, part))
}

fn parse_range(text: &str, part: &ScheduleField) -> Result<(), String> {
    let steps: Vec<&str> = text.split('/').collect();
    let limits: Vec<&str> = steps[0].split('-').collect();
    let (start, mut end) = match limits.as_slice() {
        ["*" | "?", ..] => (part.least, part.most),
        [one] => (number_or_name(one, part)?, number_or_name(one, part)?),
        [first, last] => (number_or_name(first, part)?, number_or_name(last, part)?),
        _ => return Err(format!("too many hyphens: {text}")),
    };
    let step = match steps.as_slice() {
        [_] => 1,
        [_, step] => {
            if limits.len() == 1 {
                end = part.most;
            }
            number(step)?
        }
        _ => return Err(format!("too many slashes: {text}")),
    };
    if start < part.least {
        return Err(format!("beginning of range ({start}) below minimum ({}): {text}", part.least));
    }
    if end > part.most {
        return Err(format!("end of range ({end}) above maximum ({}): {text}", part.most));
    }
    if start > end {
        return Err(format!("beginning of range ({start}) beyond end of range ({end}): {text}"));
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {text}"));
    }
    Ok(())
}

fn number_or_name(text: &str, part: &ScheduleField) -> Result<i64, String> {
    let lower = text.to_lowercase();
    let named = part.names.iter().position(|name| *name == lower);
    match named.and_then(|index| i64::try_from(index).ok()) {
        Some(index) => Ok(index + part.first),
        None => number(text),
    }
}

fn number(text: &str) -> Result<i64, String> {
    let number = parse_int(text).map_err(|why| {
        let why = why.replace("strconv.ParseInt", "strconv.Atoi");
        format!("failed to parse int from {text}: {why}")
    })?;
    if number < 0 { Err(format!("negative number ({number}) not allowed: {text}")) } else { Ok(number) }
}

/// Returns true for a duration such as `1h30m`.
fn is_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    let mut any = false;
    while !rest.is_empty() {
        let unit = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        if unit.len() == rest.len() || rest.starts_with('.') && rest[1..].starts_with(unit) {
            return false;
        }
        let units = ["ns", "us", "µs", "ms", "s", "m", "h"];
        let mut matching: Vec<&str> = units.into_iter().filter(|name| unit.starts_with(name)).collect();
        matching.sort_by_key(|name| name.len());
        let Some(name) = matching.last() else { return false };
        rest = &unit[name.len()..];
        any = true;
    }
    any
}

#[cfg(test)]
mod tests {
    use super::{is_duration, parse};

    #[test]
    fn schedules_are_read_as_the_parser_does() {
        for good in ["* * * * *", "*/5 0-6 1,15 jan-mar MON", "@hourly", "@every 1h30m", "0 0 ? * ?", "5/15 * * * *"] {
            assert_eq!(parse(good), Ok(()), "{good}");
        }
        for (bad, why) in [
            ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
            ("1/2/3 * * * *", "too many slashes: 1/2/3"),
            ("x * * * *", "failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax"),
            ("@often", "unrecognized descriptor: @often"),
        ] {
            assert_eq!(parse(bad), Err(why.to_owned()), "{bad}");
        }
        assert!(is_duration("1.5s") && !is_duration("1") && !is_duration("") && !is_duration("1x"));
    }
}
