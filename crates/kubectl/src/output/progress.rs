//! The progress of a long walk: a bar on a terminal, otherwise nothing.
//!
//! The progress bar is written to standard error, so that it never mixes with the result.

use std::io::{self, IsTerminal as _, Write as _};

/// The width of the bar in characters.
const WIDTH: u64 = 30;

/// A progress bar.
#[derive(Default)]
pub(crate) struct Progress {
    is_shown: bool,
}

impl Progress {
    /// Shows the progress.
    pub(crate) fn show(&mut self, seen: u64, total: u64) {
        if io::stderr().is_terminal() {
            self.is_shown = true;
            // Returns to the start of the line and erases it.
            let _lost = write!(io::stderr().lock(), "\r\x1b[2K{}", bar(seen, total));
        }
    }

    /// Erases the bar, so that lines can be printed.
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
