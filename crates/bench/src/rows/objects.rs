//! Requests for one thing at a time, many in flight.

use std::rc::Rc;
use std::time::Duration;

use anyhow::Result;

use crate::bench::{Bench, Meter};
use crate::figure::{Quantity, Seen, median_of};
use crate::load::{Until, load};
use crate::wire::Request;

const IN_FLIGHT: usize = 32;
/// Updates in one run.
const UPDATES: usize = 20_000;
/// Length of one run of reads.
const READING: Duration = Duration::from_secs(3);
/// Odd and not a multiple of five: steps of this size visit every number of a round collection before repeating one.
const STRIDE: usize = 7_919;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Replaces pods all over the collection.
pub(super) async fn update(bench: &mut Bench) -> Result<(Quantity, Seen)> {
    bench.filled().await?;
    let pods = Rc::clone(&bench.pods);
    let until = Until::Count(UPDATES.min(pods.count));
    let put = move |number: usize| {
        let number = number * STRIDE % pods.count;
        Request::put(pods.path(number), pods.body(number))
    };
    measure(bench, until, put).await
}

/// Reads pods all over the collection.
pub(super) async fn get(bench: &mut Bench) -> Result<(Quantity, Seen)> {
    bench.filled().await?;
    let pods = Rc::clone(&bench.pods);
    let get = move |number: usize| Request::get(pods.path(number * STRIDE % pods.count));
    measure(bench, Until::Elapsed(READING), get).await
}

/// Reads the document of all groups.
pub(super) async fn discovery(bench: &mut Bench) -> Result<(Quantity, Seen)> {
    measure(bench, Until::Elapsed(READING), |_| Request::get("/apis").header("accept", AGGREGATED)).await
}

async fn measure(
    bench: &mut Bench,
    until: Until,
    request: impl Fn(usize) -> Request + Clone + 'static,
) -> Result<(Quantity, Seen)> {
    let count = bench.runs;
    let server = bench.filled().await?;
    let mut runs = Vec::new();
    for _ in 0..count {
        let meter = Meter::start(&server.process)?;
        let done = load(&server.client, IN_FLIGHT, until, request.clone()).await?;
        let mut seen = meter.stop(done.seen())?;
        let cpu = seen.cpu.unwrap_or_default() / u32::try_from(done.requests.max(1))?;
        seen.note = Some(format!("{:.1} us of server CPU a request", cpu.as_secs_f64() * 1e6));
        runs.push((Quantity::Rate(done.rate()), seen));
    }
    Ok(median_of(runs))
}
