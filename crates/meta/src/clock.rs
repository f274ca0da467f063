//! Wall-clock time, and its two text formats in the API.
//!
//! Code that needs the time of day uses a [`Clock`], so that tests and simulations control the time. Timers and
//! timeouts use the clock of the async runtime instead.

use std::cell::Cell;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// The first second of year 0, the earliest time of RFC 3339.
const EARLIEST_SECOND: i64 = -62_167_219_200;
/// The last second of year 9999, the latest time of RFC 3339.
const LATEST_SECOND: i64 = 253_402_300_799;

/// A source of wall-clock time.
pub trait Clock: Send + Sync + 'static {
    /// The current time.
    fn now(&self) -> SystemTime;
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> SystemTime {
        SystemTime::now()
    }
}

/// A clock that changes only when a test sets it.
#[derive(Debug)]
pub struct ManualClock(Mutex<SystemTime>);

impl ManualClock {
    /// A clock that shows `start`.
    pub fn new(start: SystemTime) -> Self {
        Self(Mutex::new(start))
    }

    /// Sets the clock to `time`, which may be earlier.
    pub fn set(&self, time: SystemTime) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = time;
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) += by;
    }
}

impl Clock for ManualClock {
    fn now(&self) -> SystemTime {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The time as in metadata: UTC in whole seconds, such as `2026-01-02T03:04:05Z`.
pub fn rfc3339(time: SystemTime) -> String {
    let (seconds, _) = civil(time);
    let mut text = String::with_capacity(seconds.len() + 1);
    text.extend(seconds.map(char::from));
    text.push('Z');
    text
}

/// The time with microseconds, as in `Lease` and `Event`: `2026-01-02T03:04:05.000000Z`.
pub fn rfc3339_micro(time: SystemTime) -> String {
    let mut text = Vec::with_capacity("2026-01-02T03:04:05.000000Z".len());
    push_rfc3339_micro(time, &mut text);
    String::from_utf8(text).expect("a time is made of digits and marks")
}

/// Appends the time with microseconds to bytes.
pub fn push_rfc3339_micro(time: SystemTime, out: &mut Vec<u8>) {
    let (seconds, micros) = civil(time);
    out.extend_from_slice(&seconds);
    out.push(b'.');
    out.extend_from_slice(&digits::<6>(micros));
    out.push(b'Z');
}

/// Parses an RFC 3339 time with any offset and precision. `None` for an invalid time.
///
/// As in Go's layout, letters are upper case, and `T` is the only separator.
pub fn parse_rfc3339(text: &str) -> Option<SystemTime> {
    if text.as_bytes().get(10) != Some(&b'T') || text.ends_with('z') {
        return None;
    }
    OffsetDateTime::parse(text, &Rfc3339).ok().map(SystemTime::from)
}

/// Returns date and time in seconds, and the microseconds. Times outside the years 0 to 9999 are clamped, since the
/// format has four digits for the year.
fn civil(time: SystemTime) -> ([u8; 19], u32) {
    let (seconds, micros) = match time.duration_since(UNIX_EPOCH) {
        Ok(after) => (i64::try_from(after.as_secs()).unwrap_or(i64::MAX), after.subsec_micros()),
        Err(before) => before_epoch(before.duration()),
    };
    let seconds = seconds.clamp(EARLIEST_SECOND, LATEST_SECOND);
    let (known, text) = LATEST.get();
    if known == seconds {
        return (text, micros);
    }
    let text = civil_second(seconds);
    LATEST.set((seconds, text));
    (text, micros)
}

thread_local! {
    /// The second that was formatted last. On a busy server, most times to format are in the same second.
    static LATEST: Cell<(i64, [u8; 19])> = const { Cell::new((0, *b"1970-01-01T00:00:00")) };
}

/// The date and time of a second. The second must be within the range of the format.
fn civil_second(seconds: i64) -> [u8; 19] {
    let date = OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let (year, month, day) = date.to_calendar_date();
    let (hour, minute, second) = date.to_hms();
    let mut text = *b"0000-00-00T00:00:00";
    text[..4].copy_from_slice(&digits::<4>(year.unsigned_abs()));
    let parts = [u8::from(month), day, hour, minute, second];
    for (number, place) in parts.into_iter().zip(text[5..].chunks_mut(3)) {
        place[..2].copy_from_slice(&digits::<2>(number.into()));
    }
    text
}

/// The last digits of a number, with leading zeros.
fn digits<const COUNT: usize>(mut number: u32) -> [u8; COUNT] {
    let mut text = [b'0'; COUNT];
    for digit in text.iter_mut().rev() {
        *digit += u8::try_from(number % 10).unwrap_or_default();
        number /= 10;
    }
    text
}

/// Splits a distance before 1970 into whole seconds, rounded away from 1970, and microseconds.
fn before_epoch(distance: Duration) -> (i64, u32) {
    let whole = i64::try_from(distance.as_secs()).unwrap_or(i64::MAX);
    match distance.subsec_micros() {
        0 => (-whole, 0),
        micros => (-whole - 1, 1_000_000 - micros),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(seconds: u64, micros: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds) + Duration::from_micros(micros)
    }

    #[test]
    fn seconds_are_cut_not_rounded() {
        assert_eq!(rfc3339(at(1_767_323_045, 999_999)), "2026-01-02T03:04:05Z");
        assert_eq!(rfc3339_micro(at(1_767_323_045, 42)), "2026-01-02T03:04:05.000042Z");
    }

    #[test]
    fn times_before_1970_are_written_downwards() {
        let half_before = UNIX_EPOCH - Duration::from_millis(500);
        assert_eq!(rfc3339_micro(half_before), "1969-12-31T23:59:59.500000Z");
        assert_eq!(rfc3339(UNIX_EPOCH - Duration::from_secs(1)), "1969-12-31T23:59:59Z");
    }

    #[test]
    fn offsets_are_understood_and_nonsense_is_not() {
        assert_eq!(parse_rfc3339("2026-01-02T05:04:05+02:00"), Some(at(1_767_323_045, 0)));
        for wrong in ["yesterday", "", "2026-01-02 05:04:05Z", "2026-01-02t05:04:05z", "2026-01-02T05:04:05z"] {
            assert_eq!(parse_rfc3339(wrong), None, "{wrong}");
        }
        assert_eq!(parse_rfc3339("2026-13-02T05:04:05Z"), None);
    }

    #[test]
    fn the_manual_clock_moves_on_request() {
        let clock = ManualClock::new(at(10, 0));
        clock.advance(Duration::from_secs(5));
        assert_eq!(clock.now(), at(15, 0));
        clock.set(at(1, 0));
        assert_eq!(clock.now(), at(1, 0));
    }

    proptest! {
        #[test]
        fn written_values_read_back(seconds in 0u64..253_402_300_799, micros in 0u64..1_000_000) {
            prop_assert_eq!(parse_rfc3339(&rfc3339(at(seconds, micros))), Some(at(seconds, 0)));
            prop_assert_eq!(parse_rfc3339(&rfc3339_micro(at(seconds, micros))), Some(at(seconds, micros)));
        }
    }
}
