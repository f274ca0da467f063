//! `cargo xtask`: the helpers of this repository, one subcommand each.
//!
//! xtask is separate from the product: no crate depends on it and it depends on no crate of the workspace, so it builds
//! in seconds on a fresh clone. Contributors and CI jobs use the same commands.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool talks on its streams")]

mod bench;
mod ci;
mod console;
mod definitions;
mod deny;
mod dist;
mod docs;
mod fuzz;
mod generators;
mod helm;
mod kopf;
mod kubectl;
mod kubernetes;
mod markdown;
mod npm;
mod python;
mod registry;
mod run;
mod servers;
mod sim;
mod test;
mod tidy;
mod workspace;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::workspace::Workspace;

/// The helpers of this repository.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Fetch what the tests need, then run every test.
    Test {
        /// Leave out tests that need other servers, a browser or fetched files. Use cargo-nextest if installed.
        #[arg(long)]
        fast: bool,
        /// Arguments for `cargo test` (`-p CRATE` narrows the run; filters for tests follow `--`).
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Check file heads, crate edges, sizes and words.
    Tidy,
    /// Check licences, sources and banned crates of every dependency against deny.toml.
    Deny,
    /// Everything a change must pass: format, clippy, tidy, deny, test.
    Ci,
    /// Build the release binaries and measure a fresh server.
    Bench {
        /// Arguments for `keelson-bench` (try `--help`).
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Make the packages of a release, into target/dist/packages.
    Dist {
        /// Arguments for `keelson-dist` (try `--help`).
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Run the parsers on generated inputs for a time.
    Fuzz {
        /// Arguments for `keelson-fuzz`: `--target NAME`, `--seconds N` or `--inputs N`, `--seed N`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Run whole servers on a simulated network and store, with faults from a seed.
    Sim {
        /// Arguments for `keelson-sim`: `--seed N --trace FILE`, `--seeds A..B` or `--hours H` (try `--help`).
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Build the files of the console from their sources, to be checked in.
    Console {
        /// Check the sources, and that the checked-in files match them, instead.
        #[arg(long)]
        check: bool,
    },
    /// Check links and spelling of the pages, and build the site below docs/ if mdbook is installed.
    Docs {
        /// Write the generated pages from the code first.
        #[arg(long)]
        write: bool,
    },
    /// Write the data about Kubernetes from a checkout of its public sources.
    Kubernetes {
        /// A checkout of kubernetes/kubernetes, or a folder with its published parts side by side.
        #[arg(long)]
        from: PathBuf,
        /// The release of the sources, such as 1.37.
        #[arg(long)]
        release: String,
        /// Compare only, and fail where a file differs.
        #[arg(long)]
        check: bool,
    },
    /// Print the path of the kubectl that the tests use, fetching it if needed.
    Kubectl {
        /// Print the paths of other releases instead, separated by colons.
        #[arg(long)]
        others: bool,
    },
    /// Print the directory of the published definitions of custom resources for the tests, fetching them if needed.
    Definitions,
    /// Print the directory of kopf, for the tests of an operator, fetching it if needed.
    Kopf,
    /// Print the directory of the packages of npm for the tests, fetching them if needed.
    Npm,
    /// Print the variables for the PostgreSQL and the etcd of the tests, fetching them if needed.
    Servers,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match dispatch(cli.task) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(task: Task) -> anyhow::Result<ExitCode> {
    let workspace = Workspace::load()?;
    match task {
        Task::Test { fast: false, args } => test::test(&workspace, &args),
        Task::Test { fast: true, args } => test::fast(&workspace, &args),
        Task::Tidy => tidy::tidy(&workspace).map(|()| ExitCode::SUCCESS),
        Task::Deny => deny::deny(&workspace).map(|()| ExitCode::SUCCESS),
        Task::Ci => ci::ci(&workspace),
        Task::Bench { args } => bench::bench(&workspace, &args),
        Task::Dist { args } => dist::dist(&workspace, &args),
        Task::Fuzz { args } => fuzz::fuzz(&workspace, &args),
        Task::Sim { args } => sim::sim(&workspace, &args),
        Task::Docs { write } => docs::docs(&workspace, write),
        Task::Console { check: false } => console::build(&workspace).map(|()| ExitCode::SUCCESS),
        Task::Console { check: true } => console::check(&workspace).map(|outcome| match outcome {
            console::Outcome::Fine => ExitCode::SUCCESS,
            console::Outcome::NotRun(why) => {
                eprintln!("{why}");
                ExitCode::FAILURE
            }
        }),
        Task::Kubernetes { from, release, check } => kubernetes::kubernetes(&workspace, &from, &release, check),
        Task::Kubectl { others: false } => {
            println!("{}", kubectl::find(&workspace)?.display());
            Ok(ExitCode::SUCCESS)
        }
        Task::Kubectl { others: true } => {
            let (found, missing) = kubectl::others::find(&workspace);
            missing.iter().for_each(|missing| eprintln!("{missing}"));
            println!("{}", std::env::join_paths(found)?.display());
            Ok(run::code(missing.is_empty()))
        }
        Task::Definitions => {
            println!("{}", definitions::find(&workspace).map_err(anyhow::Error::msg)?.display());
            Ok(ExitCode::SUCCESS)
        }
        Task::Kopf => {
            println!("{}", kopf::find(&workspace).map_err(anyhow::Error::msg)?.display());
            Ok(ExitCode::SUCCESS)
        }
        Task::Npm => {
            println!("{}", npm::find(&workspace).map_err(anyhow::Error::msg)?.display());
            Ok(ExitCode::SUCCESS)
        }
        Task::Servers => {
            let servers = servers::find(&workspace)?;
            servers.missing.iter().for_each(|missing| eprintln!("{missing}"));
            servers.variables.iter().for_each(|(variable, path)| println!("{variable}={}", path.display()));
            Ok(run::code(servers.missing.is_empty()))
        }
    }
}
