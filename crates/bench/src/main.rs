//! `keelson-bench`: measures a keelson server over the wire, on data similar to a cluster's.
//!
//! The benchmark starts the server as a child process on a new data directory and fills it. So the measurement includes
//! all that a user gets: TLS, durable writes, the real store. Client and server share the machine, so the client is
//! kept cheap: it counts and drops bodies on arrival, and parses nothing during a measurement.
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

// The client shares the cores with the server.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Measures a keelson server.
#[derive(Debug, Parser)]
#[command(name = "keelson-bench")]
struct Options {
    /// The server to start.
    #[arg(long, value_name = "FILE")]
    server: PathBuf,
    /// A program that measures the cost of one object, for the rows of that kind (repeatable).
    #[arg(long, value_name = "FILE")]
    costs: Vec<PathBuf>,
    /// An argument for the server's `serve` (repeatable).
    #[arg(long = "server-arg", value_name = "ARG", allow_hyphen_values = true)]
    server_args: Vec<String>,
    /// The store to measure: `postgres` or `etcd` for a private one with its data in the temporary directory (TMPDIR),
    /// or the URL of an empty one. The default is the embedded store.
    #[arg(long, value_name = "STORE")]
    store: Option<String>,
    /// The number of pods in the large collection. The goals assume the default.
    #[arg(long, default_value_t = FULL_SIZE)]
    pods: usize,
    /// Only these rows, by the names in the first column (`help` prints all).
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    rows: Vec<String>,
    /// The number of runs of a row, of which the median counts.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// The number of writes before the start under load, all within the history window.
    #[arg(long, default_value_t = 100_000)]
    writes: usize,
    /// The server's data directory, which must be empty or absent. The default is a temporary directory.
    #[arg(long, value_name = "DIRECTORY")]
    data_dir: Option<PathBuf>,
    /// Also write the table as Markdown with machine and date to this file.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

/// The size of the collection that the goals assume.
const FULL_SIZE: usize = 100_000;

fn main() -> Result<()> {
    let options = Options::parse();
    if options.rows.iter().any(|name| name == "help") {
        for row in rows::ALL {
            println!("{:20}{}", row.name, row.what);
        }
        return Ok(());
    }
    // One thread, which leaves the rest of the machine to the server.
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
        // Figures that were measured before a failure are printed too.
        Err((figures, error)) => (figures, Some(error)),
    };
    print!("{}", report::text(&figures));
    if let Some(path) = &options.markdown {
        let text = report::markdown(&figures, &machine::describe(), on, options.pods);
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    error.map_or(Ok(()), Err)
}
