//! The `keelson` command: a Kubernetes API server, and the tools for its store.
//!
//! The binary parses the command line and calls `keelson-server`, which contains the server. Under the names
//! `kube-apiserver` and `etcd` the executable replaces these programs in tests.

mod args;
mod build;
mod demo;
mod descriptors;
mod doctor;
mod forks;
mod gateway;
mod interrupt;
mod keys;
mod kube_apiserver;
mod kubeconfig;
mod log;
mod log_fields;
mod manual;
mod memory;
mod output;
mod parent;
mod private_file;
mod profiling;
mod progress;
mod ready_file;
mod serve;
mod shared_keys;
mod storage;
mod storage_versions;
mod token;
mod user;
mod verify;

use std::path::PathBuf;
use std::process::ExitCode;

use crate::args::{Args, Command, User};
use crate::interrupt::Interrupted;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    if let Some(code) = by_name() {
        return code;
    }
    let args = match Args::read(std::env::args_os()) {
        Ok(args) => args,
        Err(error) => return unread(&error),
    };
    build::publish();
    let done = match args.command {
        Command::Serve(serve) => serve::run(*serve),
        Command::Gateway(gateway) => gateway::run(*gateway),
        Command::Storage(storage) => storage::run(storage),
        Command::User(User::Create(settings)) => user::create(&settings),
        Command::User(User::List(settings)) => user::list(&settings),
        Command::Keys(keys) => keys::run(keys),
        Command::Completion { shell } => manual::complete(shell),
        Command::ManPages { directory } => manual::write_pages(&directory),
        Command::Doctor(settings) => doctor::run(&settings),
        Command::Demo(settings) => demo::run(&settings),
        Command::Verify(settings) => verify::run(&settings),
        Command::Kubeconfig(settings) => kubeconfig::run(&settings),
        Command::Token(settings) => token::run(&settings),
        Command::KubeApiserver(line) => return kube_apiserver::run(line.arguments),
        Command::Etcd(line) => return keelson_etcd_double::run(line.arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            let interrupted = error.chain().find_map(|cause| cause.downcast_ref::<Interrupted>());
            interrupted.map_or(ExitCode::FAILURE, |interrupted| ExitCode::from(interrupted.code()))
        }
    }
}

/// Runs kube-apiserver or the stand-in for etcd if the executable has that name.
fn by_name() -> Option<ExitCode> {
    let mut line = std::env::args_os();
    let program = PathBuf::from(line.next()?);
    match program.file_name()?.to_str()? {
        "kube-apiserver" => Some(kube_apiserver::run(line)),
        "etcd" => Some(keelson_etcd_double::run(line)),
        _ => None,
    }
}

/// Prints the help, or the error of the command line, and escapes control characters that the error quotes.
fn unread(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        error.exit();
    }
    output::note(error.to_string().trim_end());
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

/// Prints an error with all its causes on one line, without a backtrace, since operators can mend these errors.
fn complain(error: &anyhow::Error) {
    output::note(format_args!("keelson: {}", causes(error)));
}

/// An error and its causes. A cause is omitted if the text before ends with it, as some errors include their cause.
fn causes(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.ends_with(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn repeated_causes_are_printed_once() {
        let twice = anyhow!("os error 2").context("/proc/x: os error 2").context("opening the store");
        assert_eq!(causes(&twice), "opening the store: /proc/x: os error 2");
        let once = anyhow!("os error 2").context("/proc/x");
        assert_eq!(causes(&once), "/proc/x: os error 2");
    }
}
