//! Lists: whole, in chunks, concurrent, selected.
//!
//! All lists have the same pods, so that their forms can be compared.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tokio::task::JoinSet;

use crate::bench::{Bench, Meter};
use crate::figure::{Observed, Quantity, median_of, percentile};
use crate::pods::SAMPLED;
use crate::server::Server;
use crate::wire::{Client, Reply, Request};

const PODS: &str = "/api/v1/pods";
const CHUNK: usize = 500;
const AT_ONCE: usize = 8;
/// The number of selected lists in one run.
const SELECTIONS: usize = 100;

/// The format that the client accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Json,
    Gzip,
    Table,
    Metadata,
    Yaml,
    Protobuf,
}

impl Form {
    fn request(self) -> Request {
        let request = Request::get(PODS);
        match self {
            Self::Json => request,
            Self::Gzip => request.header("accept-encoding", "gzip"),
            Self::Table => request.header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io"),
            Self::Metadata => {
                request.header("accept", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io")
            }
            Self::Yaml => request.header("accept", "application/yaml"),
            Self::Protobuf => request.header("accept", "application/vnd.kubernetes.protobuf"),
        }
    }

    /// The minimum size of a pod in a complete list, in bytes.
    const fn smallest(self) -> u64 {
        match self {
            Self::Json | Self::Yaml | Self::Protobuf => 1_000,
            Self::Table | Self::Metadata => 200,
            Self::Gzip => 50,
        }
    }
}

/// The whole collection in one response.
pub(super) async fn whole(bench: &mut Bench, form: Form) -> Result<(Quantity, Observed)> {
    let (runs, pods) = (bench.runs, bench.pods.count);
    let smallest = pods as u64 * form.smallest();
    whole_list(bench.filled().await?, &form.request(), runs, smallest).await
}

/// A complete list of another collection, with as many objects as pods and about their size.
pub(super) async fn whole_of(
    server: &Server,
    list: &Request,
    runs: usize,
    objects: usize,
) -> Result<(Quantity, Observed)> {
    whole_list(server, list, runs, objects as u64 * Form::Json.smallest()).await
}

/// A list of at least `smallest` bytes.
async fn whole_list(server: &Server, list: &Request, count: usize, smallest: u64) -> Result<(Quantity, Observed)> {
    let mut connection = server.client.connect().await?;
    let mut runs = Vec::new();
    for _ in 0..count {
        let meter = Meter::start(&server.process)?;
        let reply = connection.send(list.clone()).await?;
        check_whole(&reply, smallest)?;
        let seen = Observed { note: Some(format!("{:.1} MB", reply.bytes as f64 / 1e6)), ..seen_of(&reply) };
        runs.push((Quantity::Time(reply.whole), meter.stop(seen)?));
    }
    Ok(median_of(runs))
}

/// The whole collection in chunks of 500, one after the other.
pub(super) async fn walk(bench: &mut Bench) -> Result<(Quantity, Observed)> {
    let (runs, pods) = (bench.runs, bench.pods.count);
    let runs = walks(bench.filled().await?, PODS, runs, pods).await?;
    Ok(median_of(runs.into_iter().map(|walk| (Quantity::Time(walk.elapsed), walk.seen)).collect()))
}

/// The time of one chunk.
pub(super) async fn chunk(bench: &mut Bench) -> Result<(Quantity, Observed)> {
    let (runs, pods) = (bench.runs, bench.pods.count);
    chunk_of(bench.filled().await?, PODS, runs, pods).await
}

/// The time of one chunk of another collection.
pub(super) async fn chunk_of(server: &Server, path: &str, runs: usize, objects: usize) -> Result<(Quantity, Observed)> {
    let runs = walks(server, path, runs, objects).await?;
    Ok(median_of(runs.into_iter().map(|walk| (Quantity::Time(walk.seen.p50.unwrap_or_default()), walk.seen)).collect()))
}

/// Eight clients that each list everything at the same time, until the last one is complete.
pub(super) async fn at_once(bench: &mut Bench) -> Result<(Quantity, Observed)> {
    Ok(median_of(
        lists_at_once(bench).await?.into_iter().map(|(elapsed, seen)| (Quantity::Time(elapsed), seen)).collect(),
    ))
}

/// The memory added by eight concurrent lists.
pub(super) async fn memory_at_once(bench: &mut Bench) -> Result<(Quantity, Observed)> {
    let runs = lists_at_once(bench).await?;
    Ok(median_of(runs.into_iter().map(|(_, seen)| (Quantity::Memory(seen.growth.unwrap_or_default()), seen)).collect()))
}

/// A selection of a few objects among all.
pub(super) async fn selector(bench: &mut Bench) -> Result<(Quantity, Observed)> {
    let (count, expected) = (bench.runs, SAMPLED.min(bench.pods.count) as u64 * Form::Json.smallest());
    let server = bench.filled().await?;
    let mut connection = server.client.connect().await?;
    let mut runs = Vec::new();
    for _ in 0..count {
        let meter = Meter::start(&server.process)?;
        let (mut times, mut firsts, mut bytes) = (Vec::new(), Vec::new(), 0);
        for _ in 0..SELECTIONS {
            let reply = connection.send(Request::get(format!("{PODS}?labelSelector=sample%3Dyes"))).await?;
            ensure!(reply.bytes >= expected, "the selection has {} bytes only", reply.bytes);
            times.push(reply.whole);
            firsts.push(reply.first_byte);
            bytes += reply.bytes;
        }
        let seen = meter.stop(seen_of_many(times, firsts, bytes))?;
        runs.push((Quantity::Time(seen.p50.unwrap_or_default()), seen));
    }
    Ok(median_of(runs))
}

struct Walk {
    elapsed: Duration,
    seen: Observed,
}

async fn walks(server: &Server, path: &str, count: usize, objects: usize) -> Result<Vec<Walk>> {
    let mut runs = Vec::new();
    for _ in 0..count {
        let meter = Meter::start(&server.process)?;
        let began = Instant::now();
        let (times, firsts, bytes) = walk_once(&server.client, path, objects).await?;
        let elapsed = began.elapsed();
        let seen = meter.stop(seen_of_many(times, firsts, bytes))?;
        runs.push(Walk { elapsed, seen });
    }
    Ok(runs)
}

async fn walk_once(client: &Client, path: &str, objects: usize) -> Result<(Vec<Duration>, Vec<Duration>, u64)> {
    let mut connection = client.connect().await?;
    let (mut times, mut firsts, mut bytes) = (Vec::new(), Vec::new(), 0);
    let mut token = None;
    loop {
        let chunk = match &token {
            None => format!("{path}?limit={CHUNK}"),
            Some(token) => format!("{path}?limit={CHUNK}&continue={token}"),
        };
        let reply = connection.send(Request::get(chunk)).await?;
        times.push(reply.whole);
        firsts.push(reply.first_byte);
        bytes += reply.bytes;
        token = reply.field("continue");
        if token.is_none() {
            break;
        }
    }
    ensure!(times.len() == objects.div_ceil(CHUNK), "the walk has {} chunks, of {objects} objects", times.len());
    Ok((times, firsts, bytes))
}

async fn lists_at_once(bench: &mut Bench) -> Result<Vec<(Duration, Observed)>> {
    let (count, pods) = (bench.runs, bench.pods.count);
    let server = bench.filled().await?;
    let mut runs = Vec::new();
    for _ in 0..count {
        let mut connections = Vec::new();
        for _ in 0..AT_ONCE {
            connections.push(server.client.connect().await?);
        }
        let meter = Meter::start(&server.process)?;
        let began = Instant::now();
        let mut lists = JoinSet::new();
        for mut connection in connections {
            lists.spawn(async move { connection.send(Request::get(PODS)).await });
        }
        let (mut times, mut firsts, mut bytes) = (Vec::new(), Vec::new(), 0);
        while let Some(reply) = lists.join_next().await {
            let reply = reply??;
            check_whole(&reply, pods as u64 * Form::Json.smallest())?;
            times.push(reply.whole);
            firsts.push(reply.first_byte);
            bytes += reply.bytes;
        }
        let elapsed = began.elapsed();
        let seen = seen_of_many(times, firsts, bytes);
        let together = Some(bytes as f64 / elapsed.as_secs_f64());
        runs.push((elapsed, meter.stop(Observed { bytes_per_second: together, ..seen })?));
    }
    Ok(runs)
}

fn check_whole(reply: &Reply, smallest: u64) -> Result<()> {
    ensure!(reply.bytes >= smallest, "the list has {} bytes only", reply.bytes);
    Ok(())
}

fn seen_of(reply: &Reply) -> Observed {
    let rate = reply.bytes as f64 / reply.whole.as_secs_f64();
    Observed { first_byte: Some(reply.first_byte), bytes_per_second: Some(rate), ..Observed::default() }
}

fn seen_of_many(mut times: Vec<Duration>, mut firsts: Vec<Duration>, bytes: u64) -> Observed {
    let total: Duration = times.iter().sum();
    times.sort_unstable();
    firsts.sort_unstable();
    Observed {
        first_byte: Some(percentile(&firsts, 0.5)),
        p50: Some(percentile(&times, 0.5)),
        p99: Some(percentile(&times, 0.99)),
        bytes_per_second: Some(bytes as f64 / total.as_secs_f64()),
        ..Observed::default()
    }
}
