//! The cost of one object inside of the server: the only rows that are not measured over the wire.
//!
//! Separate programs measure the server's own code on a pod of this benchmark.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::bench::Bench;
use crate::figure::{Observed, Quantity, median_of};
use crate::pods::Pods;

/// Measures the step with this name.
pub(super) async fn measure_step(bench: &mut Bench, step: &str) -> Result<(Quantity, Observed)> {
    let mut pods = Pods::new(1, vec![String::from("5cf4b8a1-0c86-4d3a-9a4f-000000000001")]);
    pods.pad(pods.body(0).len());
    let pod = pods.body(0);
    for program in &bench.costs {
        let mut runs = Vec::new();
        while let Some(cost) = measured(program, step, &pod).await? {
            runs.push((Quantity::Time(cost), Observed::default()));
            if runs.len() == bench.runs {
                return Ok(median_of(runs));
            }
        }
    }
    bail!("--costs must name the program that measures {step}")
}

/// The time of a step in a program, if it measures that step.
async fn measured(program: &Path, step: &str, pod: &[u8]) -> Result<Option<Duration>> {
    let mut child = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut input = child.stdin.take().context("its input is piped")?;
    input.write_all(pod).await?;
    drop(input);
    let output = child.wait_with_output().await?;
    ensure!(output.status.success(), "{} failed", program.display());
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find_map(|line| line.strip_prefix(step)?.strip_prefix(' '));
    line.map(|line| Ok(Duration::from_nanos(line.parse()?))).transpose()
}
