//! Runs other programs with closed standard input, and shows their output if they fail.
//!
//! No step waits for input: packages are made on machines without a terminal.

use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

/// Runs the command, with its output shown.
///
/// # Errors
/// When it can't be started, or fails.
pub(crate) fn shown(command: &mut Command) -> Result<()> {
    let line = line(command);
    eprintln!("+ {line}");
    let status = command.stdin(Stdio::null()).status().with_context(|| format!("starting {line}"))?;
    if !status.success() {
        bail!("{line} failed: {status}");
    }
    Ok(())
}

/// The standard output of a command.
///
/// # Errors
/// When it can't be started, or fails: with its standard error.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let line = line(command);
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("starting {line}"))?;
    if !output.status.success() {
        bail!("{line} failed: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns true if a program of this name is on the path.
pub(crate) fn has(program: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths).any(|directory| directory.join(program).is_file())
}

fn line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(std::ffi::OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}
