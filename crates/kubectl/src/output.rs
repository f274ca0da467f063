//! Output: results on standard output, notes on standard error.
//!
//! Control characters of objects and errors are escaped. A result that can't be written is a failure; a note that can't
//! be written is lost.

mod documents;
mod progress;
mod table;

use std::fmt;
use std::io::{self, Write as _};

use anyhow::Context as _;
use keelson_meta::control_characters::visible;

pub(crate) use self::documents::{Documents, line};
pub(crate) use self::progress::Progress;
pub(crate) use self::table::Table;

/// Prints a line of the result.
///
/// # Errors
/// It can't be written.
pub(crate) fn answer(line: impl fmt::Display) -> anyhow::Result<()> {
    print(&visible(&line.to_string()))
}

/// Prints a note on standard error.
pub(crate) fn note(line: impl fmt::Display) {
    let _lost = writeln!(io::stderr().lock(), "{}", visible(&line.to_string()));
}

fn print(text: &str) -> anyhow::Result<()> {
    writeln!(io::stdout().lock(), "{text}").context("writing to standard output")
}
