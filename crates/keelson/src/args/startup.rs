//! Flags of `serve` for the program that starts it: a test, a script or a supervisor.
//!
//! Each changes the start or the end of the process, and none of them what the server does in between.

use std::path::PathBuf;

use clap::{Args as ClapArgs, ValueEnum};

use super::kinds::switch;

/// Settings of the start and the end of the process.
#[derive(ClapArgs)]
pub(crate) struct Startup {
    /// Keep nothing: objects stay in memory; keys and the kubeconfig go to a temporary directory that is removed at the end.
    #[arg(long, env = "KEELSON_EPHEMERAL", conflicts_with_all = ["store", "data_dir"])]
    pub(crate) ephemeral: bool,
    /// The largest number of forks that an ephemeral server runs at once. Its owner gets them at the socket that the line
    /// of --output json names. 0 opens no socket.
    #[arg(long, env = "KEELSON_MAX_FORKS", value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(..=1000))]
    pub(crate) max_forks: u16,
    /// A file that is written with the URL of the server as soon as it is ready, in one step, and removed when the server stops.
    #[arg(long, env = "KEELSON_READY_FILE", value_name = "PATH")]
    pub(crate) ready_file: Option<PathBuf>,
    /// The form of standard output. With json it is one line when the server is ready: an object with url, kubeconfig, pid and version.
    #[arg(long, env = "KEELSON_OUTPUT", value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,
    /// Stop when the parent process ends, or the process with this PID. The PID covers a parent that ends before the
    /// server first looks.
    #[arg(
        long,
        env = "KEELSON_EXIT_WITH_PARENT",
        value_name = "PID",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_parser = watched_process
    )]
    pub(crate) exit_with_parent: Option<WatchedProcess>,
    /// Do not wait until data is on the disk, for tests. A crash of the machine may damage the embedded store and lose
    /// new keys. A crash of the server does not.
    #[arg(long, env = "KEELSON_UNSAFE_NO_FSYNC")]
    pub(crate) unsafe_no_fsync: bool,
}

/// The form of standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// Lines for people.
    Text,
    /// One JSON object a line.
    Json,
    /// Prints nothing, for a server that replaces another program.
    #[value(skip)]
    Silent,
}

/// The process whose end stops the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchedProcess {
    /// None.
    Nothing,
    /// The parent at the time of the start.
    Parent,
    /// The process with this PID.
    Pid(i32),
}

/// Reads a switch or a PID. `1` is a switch: every process ends with process 1.
fn watched_process(text: &str) -> Result<WatchedProcess, String> {
    match (switch(text), text.parse::<i32>()) {
        (Ok(true), _) => Ok(WatchedProcess::Parent),
        (Ok(false), _) => Ok(WatchedProcess::Nothing),
        (Err(_), Ok(pid)) if pid > 0 => Ok(WatchedProcess::Pid(pid)),
        (Err(_), _) => Err(format!("{text:?} is neither the PID of a process nor true or false")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watched_process_is_the_parent_or_a_pid() {
        assert_eq!(watched_process("true"), Ok(WatchedProcess::Parent));
        assert_eq!(watched_process("4711"), Ok(WatchedProcess::Pid(4711)));
        assert_eq!(watched_process("false"), Ok(WatchedProcess::Nothing));
        for bad in ["-3", "parent", "4711x", "99999999999"] {
            assert!(watched_process(bad).is_err(), "{bad}");
        }
    }
}
