//! `kubectl keelson`: queries of a keelson server as a command, similar to `kubectl get`.
//!
//! The plugin uses only the public API. It reads discovery, walks through the result in chunks of one snapshot, and
//! prints as kubectl does: results to standard output, notes to standard error.

mod args;
mod client;
mod output;
mod question;
mod resources;
mod run;
mod walk;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};

use crate::args::{Args, Command};

/// The definition of the command line, for its manual.
pub fn definition() -> clap::Command {
    Args::command()
}

/// Runs the command with the arguments of the process.
pub fn main() -> ExitCode {
    let get = match Args::try_parse() {
        Ok(Args { command: Command::Get(get) }) => get,
        Err(error) if error.use_stderr() => {
            // The message may quote control characters of the command line.
            output::note(error.to_string().trim_end());
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
        Err(help) => help.exit(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let done = runtime.map_err(anyhow::Error::from).and_then(|runtime| runtime.block_on(run::get(&get)));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::note(format_args!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
