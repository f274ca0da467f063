//! Runs other programs: prints the command line, and passes their output through.
//!
//! Standard input is closed for every child, so that no step can wait for input.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

/// The most lines of output that are buffered.
const LINES: usize = 1024;
/// The time without output, after a command has ended, that counts as the end of its output.
const QUIET: Duration = Duration::from_secs(1);
/// The longest time without a line of output. The longest compilation of one crate on a slow machine takes less.
const SILENCE: Duration = Duration::from_mins(20);

/// The cargo that started xtask, so that a chosen toolchain is kept.
pub(crate) fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Runs the command and shows its output. Returns `Ok(false)` when it ran and failed.
pub(crate) fn shown(command: &mut Command) -> Result<bool> {
    eprintln!("+ {}", line(command));
    let status = command.stdin(Stdio::null()).status().with_context(|| format!("cannot start {}", line(command)))?;
    Ok(status.success())
}

/// Runs the command, shows its output and reads it line by line. Returns `Ok(false)` when it ran and failed.
///
/// # Errors
/// The command cannot be started, or has printed nothing for 20 minutes. In that case it is killed with all of its
/// descendants.
pub(crate) fn read(command: &mut Command, note: impl FnMut(&str)) -> Result<bool> {
    read_within(command, SILENCE, note)
}

fn read_within(command: &mut Command, silence: Duration, mut note: impl FnMut(&str)) -> Result<bool> {
    eprintln!("+ {}", line(command));
    let (output, writer) = std::io::pipe().context("cannot make a pipe")?;
    command.stdin(Stdio::null()).stdout(writer.try_clone().context("cannot share a pipe")?).stderr(writer);
    let mut child = command.spawn().with_context(|| format!("cannot start {}", line(command)))?;
    // This process must not hold the pipe's writing end, or its reader would never finish.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let (sender, lines) = mpsc::sync_channel(LINES);
    std::thread::spawn(move || {
        BufReader::new(output).split(b'\n').map_while(Result::ok).try_for_each(|line| sender.send(line))
    });
    let (mut shown, mut heard) = (std::io::stdout(), Instant::now());
    loop {
        match lines.recv_timeout(QUIET) {
            Ok(line) => {
                let line = String::from_utf8_lossy(&line);
                writeln!(shown, "{line}").context("cannot show the output")?;
                note(&line);
                heard = Instant::now();
            }
            Err(RecvTimeoutError::Timeout) if heard.elapsed() >= silence => {
                kill(child.id());
                bail!("{} has printed nothing for {silence:?}, and was killed", self::line(command));
            }
            // A process that the command left behind may hold the pipe for as long as it runs.
            Err(RecvTimeoutError::Timeout) if child.try_wait().context("cannot wait for the command")?.is_none() => {}
            Err(_) => return Ok(child.wait().context("cannot wait for the command")?.success()),
        }
    }
}

/// Runs the command and returns its output, or fails with it.
pub(crate) fn output(command: &mut Command) -> Result<Vec<u8>> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot start {}", line(command)))?;
    if !output.status.success() {
        bail!("{} failed ({}):\n{}", line(command), output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(output.stdout)
}

/// The exit code for a child's success or failure.
pub(crate) fn code(success: bool) -> ExitCode {
    if success { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Kills a process and its descendants, as far as Linux lists them.
fn kill(process: u32) {
    let mut family = vec![process.to_string()];
    let mut next = 0;
    while let Some(parent) = family.get(next) {
        let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
        family.extend(children.unwrap_or_default().split_whitespace().map(str::to_owned));
        next += 1;
    }
    // A process that has ended meanwhile needs no signal.
    let _ = Command::new("kill").arg("-KILL").args(&family).stderr(Stdio::null()).status();
}

fn line(command: &Command) -> String {
    let program = std::path::Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    std::iter::once(program).chain(command.get_args()).map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_command_is_killed_with_its_children() {
        let check = |script: &str| {
            let mut lines = Vec::new();
            let mut command = Command::new("sh");
            let ended =
                read_within(command.args(["-c", script]), Duration::from_secs(2), |line| lines.push(line.to_owned()));
            (ended.map_err(|error| error.to_string()), lines.join(" "))
        };
        assert_eq!(check("echo a; echo b >&2; exit 1"), (Ok(false), "a b".to_owned()));
        let (ended, lines) = check("sleep 1000 & echo $!; wait");
        assert!(ended.unwrap_err().contains("has printed nothing for 2s"));
        let lives = || std::fs::read_to_string(format!("/proc/{lines}/stat")).is_ok_and(|stat| !stat.contains(" Z "));
        let begun = Instant::now();
        while lives() && begun.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(!lives(), "{lines}");
    }
}
