//! Servers of tests: in memory, on a port that the system chooses, without a directory.
//!
//! A server is ready when it prints its line, as test libraries wait for it.

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures::future::try_join_all;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::bench::Bench;
use crate::figure::{Observed, Quantity, median_of};
use crate::process::Process;

/// The number of servers side by side.
const SERVERS: usize = 20;
/// The minimum number of starts of one server. Starts are short, so many of them are measured for a stable median.
const STARTS: usize = 20;

/// A measurement of servers in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ephemeral {
    Start,
    Memory,
    SideBySide,
    SideBySideMemory,
}

/// A running server, killed on drop.
struct Running {
    process: Process,
    _child: Child,
}

pub(super) async fn figure(bench: &mut Bench, which: Ephemeral) -> Result<(Quantity, Observed)> {
    let (bench, mut runs) = (&*bench, Vec::new());
    let wanted = if which == Ephemeral::Start { bench.runs.max(STARTS) } else { bench.runs };
    for _ in 0..wanted {
        let count = if matches!(which, Ephemeral::Start | Ephemeral::Memory) { 1 } else { SERVERS };
        let began = Instant::now();
        let servers = try_join_all((0..count).map(|_| start(bench))).await?;
        let ready_after = began.elapsed();
        let cpu = servers.iter().map(|server| server.process.cpu()).sum::<Result<Duration>>()?;
        let value = match which {
            Ephemeral::Start | Ephemeral::SideBySide => Quantity::Time(ready_after),
            Ephemeral::Memory => Quantity::Memory(servers[0].process.memory()?),
            Ephemeral::SideBySideMemory => {
                Quantity::Memory(servers.iter().map(|server| server.process.own_memory()).sum::<Result<u64>>()?)
            }
        };
        runs.push((value, Observed { cpu: Some(cpu), ..Observed::default() }));
    }
    Ok(median_of(runs))
}

async fn start(bench: &Bench) -> Result<Running> {
    let mut command = Command::new(bench.binary());
    command.args(["serve", "--ephemeral", "--bind", "127.0.0.1:0", "--output", "json"]);
    command.arg(format!("--exit-with-parent={}", std::process::id()));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    let mut child = command.spawn().context("cannot run the server")?;
    let process = Process::new(child.id().context("the server has ended")?);
    let output = child.stdout.take().context("its output is piped")?;
    let line = BufReader::new(output).lines().next_line().await?;
    line.context("the server ended before it was ready")?;
    Ok(Running { process, _child: child })
}
