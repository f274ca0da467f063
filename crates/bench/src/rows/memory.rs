//! Memory of an idle server.
//!
//! The memory is read after a pause, for an empty server and for one with all pods.

use std::time::Duration;

use anyhow::Result;

use crate::bench::Bench;
use crate::figure::{Observed, Quantity, median_of};

/// The idle time before memory is read: the cache compresses objects out of use after half a minute.
const REST: Duration = Duration::from_mins(1);
/// The number of the first directory of this row.
const FIRST_DIRECTORY: usize = 1_000;

/// A ready server with only its own objects.
pub(super) async fn empty(bench: &mut Bench) -> Result<(Quantity, Observed)> {
    let mut runs = Vec::new();
    for number in 0..bench.runs {
        let server = bench.fresh(FIRST_DIRECTORY + number).await?;
        let value = Quantity::Memory(server.process.memory()?);
        let seen = Observed { peak: Some(server.process.peak_memory()?), ..Observed::default() };
        runs.push((value, seen));
        server.stop().await?;
    }
    Ok(median_of(runs))
}

/// The filled server when idle.
pub(super) async fn filled(bench: &mut Bench) -> Result<(Quantity, Observed)> {
    let server = bench.filled().await?;
    tokio::time::sleep(REST).await;
    let value = Quantity::Memory(server.process.memory()?);
    Ok((value, Observed { peak: Some(server.process.peak_memory()?), ..Observed::default() }))
}
