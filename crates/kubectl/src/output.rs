//! Output: the answer on standard output, and what is said about it on standard error.
//!
//! An answer that can't be written is a failure, a note that can't be is lost.

mod documents;
mod progress;
mod table;

use std::fmt;
use std::io::{self, Write as _};

use anyhow::Context as _;

pub(crate) use self::documents::Documents;
pub(crate) use self::progress::Progress;
pub(crate) use self::table::Table;

/// Prints a line of the answer.
///
/// # Errors
/// When it can't be written.
pub(crate) fn answer(line: impl fmt::Display) -> anyhow::Result<()> {
    writeln!(io::stdout().lock(), "{line}").context("writing to standard output")
}

/// Says something about the answer. What can't be said is lost.
pub(crate) fn note(line: impl fmt::Display) {
    let _lost = writeln!(io::stderr().lock(), "{line}");
}
