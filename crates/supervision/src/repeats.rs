//! Rate-limited log lines for failures that repeat with each request or each turn of a loop.
//!
//! Failures are counted by subject, such as the name of a webhook. The first one of a subject is logged at once. After
//! that, a subject gets at most one line a minute, with the number of failures since its last line. A recovery gets one
//! line for each line about a failure.
//!
//! The log stores subjects as hashes in a bounded table, and all further subjects share one entry. Callers write the
//! lines, so that each line keeps its level, target and fields.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Write as _};
use std::hash::{DefaultHasher, Hasher as _};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The time after a line in which a subject's failures are only counted.
pub const REPEAT_INTERVAL: Duration = Duration::from_secs(60);
/// The maximum number of distinct subjects of one log.
pub const MAX_SUBJECTS: usize = 256;

/// The failures of the subjects of one kind of event.
#[derive(Debug, Default)]
pub struct RepeatLog {
    /// The number of subjects whose last line reported a failure. Read before the lock by callers that report success.
    failing: AtomicUsize,
    subjects: Mutex<Subjects>,
}

/// A line to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// The number of unlogged failures since the last line. `None` for zero, which log fields omit.
    pub repeats: Option<u64>,
}

#[derive(Debug, Default)]
struct Subjects {
    known: BTreeMap<u64, Failures>,
    /// All subjects without their own entry.
    others: Option<Failures>,
}

#[derive(Debug, Default)]
struct Failures {
    /// `None` before the first line.
    last_line: Option<Instant>,
    left_out: u64,
    /// True if the last line reported a failure.
    is_shown: bool,
}

impl RepeatLog {
    /// A log without failures.
    pub const fn new() -> Self {
        let subjects = Subjects { known: BTreeMap::new(), others: None };
        Self { failing: AtomicUsize::new(0), subjects: Mutex::new(subjects) }
    }

    /// Counts a failure of `subject`. Returns the line, if one is due.
    pub fn failed(&self, subject: impl Display) -> Option<LogLine> {
        let (key, now) = (key(subject), Instant::now());
        let mut subjects = self.subjects.lock();
        let due = subjects.at(key, now).fail(now);
        self.count_failing(&subjects);
        due
    }

    /// Records a success of `subject`. Returns the line of its recovery, if one is due.
    ///
    /// Cost: one atomic read while no subject fails.
    pub fn worked(&self, subject: impl Display) -> Option<LogLine> {
        if self.failing.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let key = key(subject);
        let mut subjects = self.subjects.lock();
        let failures = subjects.known.get_mut(&key)?;
        let due = std::mem::take(&mut failures.is_shown).then(|| failures.take_line());
        self.count_failing(&subjects);
        due
    }

    fn count_failing(&self, subjects: &Subjects) {
        let failing = subjects.known.values().filter(|failures| failures.is_shown).count();
        self.failing.store(failing, Ordering::Relaxed);
    }
}

impl Subjects {
    /// The failures of a subject, or of all subjects without their own entry.
    fn at(&mut self, key: u64, now: Instant) -> &mut Failures {
        let is_known = self.known.contains_key(&key);
        if !is_known && self.known.len() >= MAX_SUBJECTS {
            self.known.retain(|_, failures| !failures.is_over(now));
        }
        if is_known || self.known.len() < MAX_SUBJECTS {
            return self.known.entry(key).or_default();
        }
        self.others.get_or_insert_default()
    }
}

impl Failures {
    fn is_over(&self, now: Instant) -> bool {
        self.last_line.is_none_or(|last| now.saturating_duration_since(last) >= REPEAT_INTERVAL)
    }

    fn fail(&mut self, now: Instant) -> Option<LogLine> {
        if !self.is_over(now) {
            self.left_out = self.left_out.saturating_add(1);
            return None;
        }
        (self.last_line, self.is_shown) = (Some(now), true);
        Some(self.take_line())
    }

    fn take_line(&mut self) -> LogLine {
        let left_out = std::mem::take(&mut self.left_out);
        LogLine { repeats: (left_out > 0).then_some(left_out) }
    }
}

/// Hashes the displayed form of a subject, without allocating the text.
fn key(subject: impl Display) -> u64 {
    struct Hashed(DefaultHasher);
    impl fmt::Write for Hashed {
        fn write_str(&mut self, part: &str) -> fmt::Result {
            self.0.write(part.as_bytes());
            Ok(())
        }
    }
    let mut hashed = Hashed(DefaultHasher::new());
    // Hashing can't fail. A subject whose `Display` fails is counted by its output so far.
    let _ = write!(hashed, "{subject}");
    hashed.0.finish()
}

/// Logs a warning about a repeatable failure, at most once a minute for each `subject` at this code location. The field
/// `repeats` has the number of unlogged failures.
#[macro_export]
macro_rules! warn_repeated {
    ($subject:expr; $($line:tt)+) => {{
        static FAILURES: $crate::RepeatLog = $crate::RepeatLog::new();
        if let Some(due) = FAILURES.failed($subject) {
            ::tracing::warn!(repeats = due.repeats, $($line)+);
        }
    }};
}

/// Logs a repeatable error, as [`warn_repeated!`] does.
#[macro_export]
macro_rules! error_repeated {
    ($subject:expr; $($line:tt)+) => {{
        static FAILURES: $crate::RepeatLog = $crate::RepeatLog::new();
        if let Some(due) = FAILURES.failed($subject) {
            ::tracing::error!(repeats = due.repeats, $($line)+);
        }
    }};
}

/// Logs repeatable information, as [`warn_repeated!`] does.
#[macro_export]
macro_rules! info_repeated {
    ($subject:expr; $($line:tt)+) => {{
        static EVENTS: $crate::RepeatLog = $crate::RepeatLog::new();
        if let Some(due) = EVENTS.failed($subject) {
            ::tracing::info!(repeats = due.repeats, $($line)+);
        }
    }};
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn line(repeats: u64) -> Option<LogLine> {
        Some(LogLine { repeats: (repeats > 0).then_some(repeats) })
    }

    #[tokio::test(start_paused = true)]
    async fn repeated_failures_share_one_line_per_minute() {
        let log = RepeatLog::new();
        assert_eq!(log.failed("a"), line(0));
        for _ in 0..200 {
            assert_eq!(log.failed("a"), None);
        }
        assert_eq!(log.failed("b"), line(0), "another subject has lines of its own");
        tokio::time::advance(REPEAT_INTERVAL - SECOND).await;
        assert_eq!(log.failed("a"), None);
        tokio::time::advance(SECOND).await;
        assert_eq!(log.failed("a"), line(201));
        assert_eq!(log.failed("a"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_recovery_gets_a_line_where_a_failure_had_one() {
        let log = RepeatLog::new();
        assert_eq!(log.worked("a"), None);
        assert_eq!((log.failed("a"), log.failed("a")), (line(0), None));
        assert_eq!((log.worked("b"), log.worked("a"), log.worked("a")), (None, line(1), None));
        // A failure that alternates with successes gets two lines a minute.
        for _ in 0..100 {
            assert_eq!((log.failed("a"), log.worked("a")), (None, None));
        }
        tokio::time::advance(REPEAT_INTERVAL).await;
        assert_eq!((log.failed("a"), log.worked("a")), (line(100), line(0)));
    }

    #[tokio::test(start_paused = true)]
    async fn subjects_are_bounded_and_those_in_excess_share_one_place() {
        let log = RepeatLog::new();
        let lines = (0..10 * MAX_SUBJECTS).filter(|number| log.failed(number).is_some()).count();
        assert_eq!(lines, MAX_SUBJECTS + 1);
        assert_eq!(log.subjects.lock().known.len(), MAX_SUBJECTS);
        tokio::time::advance(REPEAT_INTERVAL).await;
        assert_eq!(log.failed("late"), line(0), "places of old failures are given to new subjects");
        assert_eq!(log.subjects.lock().known.len(), 1);
    }

    #[test]
    fn a_log_needs_no_runtime() {
        let log = RepeatLog::new();
        assert_eq!((log.failed("a"), log.failed("a"), log.worked("a")), (line(0), None, line(1)));
    }
}
