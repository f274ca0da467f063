//! The progress of a long walk: a bar on a terminal, and nothing where there is none.
//!
//! It stands on standard error, so that it never mixes with the answer.

use std::io::{self, IsTerminal as _, Write as _};

/// How many characters the bar has.
const WIDTH: u64 = 30;

/// A bar.
#[derive(Default)]
pub(crate) struct Progress {
    is_shown: bool,
}

impl Progress {
    /// Shows how many of all have come.
    pub(crate) fn show(&mut self, seen: u64, total: u64) {
        if io::stderr().is_terminal() {
            self.is_shown = true;
            // Back to the beginning of the line, what is there erased.
            let _lost = write!(io::stderr().lock(), "\r\x1b[2K{}", bar(seen, total));
        }
    }

    /// Takes the bar away, so that lines can be printed.
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            let _lost = write!(io::stderr().lock(), "\r\x1b[2K");
        }
    }
}

fn bar(seen: u64, total: u64) -> String {
    let done = seen.min(total).saturating_mul(WIDTH) / total.max(1);
    let (full, rest) = (usize::try_from(done).unwrap_or(0), usize::try_from(WIDTH - done).unwrap_or(0));
    format!("[{}{}] {seen} of {total}", "#".repeat(full), "-".repeat(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_full_as_the_walk_is_far() {
        assert_eq!(bar(0, 10), format!("[{}] 0 of 10", "-".repeat(30)));
        assert_eq!(bar(5, 10), format!("[{}{}] 5 of 10", "#".repeat(15), "-".repeat(15)));
        assert_eq!(bar(12, 10), format!("[{}] 12 of 10", "#".repeat(30)));
        assert_eq!(bar(0, 0), format!("[{}] 0 of 0", "-".repeat(30)));
    }
}
