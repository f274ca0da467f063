//! Requests proxied to an aggregated server, compared with direct ones.
//!
//! That server responds at once, so the difference is the cost of the proxy. Runs alternate, since machines are shared
//! and noisy.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::json;

use crate::aggregated::{AggregatedServer, COLLECTION, GROUP, STREAM_BYTES};
use crate::bench::{Bench, Meter};
use crate::figure::{Observed, Quantity, duration, median_of};
use crate::load::{Until, load};
use crate::server::Server;
use crate::wire::{Client, Request};

/// The directory of these rows.
const DIRECTORY: usize = 5_000;
/// The duration of one run of reads.
const READING: Duration = Duration::from_secs(2);
/// The number of concurrent lists.
const LISTS: usize = 4;
/// The number of concurrent gets.
const GETS: usize = 32;
/// The maximum time until an APIService is effective, and the polling interval.
const PATIENCE: Duration = Duration::from_secs(60);
const ASK_EVERY: Duration = Duration::from_millis(10);

/// The kind of figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProxiedFigure {
    /// The added median latency of single gets.
    Added,
    /// Concurrent gets per second.
    Get,
    /// Lists of 4 MB per second.
    List,
    /// Megabytes per second of one body.
    Stream,
    /// Megabytes per second of one body through a proxy that only copies bytes.
    Copied,
}

/// One of the figures.
pub(super) async fn figure(bench: &Bench, which: ProxiedFigure) -> Result<(Quantity, Observed)> {
    let aggregated = AggregatedServer::start()?;
    if which == ProxiedFigure::Copied {
        let client = aggregated.copied_client()?;
        let mut runs = Vec::new();
        for _ in 0..bench.runs {
            runs.push((Quantity::Rate(streamed(&client).await?.0), Observed::default()));
        }
        return Ok(median_of(runs));
    }
    let server = bench.fresh(DIRECTORY + which as usize).await?;
    register(&server, &aggregated).await?;
    let direct = aggregated.client()?;
    let mut runs = Vec::new();
    for _ in 0..bench.runs {
        runs.push(match which {
            ProxiedFigure::Added => added(&server, &direct).await?,
            ProxiedFigure::Get => rates(&server, &direct, GETS, &format!("{COLLECTION}/a")).await?,
            ProxiedFigure::List => rates(&server, &direct, LISTS, COLLECTION).await?,
            ProxiedFigure::Stream | ProxiedFigure::Copied => stream(&server, &direct).await?,
        });
    }
    server.stop().await?;
    Ok(median_of(runs))
}

async fn register(server: &Server, aggregated: &AggregatedServer) -> Result<()> {
    let mut connection = server.client.connect().await?;
    let service = json!({
        "metadata": { "name": "aggregated" }, "spec": { "type": "ExternalName", "externalName": "127.0.0.1" },
    });
    connection.send(Request::post("/api/v1/namespaces/default/services", service.to_string())).await?;
    let registered = json!({
        "metadata": { "name": format!("v1.{GROUP}") },
        "spec": {
            "group": GROUP, "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 15,
            "service": { "namespace": "default", "name": "aggregated", "port": aggregated.port() },
            "caBundle": aggregated.ca_bundle(),
        },
    });
    let path = "/apis/apiregistration.k8s.io/v1/apiservices";
    connection.send(Request::post(path, registered.to_string())).await?;
    let deadline = Instant::now() + PATIENCE;
    while server.client.connect().await?.send(Request::get(format!("{COLLECTION}/a"))).await.is_err() {
        ensure!(Instant::now() < deadline, "the registered API did not appear within {PATIENCE:?}");
        tokio::time::sleep(ASK_EVERY).await;
    }
    Ok(())
}

async fn reads(client: &Client, in_flight: usize, path: &str) -> Result<(f64, Observed)> {
    let path = path.to_owned();
    let done = load(client, in_flight, Until::Elapsed(READING), move |_| Request::get(path.clone())).await?;
    Ok((done.rate(), done.seen()))
}

async fn added(server: &Server, direct: &Client) -> Result<(Quantity, Observed)> {
    let path = format!("{COLLECTION}/a");
    let (_, alone) = reads(direct, 1, &path).await?;
    let meter = Meter::start(&server.process)?;
    let (_, through) = reads(&server.client, 1, &path).await?;
    let [alone, median] = [alone.p50, through.p50].map(Option::unwrap_or_default);
    let note = format!("{} without it", duration(alone));
    let seen = meter.stop(Observed { note: Some(note), ..through })?;
    Ok((Quantity::Time(median.saturating_sub(alone)), seen))
}

async fn rates(server: &Server, direct: &Client, in_flight: usize, path: &str) -> Result<(Quantity, Observed)> {
    let (alone, _) = reads(direct, in_flight, path).await?;
    let meter = Meter::start(&server.process)?;
    let (through, seen) = reads(&server.client, in_flight, path).await?;
    let seen = meter.stop(Observed { note: Some(format!("{alone:.0} /s without it")), ..seen })?;
    Ok((Quantity::Rate(through), seen))
}

async fn stream(server: &Server, direct: &Client) -> Result<(Quantity, Observed)> {
    let (alone, _) = streamed(direct).await?;
    let meter = Meter::start(&server.process)?;
    let (through, first_byte) = streamed(&server.client).await?;
    let note = format!("{alone:.0} MB/s without it");
    let seen = Observed { first_byte: Some(first_byte), note: Some(note), ..Observed::default() };
    Ok((Quantity::Rate(through), meter.stop(seen)?))
}

/// Reads the long body. Returns megabytes per second, and the time of the first byte.
async fn streamed(client: &Client) -> Result<(f64, Duration)> {
    let reply = client.connect().await?.send(Request::get(format!("{COLLECTION}/stream"))).await?;
    ensure!(reply.bytes == STREAM_BYTES as u64, "the stream has {} bytes", reply.bytes);
    Ok((STREAM_BYTES as f64 / 1e6 / reply.whole.as_secs_f64(), reply.first_byte))
}
