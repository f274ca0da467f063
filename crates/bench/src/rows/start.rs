//! The time until a server is ready, on an empty directory and on a full one.
//!
//! The time is measured from the start of the process until it reports readiness.

use anyhow::Result;

use crate::bench::Bench;
use crate::figure::{Observed, Quantity, median_of};
use crate::rows::objects;

/// The first start on an empty directory, including certificates.
pub(super) async fn start(bench: &mut Bench) -> Result<(Quantity, Observed)> {
    let mut runs = Vec::new();
    for number in 0..bench.runs {
        let server = bench.fresh(number).await?;
        let seen = Observed {
            cpu: Some(server.process.cpu()?),
            peak: Some(server.process.peak_memory()?),
            ..Observed::default()
        };
        runs.push((Quantity::Time(server.ready_after), seen));
        server.stop().await?;
    }
    Ok(median_of(runs))
}

/// A start on the data of the filled server after many writes, all of which are history.
pub(super) async fn restart_loaded(bench: &mut Bench) -> Result<(Quantity, Observed)> {
    let writes = bench.writes;
    objects::overwrite(bench, writes).await?;
    let (value, mut seen) = restart(bench).await?;
    seen.note = Some(format!("after {writes} writes"));
    Ok((value, seen))
}

/// A start on the data of the filled server.
pub(super) async fn restart(bench: &mut Bench) -> Result<(Quantity, Observed)> {
    let mut runs = Vec::new();
    for _ in 0..bench.runs {
        let server = bench.restarted().await?;
        let seen = Observed {
            cpu: Some(server.process.cpu()?),
            peak: Some(server.process.peak_memory()?),
            ..Observed::default()
        };
        runs.push((Quantity::Time(server.ready_after), seen));
    }
    Ok(median_of(runs))
}
