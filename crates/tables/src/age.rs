//! Durations as kubectl shows them: at most the two largest units, and fewer for longer durations.
//!
//! Scripts compare these texts, so they equal upstream's exactly.

use std::time::{Duration, SystemTime};

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
const YEAR: u64 = 365 * DAY;

/// The duration from `time` to `now`. `<unknown>` without a time.
///
/// Up to two seconds in the future count as now, because clocks differ. A later time is `<invalid>`.
pub fn age(time: Option<SystemTime>, now: SystemTime) -> String {
    let Some(time) = time else {
        return "<unknown>".to_owned();
    };
    match now.duration_since(time) {
        Ok(passed) => human_duration(passed),
        Err(ahead) if ahead.duration() < Duration::from_secs(2) => "0s".to_owned(),
        Err(_) => "<invalid>".to_owned(),
    }
}

/// A duration in short form: `90s`, `5m3s`, `4h2m`, `3d4h`, `120d`, `2y15d`.
pub fn human_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if seconds < 2 * MINUTE {
        format!("{seconds}s")
    } else if seconds < 10 * MINUTE {
        two_units(seconds / MINUTE, "m", seconds % MINUTE, "s")
    } else if seconds < 3 * HOUR {
        format!("{}m", seconds / MINUTE)
    } else if seconds < 8 * HOUR {
        two_units(seconds / HOUR, "h", seconds % HOUR / MINUTE, "m")
    } else if seconds < 2 * DAY {
        format!("{}h", seconds / HOUR)
    } else if seconds < 8 * DAY {
        two_units(seconds / DAY, "d", seconds % DAY / HOUR, "h")
    } else if seconds < 2 * YEAR {
        format!("{}d", seconds / DAY)
    } else if seconds < 8 * YEAR {
        two_units(seconds / YEAR, "y", seconds % YEAR / DAY, "d")
    } else {
        format!("{}y", seconds / YEAR)
    }
}

/// The larger unit, and the smaller one unless it is zero.
fn two_units(large: u64, large_unit: &str, small: u64, small_unit: &str) -> String {
    if small == 0 { format!("{large}{large_unit}") } else { format!("{large}{large_unit}{small}{small_unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_grow_coarser_with_the_length() {
        let table = [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (599, "9m59s"),
            (600, "10m"),
            (3 * HOUR - 1, "179m"),
            (3 * HOUR, "3h"),
            (3 * HOUR + 5 * MINUTE + 59, "3h5m"),
            (8 * HOUR - 1, "7h59m"),
            (8 * HOUR + 59 * MINUTE, "8h"),
            (2 * DAY - 1, "47h"),
            (2 * DAY, "2d"),
            (3 * DAY + 4 * HOUR + 59, "3d4h"),
            (8 * DAY - 1, "7d23h"),
            (8 * DAY, "8d"),
            (2 * YEAR - 1, "729d"),
            (2 * YEAR, "2y"),
            (2 * YEAR + 15 * DAY, "2y15d"),
            (8 * YEAR - 1, "7y364d"),
            (8 * YEAR + 200 * DAY, "8y"),
            (100 * YEAR, "100y"),
        ];
        for (seconds, expected) in table {
            assert_eq!(human_duration(Duration::from_secs(seconds)), expected, "{seconds}");
        }
    }

    #[test]
    fn fractions_of_a_second_are_cut() {
        assert_eq!(human_duration(Duration::from_millis(1_999)), "1s");
    }

    #[test]
    fn clocks_may_differ_a_little() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        assert_eq!(age(Some(now - Duration::from_secs(61)), now), "61s");
        assert_eq!(age(Some(now + Duration::from_millis(1_999)), now), "0s");
        assert_eq!(age(Some(now + Duration::from_secs(2)), now), "<invalid>");
        assert_eq!(age(None, now), "<unknown>");
    }
}
