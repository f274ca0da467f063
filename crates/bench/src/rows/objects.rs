//! Requests for single objects, many in flight.
//!
//! The requests are gets, creates, updates and discovery. Figures are requests per second and latencies.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use anyhow::Result;

use crate::bench::{Bench, Meter};
use crate::figure::{Observed, Quantity, median_of};
use crate::load::{Until, load};
use crate::wire::Request;

const IN_FLIGHT: usize = 32;
/// The number of updates in one run.
const UPDATES: usize = 20_000;
/// The first label number for the updates that only create history. Other rows use smaller numbers, so every update
/// changes its object.
const OVERWRITTEN: usize = 1 << 32;
/// The duration of one run of patches.
const WRITING: Duration = Duration::from_secs(3);
/// The duration of one run of reads.
const READING: Duration = Duration::from_secs(3);
/// Odd and not a multiple of five: steps of this size visit every number before repeating one.
const STRIDE: usize = 7_919;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Replaces pods across the collection. Each gets a new label, because the server does not write an update without a
/// change.
pub(super) async fn update(bench: &mut Bench) -> Result<(Quantity, Observed)> {
    bench.filled().await?;
    let pods = Rc::clone(&bench.pods);
    let until = Until::Count(UPDATES.min(pods.count));
    let writes = Rc::new(Cell::new(0));
    let put = move |number: usize| {
        let number = number * STRIDE % pods.count;
        Request::put(pods.path(number), pods.labelled(number, writes.replace(writes.get() + 1)))
    };
    measure(bench, until, put).await
}

/// Patches a label of pods across the collection.
pub(super) async fn patch(bench: &mut Bench) -> Result<(Quantity, Observed)> {
    bench.filled().await?;
    let pods = Rc::clone(&bench.pods);
    let writes = Rc::new(Cell::new(0));
    let patch = move |number: usize| {
        let body = format!("{{\"metadata\":{{\"labels\":{{\"write\":\"p{}\"}}}}}}", writes.replace(writes.get() + 1));
        Request::patch(pods.path(number * STRIDE % pods.count), "application/merge-patch+json", body)
    };
    measure(bench, Until::Elapsed(WRITING), patch).await
}

/// Makes this number of distinct changes to pods across the collection.
pub(super) async fn overwrite(bench: &mut Bench, writes: usize) -> Result<()> {
    bench.filled().await?;
    let pods = Rc::clone(&bench.pods);
    let put = move |number: usize| {
        let place = number * STRIDE % pods.count;
        Request::put(pods.path(place), pods.labelled(place, OVERWRITTEN + number))
    };
    let server = bench.filled().await?;
    load(&server.client, IN_FLIGHT, Until::Count(writes), put).await?;
    Ok(())
}

/// Applies whole pods across the collection, which another manager has created.
pub(super) async fn apply(bench: &mut Bench) -> Result<(Quantity, Observed)> {
    bench.filled().await?;
    let pods = Rc::clone(&bench.pods);
    let writes = Rc::new(Cell::new(0));
    let apply = move |number: usize| {
        let number = number * STRIDE % pods.count;
        let path = format!("{}?fieldManager=applier&force=true", pods.path(number));
        let body = pods.labelled(number, writes.replace(writes.get() + 1));
        Request::patch(path, "application/apply-patch+yaml", body)
    };
    measure(bench, Until::Elapsed(WRITING), apply).await
}

/// Reads pods across the collection.
pub(super) async fn get(bench: &mut Bench) -> Result<(Quantity, Observed)> {
    bench.filled().await?;
    let pods = Rc::clone(&bench.pods);
    let get = move |number: usize| Request::get(pods.path(number * STRIDE % pods.count));
    measure(bench, Until::Elapsed(READING), get).await
}

/// Reads the document of all groups.
pub(super) async fn discovery(bench: &mut Bench) -> Result<(Quantity, Observed)> {
    measure(bench, Until::Elapsed(READING), |_| Request::get("/apis").header("accept", AGGREGATED)).await
}

async fn measure(
    bench: &mut Bench,
    until: Until,
    request: impl Fn(usize) -> Request + Clone + 'static,
) -> Result<(Quantity, Observed)> {
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
