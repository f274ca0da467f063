//! Running other programs: the command line is printed before it starts, and its output goes straight through.
//!
//! Standard input is closed for every child, so that no step can wait for an answer that will not come.

use std::ffi::OsStr;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, Result, bail};

/// The cargo that started us, so that a chosen toolchain stays chosen.
pub(crate) fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Runs the command with its output shown; `Ok(false)` when it ran and failed.
pub(crate) fn shown(command: &mut Command) -> Result<bool> {
    eprintln!("+ {}", line(command));
    let status = command.stdin(Stdio::null()).status().with_context(|| format!("cannot start {}", line(command)))?;
    Ok(status.success())
}

/// Runs the command with its output kept; fails with that output when it fails.
pub(crate) fn output(command: &mut Command) -> Result<Vec<u8>> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot start {}", line(command)))?;
    if !output.status.success() {
        bail!("{} failed ({}):\n{}", line(command), output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(output.stdout)
}

/// The exit code that stands for a child's success or failure.
pub(crate) fn code(success: bool) -> ExitCode {
    if success { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn line(command: &Command) -> String {
    let program = std::path::Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    std::iter::once(program).chain(command.get_args()).map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}
