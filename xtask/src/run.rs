//! Running other programs: the command line is printed before it starts, and its output goes straight through.
//!
//! Standard input is closed for every child, so that no step can wait for an answer that will not come.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

/// How many lines of output are kept that were not shown yet.
const LINES: usize = 1024;
/// How long the output of a command that has ended may be silent before it is taken to be complete.
const QUIET: Duration = Duration::from_secs(1);

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

/// Runs the command with its output shown and read line by line; `Ok(false)` when it ran and failed.
pub(crate) fn read(command: &mut Command, mut note: impl FnMut(&str)) -> Result<bool> {
    eprintln!("+ {}", line(command));
    let (output, writer) = std::io::pipe().context("cannot make a pipe")?;
    command.stdin(Stdio::null()).stdout(writer.try_clone().context("cannot share a pipe")?).stderr(writer);
    let mut child = command.spawn().with_context(|| format!("cannot start {}", line(command)))?;
    // The pipe must have no end here, for its reader would wait for that.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let (sender, lines) = mpsc::sync_channel(LINES);
    std::thread::spawn(move || {
        BufReader::new(output).split(b'\n').map_while(Result::ok).try_for_each(|line| sender.send(line))
    });
    let mut shown = std::io::stdout();
    loop {
        match lines.recv_timeout(QUIET) {
            Ok(line) => {
                let line = String::from_utf8_lossy(&line);
                writeln!(shown, "{line}").context("cannot show the output")?;
                note(&line);
            }
            // Something that the command has left behind may hold the pipe for as long as it runs.
            Err(RecvTimeoutError::Timeout) if child.try_wait().context("cannot wait for the command")?.is_none() => {}
            Err(_) => return Ok(child.wait().context("cannot wait for the command")?.success()),
        }
    }
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
