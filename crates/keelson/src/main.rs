//! The `keelson` command: a Kubernetes API server, and the tools for its store.

mod args;
mod serve;
mod storage;

use clap::Parser as _;

use crate::args::{Args, Command};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> anyhow::Result<()> {
    match Args::parse().command {
        Command::Serve(serve) => serve::run(serve),
        Command::Storage(storage) => storage::run(storage),
    }
}
