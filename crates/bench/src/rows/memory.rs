//! Memory in use while nothing happens.
//!
//! It is read after a rest, of an empty server and of one with all pods.

use std::time::Duration;

use anyhow::Result;

use crate::bench::Bench;
use crate::figure::{Quantity, Seen, median_of};

/// How long the server is left alone before its memory is read: allocators give memory back after a while.
const REST: Duration = Duration::from_secs(3);
/// Directories of this row, beside those of the start row.
const FIRST_DIRECTORY: usize = 1_000;

/// A server that is ready and has nothing but its own objects.
pub(super) async fn empty(bench: &mut Bench) -> Result<(Quantity, Seen)> {
    let mut runs = Vec::new();
    for number in 0..bench.runs {
        let server = bench.fresh(FIRST_DIRECTORY + number).await?;
        let value = Quantity::Memory(server.process.memory()?);
        let seen = Seen { peak: Some(server.process.peak_memory()?), ..Seen::default() };
        runs.push((value, seen));
        server.stop().await?;
    }
    Ok(median_of(runs))
}

/// The filled server, at rest.
pub(super) async fn filled(bench: &mut Bench) -> Result<(Quantity, Seen)> {
    let server = bench.filled().await?;
    tokio::time::sleep(REST).await;
    let value = Quantity::Memory(server.process.memory()?);
    Ok((value, Seen { peak: Some(server.process.peak_memory()?), ..Seen::default() }))
}
