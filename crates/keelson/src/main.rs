//! The `keelson` command: a Kubernetes API server, and the tools for its store.
//!
//! It parses the command line and hands over; everything that a server is made of is in `keelson-server`.

mod args;
mod descriptors;
mod serve;
mod storage;

use std::process::ExitCode;

use clap::Parser as _;

use crate::args::{Args, Command};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let done = match Args::parse().command {
        Command::Serve(serve) => serve::run(*serve),
        Command::Storage(storage) => storage::run(storage),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            ExitCode::FAILURE
        }
    }
}

/// One line with all causes, and no backtrace: what went wrong here is for operators to mend.
#[expect(clippy::print_stderr, reason = "this is what the user who gave the command reads")]
fn complain(error: &anyhow::Error) {
    eprintln!("keelson: {error:#}");
}
