//! `keelson storage versions`: the version in which each server stores each resource, the number of objects that are
//! stored in an older version, and the progress of their migration.
//!
//! `fleet` reads the state from a running server through the public API, `report` evaluates it, and `text` formats it.

mod fleet;
mod report;
mod text;

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use crate::args::Versions;
use crate::output::answer;
use crate::progress::{Progress, Step, Unit};
use fleet::Fleet;
use report::Report;

/// The interval of requests to the server while waiting.
const INTERVAL: Duration = Duration::from_millis(500);
/// The number of consecutive failures that end the wait. The server may restart meanwhile, for example in an upgrade.
const MOST_FAILURES: u32 = 120;

/// Prints the versions. If requested, waits until all migrations are complete.
///
/// # Errors
/// The server cannot be reached, or the timeout has passed.
pub(super) fn run(settings: &Versions) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting a runtime")?;
    runtime.block_on(async {
        let kubeconfig = settings.kubeconfig.clone().unwrap_or_else(|| settings.data_dir.join("kubeconfig"));
        let fleet = Fleet::connect(&kubeconfig).await?;
        let report = fleet.report().await?;
        answer(text::report(&report))?;
        if settings.wait { wait(&fleet, report, settings.timeout).await } else { Ok(()) }
    })
}

async fn wait(fleet: &Fleet, mut report: Report, timeout: Option<Duration>) -> anyhow::Result<()> {
    let (begun, mut failures, mut most) = (Instant::now(), 0, 0);
    let mut progress = Progress::new("versions");
    while !report.is_done() {
        if let Some(timeout) = timeout.filter(|timeout| begun.elapsed() >= *timeout) {
            bail!("the migration is not finished after {timeout:?}: {}", text::what_is_left(&report));
        }
        most = most.max(report.older()).max(report.total());
        let done = most.saturating_sub(report.older());
        let step = Step { stage: "migrating", unit: Unit::Objects, done: done as u64, total: most as u64 };
        progress.step_waiting(step, text::waits_for(&report).as_deref());
        tokio::time::sleep(INTERVAL).await;
        match fleet.report().await {
            Ok(next) => (report, failures) = (next, 0),
            Err(error) if failures >= MOST_FAILURES => return Err(error),
            Err(_) => failures += 1,
        }
    }
    progress.end();
    answer("all servers agree, and everything is stored in the versions that they agree on")
}
