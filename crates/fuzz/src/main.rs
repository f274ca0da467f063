//! Runs one target for a time or a number of inputs: `cargo xtask fuzz --target NAME --seconds N` calls this.
//!
//! Prints what was tried, or the input that broke a rule, which belongs into the target's corpus together with the mend.
#![allow(clippy::print_stdout, reason = "a command line tool talks on its streams")]

use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Parser;
use keelson_fuzz::{Budget, Finding, Summary, Target, all, run};

/// Throws generated inputs at a parser.
#[derive(Parser)]
struct Options {
    /// Which parser; without it all of them in turn.
    #[arg(long)]
    target: Option<String>,
    /// For how many seconds, each.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// How many inputs, each, rather than for how long.
    #[arg(long, conflicts_with = "seconds")]
    inputs: Option<usize>,
    /// What the inputs are made of. Without it a new run each time.
    #[arg(long)]
    seed: Option<u64>,
}

fn main() -> anyhow::Result<ExitCode> {
    let options = Options::parse();
    let seed = options.seed.unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        now.as_secs()
    });
    let wanted = |target: &&Target| options.target.as_ref().is_none_or(|name| name == target.name);
    let targets: Vec<&Target> = all().iter().filter(wanted).collect();
    if targets.is_empty() {
        let names: Vec<&str> = all().iter().map(|target| target.name).collect();
        anyhow::bail!("there is no such target; there are {}", names.join(", "));
    }
    let mut code = ExitCode::SUCCESS;
    for target in targets {
        let began = Instant::now();
        let budget = options.inputs.map_or(Budget::Until(began + Duration::from_secs(options.seconds)), Budget::Inputs);
        match run(target, seed, budget) {
            Ok(Summary { inputs, kinds, slowest }) => {
                let took = began.elapsed();
                let name = target.name;
                println!(
                    "{name}: {inputs} inputs of {kinds} kinds in {took:.0?}, the slowest {slowest:.1?}, seed {seed}"
                );
            }
            Err(Finding { input, why }) => {
                println!("{}: {why}\n  input: \"{}\"\n  seed {seed}", target.name, input.escape_ascii());
                code = ExitCode::FAILURE;
            }
        }
    }
    Ok(code)
}
