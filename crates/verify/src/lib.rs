//! `keelson verify`: black-box checks of any server that speaks the Kubernetes API.
//!
//! The command uses only the public API, so it checks kube-apiserver, keelson, and servers with other stores alike.
//! Each [`Rule`] names a promise of the API and its source. A rule is checked with a few requests in a namespace that
//! exists only for the run. The generated workload checks that concurrent writes and reads of objects are linearizable,
//! and that a watch sees each write once.
//!
//! The number of concurrent requests and their rate are bounded. In read-only mode, rules that write are skipped.

mod args;
pub mod history;
mod lab;
mod report;
mod rules;
mod server;

use std::time::Instant;

use anyhow::{Context as _, bail};

pub use self::args::Verify;
use self::lab::{Fault, Lab};
use self::report::{Outcome, Report, Verdict};
use self::rules::Rule;
use self::server::Server;

/// Runs the checks, and writes the reports that the arguments name. Returns true if no rule is broken.
///
/// # Errors
/// When the kubeconfig can't be read, the server does not respond, the namespace can't be created, or a report can't be
/// written.
pub async fn run(args: &Verify) -> anyhow::Result<bool> {
    let chosen: Vec<&'static Rule> = rules::all().filter(|rule| args.selects(rule.id)).collect();
    if chosen.is_empty() {
        bail!("no rule has such a name: `keelson verify --list` prints all of them");
    }
    let server = Server::of(args).await?;
    let version = server.version().await.context("asking the server for its version")?;
    let lab = Lab::begin(server, args).await?;
    let mut outcomes = Vec::with_capacity(chosen.len());
    for rule in chosen {
        outcomes.push(check(rule, &lab).await);
    }
    let left_behind = lab.end().await.err();
    let report = Report { server: version, seed: args.seed(), outcomes, left_behind };
    report.write(args)?;
    Ok(report.is_clean())
}

/// One line for each rule: its name, its text, and the source of the promise.
pub fn listing() -> String {
    rules::all().map(|rule| format!("{:<44} {} ({})\n", rule.id, rule.text, rule.source)).collect()
}

async fn check(rule: &'static Rule, lab: &Lab) -> Outcome {
    let begun = Instant::now();
    lab.forget();
    let verdict = match lab.check(rule).await {
        Ok(()) => Verdict::Kept,
        Err(Fault::Skipped(why)) => Verdict::Skipped(why),
        Err(Fault::Unanswered(why)) => Verdict::Unanswered { why, exchanges: lab.exchanges() },
        Err(Fault::Broken(why)) => Verdict::Broken { why, exchanges: lab.exchanges() },
    };
    Outcome { rule, verdict, took: begun.elapsed() }
}
