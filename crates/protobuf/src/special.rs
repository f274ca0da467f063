//! Messages whose JSON is a string or number: times and int-or-string.
//!
//! The functions for both directions are side by side, so that they can be compared.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use keelson_meta::clock::{parse_rfc3339, rfc3339, rfc3339_micro};

/// The first second of year 0 and the last of year 9999, the range of RFC 3339.
const SECONDS: std::ops::RangeInclusive<i64> = -62_167_219_200..=253_402_300_799;

/// 0001-01-01T00:00:00Z, Go's zero time, which JSON writes as null.
const ZERO_TIME: i64 = -62_135_596_800;

/// A point in time as encoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Timestamp {
    pub(crate) seconds: i64,
    pub(crate) nanos: i32,
}

impl Timestamp {
    /// The time in JSON: `Some(None)` for null, `None` if JSON cannot represent it. Fractions of a second are written
    /// only with `micro`.
    pub(crate) fn text(self, micro: bool) -> Option<Option<String>> {
        let nanos = u32::try_from(self.nanos).ok().filter(|nanos| *nanos < 1_000_000_000)?;
        if !SECONDS.contains(&self.seconds) {
            return None;
        }
        if self.seconds == ZERO_TIME && nanos == 0 {
            return Some(None);
        }
        let distance = Duration::from_secs(self.seconds.unsigned_abs());
        let whole = if self.seconds < 0 { UNIX_EPOCH - distance } else { UNIX_EPOCH + distance };
        let time = whole + Duration::from_nanos(u64::from(nanos));
        Some(Some(if micro { rfc3339_micro(time) } else { rfc3339(time) }))
    }

    /// Parses a JSON time. As in Go, fractions of a second are kept only with `micro`, down to microseconds.
    pub(crate) fn parse(text: &str, micro: bool) -> Option<Self> {
        let time = parse_rfc3339(text)?;
        let (seconds, nanos) = since_epoch(time);
        Some(Self { seconds, nanos: if micro { nanos / 1000 * 1000 } else { 0 } })
    }

    /// Returns true for Go's zero time.
    pub(crate) fn is_zero(self) -> bool {
        self == Self { seconds: ZERO_TIME, nanos: 0 }
    }
}

fn since_epoch(time: SystemTime) -> (i64, i32) {
    let split = |distance: Duration| {
        let seconds = i64::try_from(distance.as_secs()).unwrap_or(i64::MAX);
        (seconds, i32::try_from(distance.subsec_nanos()).unwrap_or_default())
    };
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => split(after),
        Err(before) => match split(before.duration()) {
            (seconds, 0) => (-seconds, 0),
            (seconds, nanos) => (-seconds - 1, 1_000_000_000 - nanos),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_back() {
        for (text, micro) in [
            ("2026-01-02T03:04:05Z", false),
            ("1969-12-31T23:59:59.500000Z", true),
            ("0001-01-01T00:00:01Z", false),
            ("9999-12-31T23:59:59Z", false),
        ] {
            let time = Timestamp::parse(text, micro).unwrap();
            assert_eq!(time.text(micro), Some(Some(text.to_owned())));
        }
        assert_eq!(Timestamp::parse("2026-01-02T03:04:05.7Z", false), Timestamp::parse("2026-01-02T03:04:05Z", false));
    }

    #[test]
    fn the_zero_time_is_null_and_unrepresentable_times_are_none() {
        assert!(Timestamp::parse("0001-01-01T00:00:00Z", false).unwrap().is_zero());
        assert_eq!(Timestamp { seconds: ZERO_TIME, nanos: 0 }.text(false), Some(None));
        for (seconds, nanos) in [(i64::MAX, 0), (i64::MIN, 0), (0, -1), (0, 1_000_000_000)] {
            assert_eq!(Timestamp { seconds, nanos }.text(true), None);
        }
    }
}
