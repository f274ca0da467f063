//! The progress of a long command on standard error: a bar with the rate and the time left on a terminal, otherwise one
//! JSON object a line.
//!
//! Elsewhere than on a terminal, each stage ends with a line, so that a short command has few lines.

use std::fmt;
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::output::{note, note_over};

/// The interval of updates on a terminal.
const TERMINAL_INTERVAL: Duration = Duration::from_millis(100);
/// The interval of lines elsewhere.
const LINE_INTERVAL: Duration = Duration::from_secs(1);
/// The width of the bar in characters.
const WIDTH: u64 = 20;

/// The unit that a stage counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Bytes,
    Objects,
    Versions,
}

impl Unit {
    const fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Objects => "objects",
            Self::Versions => "versions",
        }
    }
}

/// A state of the work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) stage: &'static str,
    pub(crate) unit: Unit,
    pub(crate) done: u64,
    pub(crate) total: u64,
}

/// Reports the steps of one command.
pub(crate) struct Progress {
    command: &'static str,
    is_terminal: bool,
    stage: &'static str,
    /// The start of the stage.
    begun: Instant,
    reported: Instant,
    is_complete: bool,
    is_shown: bool,
}

impl Progress {
    pub(crate) fn new(command: &'static str) -> Self {
        let now = Instant::now();
        let is_terminal = std::io::stderr().is_terminal();
        Self { command, is_terminal, stage: "", begun: now, reported: now, is_complete: false, is_shown: false }
    }

    /// Reports a step if the interval has passed or the stage is complete.
    pub(crate) fn step(&mut self, step: Step) {
        self.step_waiting(step, None);
    }

    /// As [`step`](Self::step), with the condition for which the work waits.
    pub(crate) fn step_waiting(&mut self, step: Step, waits_for: Option<&str>) {
        let now = Instant::now();
        if self.stage != step.stage {
            (self.stage, self.begun, self.reported, self.is_complete) = (step.stage, now, now, false);
        }
        let interval = if self.is_terminal { TERMINAL_INTERVAL } else { LINE_INTERVAL };
        let was_complete = std::mem::replace(&mut self.is_complete, step.done >= step.total);
        let is_last = self.is_complete && !was_complete && !self.is_terminal;
        if now - self.reported < interval && !is_last {
            return;
        }
        self.reported = now;
        let pace = Pace::new(&step, now - self.begun);
        if self.is_terminal {
            self.is_shown = true;
            note_over(bar(&step, &pace, waits_for));
        } else {
            note(line(self.command, &step, &pace, waits_for));
        }
    }

    /// Removes the bar, so that the result can be printed.
    pub(crate) fn end(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            note_over("");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.end();
    }
}

/// The rate of a stage, and the time left. Both are unknown at first.
struct Pace {
    per_second: Option<u64>,
    seconds_left: Option<u64>,
}

impl Pace {
    fn new(step: &Step, elapsed: Duration) -> Self {
        let rate = step.done as f64 / elapsed.as_secs_f64();
        if !rate.is_finite() || rate <= 0.0 {
            return Self { per_second: None, seconds_left: None };
        }
        let left = step.total.saturating_sub(step.done) as f64 / rate;
        Self { per_second: Some(rate as u64), seconds_left: Some(left.ceil() as u64) }
    }
}

/// The line for a terminal, shorter than 80 characters without `waits_for`.
fn bar(step: &Step, pace: &Pace, waits_for: Option<&str>) -> String {
    let full = step.done.min(step.total).saturating_mul(WIDTH) / step.total.max(1);
    let cells: String = (0..WIDTH).map(|cell| if cell < full { '#' } else { '-' }).collect();
    let amount = |number| Amount(number, step.unit);
    let mut text = format!("{} [{cells}] {} of {}", step.stage, amount(step.done), amount(step.total));
    if let Some(rate) = pace.per_second {
        text.push_str(&format!(", {}/s", amount(rate)));
    }
    if let Some(left) = pace.seconds_left {
        text.push_str(&format!(", {} left", Left(left)));
    }
    if let Some(condition) = waits_for {
        text.push_str(&format!("; {condition}"));
    }
    text
}

/// The line for a program.
fn line(command: &str, step: &Step, pace: &Pace, waits_for: Option<&str>) -> String {
    let mut line = json!({
        "command": command,
        "stage": step.stage,
        "unit": step.unit.name(),
        "done": step.done,
        "total": step.total,
        "perSecond": pace.per_second,
        "secondsLeft": pace.seconds_left,
    });
    if let Some(condition) = waits_for {
        line["waitsFor"] = condition.into();
    }
    line.to_string()
}

/// A number of bytes in the largest fitting unit.
pub(crate) struct Bytes(pub(crate) u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes @ 0..1_000_000 => write!(f, "{:.1} kB", bytes as f64 / 1e3),
            bytes @ 1_000_000..1_000_000_000 => write!(f, "{:.1} MB", bytes as f64 / 1e6),
            bytes => write!(f, "{:.2} GB", bytes as f64 / 1e9),
        }
    }
}

struct Amount(u64, Unit);

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            Unit::Bytes => Bytes(self.0).fmt(f),
            Unit::Objects | Unit::Versions => write!(f, "{}", self.0),
        }
    }
}

/// A number of seconds.
struct Left(u64);

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            seconds @ 0..120 => write!(f, "{seconds} s"),
            seconds @ 120..7200 => write!(f, "{} min", seconds / 60),
            seconds => write!(f, "{} h", seconds / 3600),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALF: Step = Step { stage: "copying", unit: Unit::Bytes, done: 50_000_000, total: 100_000_000 };

    #[test]
    fn a_bar_shows_the_rate_and_the_time_left() {
        let pace = Pace::new(&HALF, Duration::from_secs(2));
        let text = bar(&HALF, &pace, None);
        assert_eq!(text, "copying [##########----------] 50.0 MB of 100.0 MB, 25.0 MB/s, 2 s left");
        let empty = Step { done: 0, total: 0, unit: Unit::Objects, ..HALF };
        assert_eq!(
            bar(&empty, &Pace::new(&empty, Duration::ZERO), None),
            format!("copying [{}] 0 of 0", "-".repeat(20))
        );
        let long = Step { total: 4_000_000_000_000, ..HALF };
        let text = bar(&long, &Pace::new(&long, Duration::from_secs(1)), None);
        assert!(text.ends_with("22 h left") && text.len() < 80, "{text}");
        assert!(bar(&HALF, &pace, Some("a peer is down")).ends_with("2 s left; a peer is down"));
    }

    #[test]
    fn a_line_is_an_object_with_the_same_numbers() {
        let text = line("backup", &HALF, &Pace::new(&HALF, Duration::from_secs(2)), Some("a peer"));
        let expected = json!({
            "command": "backup", "stage": "copying", "unit": "bytes", "done": 50_000_000, "total": 100_000_000,
            "perSecond": 25_000_000, "secondsLeft": 2, "waitsFor": "a peer",
        });
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), expected);
    }
}
