//! Values whose JSON is a text or a number although they are messages on the wire: times and int-or-string.
//!
//! The two directions stand side by side, so that they can be compared.

use std::time::{Duration, UNIX_EPOCH};

use keelson_meta::clock::{rfc3339, rfc3339_micro};

/// First second of year 0 and last of year 9999, between which RFC 3339 can write a time.
const SECONDS: std::ops::RangeInclusive<i64> = -62_167_219_200..=253_402_300_799;

/// 0001-01-01T00:00:00Z, Go's zero time, which JSON writes as null.
const ZERO_TIME: i64 = -62_135_596_800;

/// A point in time as the wire has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Timestamp {
    pub(crate) seconds: i64,
    pub(crate) nanos: i32,
}

impl Timestamp {
    /// The time in JSON, `Some(None)` for null, `None` if JSON cannot write it. Parts of a second are shown only with
    /// `micro`.
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_zero_time_is_null_and_what_json_cannot_write_is_nothing() {
        assert_eq!(Timestamp { seconds: ZERO_TIME, nanos: 0 }.text(false), Some(None));
        for (seconds, nanos) in [(i64::MAX, 0), (i64::MIN, 0), (0, -1), (0, 1_000_000_000)] {
            assert_eq!(Timestamp { seconds, nanos }.text(true), None);
        }
    }
}
