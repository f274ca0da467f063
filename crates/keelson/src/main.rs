//! The `keelson` command: a Kubernetes API server, and the tools for its store.
//!
//! It parses the command line and hands over; everything that a server is made of is in `keelson-server`. Under the names
//! `kube-apiserver` and `etcd` it is a drop-in for these programs in tests.

mod args;
mod build;
mod demo;
mod descriptors;
mod doctor;
mod keys;
mod kube_apiserver;
mod kubeconfig;
mod log_fields;
mod manual;
mod memory;
mod output;
mod parent;
mod private_file;
mod ready_file;
mod serve;
mod shared_keys;
mod storage;
mod storage_versions;
mod token;
mod user;

use std::path::PathBuf;
use std::process::ExitCode;

use crate::args::{Args, Command, User};

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
        Command::Storage(storage) => storage::run(storage),
        Command::User(User::Create(settings)) => user::create(&settings),
        Command::User(User::List(settings)) => user::list(&settings),
        Command::Keys(keys) => keys::run(keys),
        Command::Completion { shell } => manual::complete(shell),
        Command::ManPages { directory } => manual::write_pages(&directory),
        Command::Doctor(settings) => doctor::run(&settings),
        Command::Demo(settings) => demo::run(&settings),
        Command::Kubeconfig(settings) => kubeconfig::run(&settings),
        Command::Token(settings) => token::run(&settings),
        Command::KubeApiserver(line) => return kube_apiserver::run(line.arguments),
        Command::Etcd(line) => return keelson_etcd_double::run(line.arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            ExitCode::FAILURE
        }
    }
}

/// Runs the program whose name this one was given, if it is another's.
fn by_name() -> Option<ExitCode> {
    let mut line = std::env::args_os();
    let program = PathBuf::from(line.next()?);
    match program.file_name()?.to_str()? {
        "kube-apiserver" => Some(kube_apiserver::run(line)),
        "etcd" => Some(keelson_etcd_double::run(line)),
        _ => None,
    }
}

/// Help, or what is wrong with the command line, which may quote control characters of it.
fn unread(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        error.exit();
    }
    output::note(error.to_string().trim_end());
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

/// One line with all causes, and no backtrace: what went wrong here is for operators to mend.
fn complain(error: &anyhow::Error) {
    output::note(format_args!("keelson: {}", causes(error)));
}

/// An error and what has caused it, each said once: the text of some errors ends with their cause.
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
    fn a_cause_is_said_once() {
        let twice = anyhow!("os error 2").context("/proc/x: os error 2").context("opening the store");
        assert_eq!(causes(&twice), "opening the store: /proc/x: os error 2");
        let once = anyhow!("os error 2").context("/proc/x");
        assert_eq!(causes(&once), "/proc/x: os error 2");
    }
}
