//! `keelson-bench`: measures a keelson server from outside, over the wire, on data that looks like a cluster's.
//!
//! It starts the server as a child on a fresh data directory and fills it, so that what is measured is what a user gets:
//! TLS, durable writes, the real store. Client and server share the machine, so the client is kept cheap: bodies are
//! counted and dropped as they come, and nothing is parsed while a clock runs.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool talks on its streams")]

mod aggregated;
mod bench;
mod figure;
mod load;
mod machine;
mod pods;
mod process;
mod report;
mod rows;
mod server;
mod store;
mod watchers;
mod wire;

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Parser;

use crate::bench::Bench;
use crate::rows::Rows;
use crate::store::BenchStore;

// The client shares the cores with what it measures.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Measures a keelson server.
#[derive(Debug, Parser)]
#[command(name = "keelson-bench")]
struct Options {
    /// The server to start.
    #[arg(long, value_name = "FILE")]
    server: PathBuf,
    /// A program that measures what one object costs, for the rows of that kind; may be repeated.
    #[arg(long, value_name = "FILE")]
    costs: Vec<PathBuf>,
    /// An argument for the server's `serve`; may be repeated.
    #[arg(long = "server-arg", value_name = "ARG", allow_hyphen_values = true)]
    server_args: Vec<String>,
    /// The store to measure: `postgres` or `etcd` for private ones, which are started for it and keep their data where temporary
    /// files are (TMPDIR), or the URL of an empty one. The embedded store otherwise.
    #[arg(long, value_name = "STORE")]
    store: Option<String>,
    /// How many pods the large collection has. The figures to reach are meant for the default.
    #[arg(long, default_value_t = FULL_SIZE)]
    pods: usize,
    /// Only these rows (names as in the first column; `help` prints them all).
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    rows: Vec<String>,
    /// How often a row is measured; its median counts.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// How many writes precede the start under load, all within the window of history.
    #[arg(long, default_value_t = 100_000)]
    writes: usize,
    /// Where the server keeps its data; must be empty or absent. A temporary directory otherwise.
    #[arg(long, value_name = "DIRECTORY")]
    data_dir: Option<PathBuf>,
    /// Also write the table to this file, as Markdown with machine and date.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

/// The size of the collection that the figures to reach are stated for.
const FULL_SIZE: usize = 100_000;

fn main() -> Result<()> {
    let options = Options::parse();
    if options.rows.iter().any(|name| name == "help") {
        for row in rows::ALL {
            println!("{:20}{}", row.name, row.what);
        }
        return Ok(());
    }
    // One thread: the server is to have the rest of the machine.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("no async runtime")?;
    runtime.block_on(run(options))
}

async fn run(options: Options) -> Result<()> {
    machine::allow_open_files(rows::MOST_CONNECTIONS)?;
    let store = BenchStore::open(options.store.as_deref())?;
    let rows = Rows::chosen(&options.rows, &store)?;
    let on = store.name();
    let mut bench = Bench::prepare(&options, store)?;
    let measured = rows.measure(&mut bench).await;
    bench.stop().await?;
    let (figures, error) = match measured {
        Ok(figures) => (figures, None),
        // What was measured before a failure is still worth printing.
        Err((figures, error)) => (figures, Some(error)),
    };
    print!("{}", report::text(&figures));
    if let Some(path) = &options.markdown {
        let text = report::markdown(&figures, &machine::describe(), on, options.pods);
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    error.map_or(Ok(()), Err)
}
