//! The cost of one object inside of the server: the only rows that are not measured over the wire.
//!
//! A program beside the server's measures with the server's own code, on a pod of this benchmark.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::bench::Bench;
use crate::figure::{Quantity, Seen, median_of};
use crate::pods::Pods;

/// The step with this name.
pub(super) async fn of(bench: &mut Bench, step: &str) -> Result<(Quantity, Seen)> {
    let program = bench.costs.as_ref().context("--costs must name the program that measures this")?;
    let mut pods = Pods::new(1, vec![String::from("5cf4b8a1-0c86-4d3a-9a4f-000000000001")]);
    pods.pad(pods.body(0).len());
    let pod = pods.body(0);
    let mut runs = Vec::new();
    for _ in 0..bench.runs {
        let mut child = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut input = child.stdin.take().context("its input is piped")?;
        input.write_all(&pod).await?;
        drop(input);
        let output = child.wait_with_output().await?;
        ensure!(output.status.success(), "{} failed", program.display());
        let text = String::from_utf8_lossy(&output.stdout);
        let line = text.lines().find_map(|line| line.strip_prefix(step)?.strip_prefix(' '));
        let nanoseconds = line.with_context(|| format!("it does not measure {step}"))?.parse()?;
        runs.push((Quantity::Time(Duration::from_nanos(nanoseconds)), Seen::default()));
    }
    Ok(median_of(runs))
}
