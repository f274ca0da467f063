//! `keelson-sim`: whole servers on a simulated network and store, with faults, all from one seed.
//!
//! A run has two or three servers, three or four clients and six watchers in one thread. Each machine is a tokio runtime
//! with paused time. A dropped runtime is a killed process, and a runtime without turns is a stopped process. The crate
//! turmoil has a runtime for each host too, but it cannot stop one. The network (`net.rs`) and the
//! turns (`world.rs`) are therefore this crate's own.
//!
//! Clock and randomness come from the seed for all code (`machine.rs`). Blocking work runs as tasks
//! (`keelson_supervision::use_one_thread`). Each run is a copy of a process that has prepared a cluster, so that no run
//! affects another.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool talks on its streams")]

mod check;
mod clients;
mod dice;
mod host;
mod machine;
mod mutant;
mod net;
mod plan;
mod prepare;
mod record;
mod report;
mod shrink;
mod store;
mod watchers;
mod wire;
mod world;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::{Parser, ValueEnum as _};

use crate::mutant::Mutant;
use crate::plan::Plan;
use crate::report::{Report, Totals};
use crate::world::{Ground, World};

/// The real time that one run may take, in seconds.
const RUN_SECONDS: u32 = 300;
/// The runs of a shrinker.
const SHRINKING_RUNS: usize = 400;
/// The stack of a simulation's thread, as of a server's threads.
const STACK_BYTES: usize = 64 << 20;

/// Runs whole servers on a simulated network and store, with faults, all from one seed.
#[derive(Parser)]
#[command(name = "keelson-sim")]
struct Args {
    /// The seed of one run.
    #[arg(long, conflicts_with_all = ["seeds", "hours"])]
    seed: Option<u64>,
    /// The seeds of many runs: `A..B`, without B.
    #[arg(long, value_parser = seeds)]
    seeds: Option<(u64, u64)>,
    /// Runs new seeds for this many hours.
    #[arg(long, conflicts_with = "seeds")]
    hours: Option<f64>,
    /// The first seed of `--hours`.
    #[arg(long, default_value_t = 1_000_000)]
    first: u64,
    /// Writes the trace of one run to this file.
    #[arg(long, requires = "seed")]
    trace: Option<PathBuf>,
    /// Plants a fault in the store.
    #[arg(long)]
    mutant: Option<Mutant>,
    /// Runs the seed twice, and compares the traces.
    #[arg(long, requires = "seed")]
    twice: bool,
    /// Runs only these parts of the plan, such as `f1,o20`.
    #[arg(long, requires = "seed", value_delimiter = ',')]
    only: Option<Vec<String>>,
    /// Plants each fault in turn, and fails unless one of this many seeds, from 1, finds it.
    #[arg(long, conflicts_with_all = ["seed", "seeds", "hours", "mutant"])]
    mutants: Option<u64>,
    /// Leaves out the search for a shorter history.
    #[arg(long)]
    no_shrink: bool,
    /// Prints the log of the servers.
    #[arg(long)]
    log: bool,
}

fn seeds(text: &str) -> Result<(u64, u64), String> {
    let (from, to) = text.split_once("..").ok_or("seeds are written A..B")?;
    let number = |text: &str| text.parse::<u64>().map_err(|error| error.to_string());
    Ok((number(from)?, number(to)?))
}

fn main() -> ExitCode {
    machine::fix_addresses();
    match run(&Args::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.log {
        tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).without_time().init();
    }
    keelson_supervision::use_one_thread();
    let begun = Instant::now();
    let ground = ground()?;
    eprintln!("prepared in {:.1?}", begun.elapsed());
    if let Some(seed) = args.seed {
        let plan = planned(args, seed);
        let report = simulate(&ground, &plan, args.trace.clone());
        println!("{}", report.line(&plan));
        if args.twice {
            let again = simulate(&ground, &plan, None);
            println!("{}", again.line(&plan));
            anyhow::ensure!(report.line(&plan) == again.line(&plan), "the second run has another trace");
        }
        return Ok(finish(args, &ground, &plan, &report));
    }
    if let Some(seeds) = args.mutants {
        return Ok(find_mutants(&ground, seeds));
    }
    let (from, to) = args.seeds.unwrap_or((args.first, u64::MAX));
    let end = args.hours.map(|hours| Duration::from_secs_f64(hours * 3600.0));
    let mut totals = Totals::default();
    for seed in from..to {
        if end.is_some_and(|end| begun.elapsed() >= end) {
            break;
        }
        let plan = planned(args, seed);
        let report = simulate(&ground, &plan, None);
        println!("{}", report.line(&plan));
        totals.add(&report);
        if report.is_broken() {
            finish(args, &ground, &plan, &report);
        }
    }
    println!("{totals} in {:.0?}", begun.elapsed());
    Ok(if totals.broken > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Runs the first seeds with each mutant, until a rule is broken.
fn find_mutants(ground: &Ground, seeds: u64) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for mutant in Mutant::value_variants() {
        let found = (1..=seeds).find_map(|seed| {
            let report = simulate(ground, &Plan::new(seed, Some(*mutant)), None);
            report.rule().map(|rule| format!("seed {seed} breaks {rule}"))
        });
        if found.is_none() {
            code = ExitCode::FAILURE;
        }
        println!("{mutant:?}: {}", found.unwrap_or_else(|| format!("not found by {seeds} seeds")));
    }
    code
}

fn planned(args: &Args, seed: u64) -> Plan {
    let plan = Plan::new(seed, args.mutant);
    match &args.only {
        Some(parts) => plan.only(&parts.iter().cloned().collect()),
        None => plan,
    }
}

/// Prints the violations of a run and its shortest history.
fn finish(args: &Args, ground: &Ground, plan: &Plan, report: &Report) -> ExitCode {
    let Some(rule) = report.rule() else { return ExitCode::SUCCESS };
    println!("seed {} breaks {rule}\n{}", plan.seed, report.violations());
    if !args.no_shrink {
        let short = shrink::shrink(plan, SHRINKING_RUNS, |plan| simulate(ground, plan, None).breaks(rule));
        let last = simulate(ground, &short, None);
        println!("the shortest history found:\n{}", report::history(&short));
        println!("{}", last.violations());
        println!("cargo xtask sim --seed {} --only {}", plan.seed, short.parts().join(","));
    }
    ExitCode::FAILURE
}

/// Prepares keys and a new cluster, once for all runs of a process.
fn ground() -> anyhow::Result<Ground> {
    in_thread(|| {
        machine::begin(0);
        let pki = prepare::keys()?;
        let plan = Plan { servers: 1, clients: 1, ..Plan::new(0, None).only(&std::collections::BTreeSet::new()) };
        let snapshot = World::new(plan, pki.clone(), None)?.prepare()?;
        Ok(Ground { pki, snapshot })
    })
}

/// Runs a plan in a copy of this process.
fn simulate(ground: &Ground, plan: &Plan, trace: Option<PathBuf>) -> Report {
    let (ground, plan) = (ground.clone(), plan.clone());
    let text = machine::in_copy(move || {
        machine::limit_process(RUN_SECONDS);
        world::note_panics();
        let run = move || {
            let outcome = World::new(plan, ground.pki, Some(&ground.snapshot))?.run()?;
            if let Some(file) = trace {
                std::fs::write(&file, &outcome.trace).with_context(|| format!("writing {}", file.display()))?;
            }
            Ok(outcome)
        };
        report::to_text(in_thread(run))
    });
    Report::read(text)
}

/// Runs work on a thread of its own, whose hash maps get their seeds from the simulation.
fn in_thread<T: Send>(work: impl FnOnce() -> anyhow::Result<T> + Send) -> anyhow::Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, work)?;
        match thread.join() {
            Ok(done) => done,
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message");
                Err(anyhow::anyhow!("the simulation has panicked: {text}"))
            }
        }
    })
}
