//! Runs one target for a time or a number of inputs: `cargo xtask fuzz --target NAME --seconds N` calls this.
//!
//! The program prints a summary, or the input that violated a property, which is added to the target's corpus together
//! with the fix.
#![allow(clippy::print_stdout, reason = "a command line tool talks on its streams")]

use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Parser;
use keelson_fuzz::{Budget, Finding, Summary, Target, all, run};

/// Fuzzes parsers with generated inputs.
#[derive(Parser)]
struct Options {
    /// The parser to fuzz. All of them in turn by default.
    #[arg(long)]
    target: Option<String>,
    /// The duration of each target in seconds.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// The number of inputs of each target instead of a duration.
    #[arg(long, conflicts_with = "seconds")]
    inputs: Option<usize>,
    /// The seed of the inputs. Random by default.
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
