//! Output of the process: its log, and the lines of commands.
//!
//! A server may outlive the readers of its log. If a line cannot be written, to a full disk or a closed pipe, it is
//! lost and the server continues. So nothing here panics. A command whose result cannot be written fails.

use std::fmt;
use std::io::{self, Write};

use anyhow::Context as _;
use keelson_meta::control_characters::{escaped_json, visible};

/// Standard error, for the log. Writes never fail; a line that cannot be written is lost.
pub(crate) struct Log;

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes).map(|()| bytes.len())
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        // One lock for each line, so that lines of two threads do not mix.
        let _ = io::stderr().lock().write_all(bytes);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Standard error for a log in JSON, in which each write is a line. Escapes the control characters that the format
/// leaves unescaped.
pub(crate) struct JsonLog;

impl Write for JsonLog {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes).map(|()| bytes.len())
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        Log.write_all(escaped_json(&String::from_utf8_lossy(bytes)).as_bytes())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes a line to standard error.
pub(crate) fn note(line: impl fmt::Display) {
    let _ = Log.write_all(format!("{}\n", visible(&line.to_string())).as_bytes());
}

/// Writes a line to standard error that replaces the last one on a terminal.
pub(crate) fn note_over(line: impl fmt::Display) {
    // Moves the cursor to the start of the line and erases the line.
    let _ = Log.write_all(format!("\r\x1b[2K{}", visible(&line.to_string())).as_bytes());
}

/// Writes a line to standard output and ignores a failure.
pub(crate) fn announce(line: impl fmt::Display) {
    let _ = print(line);
}

/// Writes the result of a command to standard output.
///
/// # Errors
/// It cannot be written.
pub(crate) fn answer(line: impl fmt::Display) -> anyhow::Result<()> {
    print(line).context("writing to standard output")
}

fn print(line: impl fmt::Display) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", visible(&line.to_string()))?;
    out.flush()
}
