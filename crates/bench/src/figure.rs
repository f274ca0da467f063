//! One measured figure, its goal, and additional observations.
//!
//! A figure compares itself with its goal, if it has one. `report` has the table.

use std::fmt;
use std::time::Duration;

/// A quantity with its unit, which determines the better direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Quantity {
    /// A time. Less is better.
    Time(Duration),
    /// Memory in bytes. Less is better.
    Memory(u64),
    /// Operations per second. More is better.
    Rate(f64),
    /// A ratio of two rates. More is better.
    Ratio(f64),
}

impl Quantity {
    pub(crate) const fn millis(millis: u64) -> Self {
        Self::Time(Duration::from_millis(millis))
    }

    pub(crate) const fn micros(micros: u64) -> Self {
        Self::Time(Duration::from_micros(micros))
    }

    pub(crate) const fn megabytes(megabytes: u64) -> Self {
        Self::Memory(megabytes * 1_000_000)
    }

    /// Returns true if this is at least as good as the other. False for different kinds.
    pub(crate) fn reaches(self, other: Self) -> bool {
        match (self, other) {
            (Self::Time(a), Self::Time(b)) => a <= b,
            (Self::Memory(a), Self::Memory(b)) => a <= b,
            (Self::Rate(a), Self::Rate(b)) | (Self::Ratio(a), Self::Ratio(b)) => a >= b,
            (Self::Time(_) | Self::Memory(_) | Self::Rate(_) | Self::Ratio(_), _) => false,
        }
    }

    /// The number used for medians.
    fn size(self) -> f64 {
        match self {
            Self::Time(time) => time.as_secs_f64(),
            Self::Memory(bytes) => bytes as f64,
            Self::Rate(rate) | Self::Ratio(rate) => rate,
        }
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Time(time) => f.write_str(&duration(time)),
            Self::Memory(bytes) => f.write_str(&memory(bytes)),
            Self::Rate(rate) => write!(f, "{rate:.0} /s"),
            Self::Ratio(ratio) => write!(f, "{ratio:.2}"),
        }
    }
}

/// One line of the table.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    pub(crate) name: &'static str,
    pub(crate) what: String,
    pub(crate) value: Quantity,
    /// The goal, if any.
    pub(crate) at_least: Option<Quantity>,
    pub(crate) seen: Observed,
}

/// Additional observations, if meaningful.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observed {
    /// The median time to the first byte of a response.
    pub(crate) first_byte: Option<Duration>,
    pub(crate) p50: Option<Duration>,
    pub(crate) p99: Option<Duration>,
    /// Body bytes received per second.
    pub(crate) bytes_per_second: Option<f64>,
    /// The server's CPU time during the measurement.
    pub(crate) cpu: Option<Duration>,
    /// The server's peak memory, and its growth since the start of the measurement.
    pub(crate) peak: Option<u64>,
    pub(crate) growth: Option<u64>,
    pub(crate) note: Option<String>,
}

/// The run with the median figure. Its note lists the figures of all runs.
///
/// # Panics
/// Without runs.
pub(crate) fn median_of(mut runs: Vec<(Quantity, Observed)>) -> (Quantity, Observed) {
    let all: Vec<String> = runs.iter().map(|(value, _)| value.to_string()).collect();
    runs.sort_by(|a, b| a.0.size().total_cmp(&b.0.size()));
    let middle = runs.len() / 2;
    let (value, seen) = runs.swap_remove(middle);
    let runs = (all.len() > 1).then(|| format!("runs: {}", all.join(", ")));
    let notes: Vec<String> = seen.note.into_iter().chain(runs).collect();
    (value, Observed { note: (!notes.is_empty()).then(|| notes.join("; ")), ..seen })
}

/// The percentile of sorted values (nearest rank). Zero without values.
pub(crate) fn percentile(sorted: &[Duration], part: f64) -> Duration {
    let rank = (part * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

/// Formats three digits with a suitable unit.
pub(crate) fn duration(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds >= 1.0 {
        format!("{seconds:.2} s")
    } else if seconds >= 1e-3 {
        format!("{:.*} ms", usize::from(seconds < 0.1), seconds * 1e3)
    } else {
        format!("{:.1} us", seconds * 1e6)
    }
}

/// Formats decimal megabytes or gigabytes.
pub(crate) fn memory(bytes: u64) -> String {
    let megabytes = bytes as f64 / 1e6;
    if megabytes >= 1000.0 { format!("{:.2} GB", megabytes / 1e3) } else { format!("{megabytes:.1} MB") }
}

#[cfg(test)]
mod tests {
    use super::{Duration, Observed, Quantity, duration, median_of, memory, percentile};

    #[test]
    fn percentiles_are_nearest_ranks() {
        let values: Vec<Duration> = (1..=100).map(Duration::from_millis).collect();
        assert_eq!(percentile(&values, 0.5), Duration::from_millis(50));
        assert_eq!(percentile(&values, 0.99), Duration::from_millis(99));
        assert_eq!(percentile(&values[..1], 0.99), Duration::from_millis(1));
        assert_eq!(percentile(&[], 0.5), Duration::ZERO);
    }

    #[test]
    fn the_median_run_is_taken_whole() {
        let run = |rate: f64| (Quantity::Rate(rate), Observed { note: Some(format!("{rate}")), ..Observed::default() });
        let (value, seen) = median_of(vec![run(3.0), run(1.0), run(2.0)]);
        assert_eq!((value, seen.note.as_deref()), (Quantity::Rate(2.0), Some("2; runs: 3 /s, 1 /s, 2 /s")));
    }

    #[test]
    fn better_depends_on_the_unit() {
        assert!(Quantity::millis(5).reaches(Quantity::millis(5)));
        assert!(!Quantity::Rate(4.0).reaches(Quantity::Rate(5.0)));
        assert!(!Quantity::millis(5).reaches(Quantity::Rate(5.0)));
        assert!(Quantity::Ratio(0.6).reaches(Quantity::Ratio(0.5)));
        assert!(!Quantity::Ratio(0.6).reaches(Quantity::Rate(0.5)));
    }

    #[test]
    fn units_suit_the_size() {
        assert_eq!(duration(Duration::from_nanos(2_340)), "2.3 us");
        assert_eq!(duration(Duration::from_micros(4_520)), "4.5 ms");
        assert_eq!(duration(Duration::from_millis(452)), "452 ms");
        assert_eq!(duration(Duration::from_millis(1_234)), "1.23 s");
        assert_eq!((memory(12_340_000), memory(1_234_000_000)), ("12.3 MB".into(), "1.23 GB".into()));
    }
}
