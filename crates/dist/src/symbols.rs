//! The oldest C library that a program runs on, read out of the versions of the symbols that it imports.
//!
//! objdump lists the symbols. A program runs on every C library that is at least as new as its newest symbol.

use std::fmt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::run;

/// A version of the GNU C library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Glibc(pub(crate) u32, pub(crate) u32);

/// The oldest supported version.
pub(crate) const OLDEST: Glibc = Glibc(2, 28);

impl fmt::Display for Glibc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// The oldest version that has all symbols of a program.
///
/// # Errors
/// When objdump is missing, or the program is linked statically.
pub(crate) fn needed(program: &Path) -> Result<Glibc> {
    let symbols = run::output(Command::new("objdump").arg("-T").arg(program)).context("objdump is in binutils")?;
    newest(&symbols).with_context(|| format!("{} imports nothing of the C library", program.display()))
}

/// The libraries that a program loads.
///
/// # Errors
/// When objdump is missing.
pub(crate) fn libraries(program: &Path) -> Result<Vec<String>> {
    let headers = run::output(Command::new("objdump").arg("-p").arg(program))?;
    let needed = headers.lines().filter_map(|line| line.trim().strip_prefix("NEEDED"));
    Ok(needed.map(|name| name.trim().to_owned()).collect())
}

fn newest(symbols: &str) -> Option<Glibc> {
    symbols.split("GLIBC_").skip(1).filter_map(version).max()
}

fn version(text: &str) -> Option<Glibc> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let mut numbers = text[..end].split('.').map(str::parse);
    Some(Glibc(numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_symbol_decides() {
        let symbols = "0000 DF *UND* 0000 (GLIBC_2.2.5) read\n0000 DF *UND* 0000 (GLIBC_2.28) statx\n\
                       0000 DF *UND* 0000 (GLIBC_2.17) clock_gettime\n0000 DF *UND* 0000 (GLIBC_PRIVATE) x\n";
        assert_eq!(newest(symbols), Some(Glibc(2, 28)));
        assert_eq!(newest("no symbols"), None);
        assert!(Glibc(2, 9) < OLDEST && OLDEST < Glibc(2, 34));
    }
}
