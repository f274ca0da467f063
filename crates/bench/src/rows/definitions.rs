//! Three thousand definitions of custom resources, on a separate server.
//!
//! The rows measure their creation during other reads, their discovery, and a start with them. One more definition
//! shows the cost of a new resource among many. One run measures everything, and each row takes its figure.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use serde_json::json;

use crate::bench::Bench;
use crate::figure::{Observed, Quantity, duration, memory, percentile};
use crate::load::{Until, load};
use crate::process::Process;
use crate::server::Server;
use crate::wire::{Client, Request};

pub(super) const DEFINITIONS: usize = 3_000;
pub(super) const CREATING: usize = 16;
/// The number of resources in one group.
const GROUP: usize = 10;
/// The number of further definitions, created one after the other, each until its objects are served.
const MORE: usize = 100;
/// The directory of these rows.
const DIRECTORY: usize = 3_000;
/// The polling interval, which is also the error of the measured time.
const ASK_EVERY: Duration = Duration::from_millis(1);
/// The maximum time until a resource appears.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);
/// The idle time before memory is read, since allocators return memory after a while.
pub(super) const REST: Duration = Duration::from_secs(5);
/// The number of concurrent readers of the document.
const DOCUMENT_READERS: usize = 2;
/// The pause between two definitions for the CPU measurement, so that each has its own document.
const PAUSE: Duration = Duration::from_millis(100);
/// The duration of reads before there are definitions, for comparison.
const READING: Duration = Duration::from_secs(2);

pub(super) const DEFINED: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const READ: &str = "/api/v1/namespaces/kube-system";
pub(super) const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The kind of figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Definitions {
    /// From the first create until the discovery document has all resources.
    Discovered,
    /// The memory of the idle server with the definitions, minus its memory without them.
    Memory,
    /// From the create of one more definition until its objects are served, at the 99th percentile.
    Served,
    /// The CPU time for one more definition, without other requests.
    Cpu,
    /// Downloads of the compressed discovery document with all resources.
    Document,
    /// A get of another object during the creates, at the 99th percentile.
    Others,
    /// A start with all of them.
    Start,
}

/// All figures.
#[derive(Clone)]
pub(crate) struct DefinitionFigures {
    discovered: (Quantity, Observed),
    memory: (Quantity, Observed),
    served: (Quantity, Observed),
    cpu: (Quantity, Observed),
    document: (Quantity, Observed),
    others: (Quantity, Observed),
    start: (Quantity, Observed),
}

impl DefinitionFigures {
    fn figure(&self, which: Definitions) -> (Quantity, Observed) {
        match which {
            Definitions::Discovered => self.discovered.clone(),
            Definitions::Memory => self.memory.clone(),
            Definitions::Served => self.served.clone(),
            Definitions::Cpu => self.cpu.clone(),
            Definitions::Document => self.document.clone(),
            Definitions::Others => self.others.clone(),
            Definitions::Start => self.start.clone(),
        }
    }
}

/// One of the figures. The first call measures all of them.
pub(super) async fn figure(bench: &mut Bench, which: Definitions) -> Result<(Quantity, Observed)> {
    if bench.definitions.is_none() {
        bench.definitions = Some(measure(bench).await?);
    }
    bench.definitions.as_ref().map(|measured| measured.figure(which)).context("they were measured")
}

async fn measure(bench: &Bench) -> Result<DefinitionFigures> {
    let (server, again) = bench.restartable(DIRECTORY).await?;
    let Server { client, process, .. } = &server;
    let quiet = load(client, 1, Until::Elapsed(READING), |_| Request::get(READ)).await?.seen();
    tokio::time::sleep(REST).await;
    let before = process.memory()?;
    let (discovered, others) = create_all(client, process).await?;
    tokio::time::sleep(REST).await;
    let after = process.memory()?;
    let added = Quantity::Memory(after.saturating_sub(before));
    let memory = (added, Observed { note: Some(format!("from {}", memory(before))), ..Observed::default() });
    let others = (
        Quantity::Time(others.p99.unwrap_or_default()),
        Observed { note: Some(format!("without them {}", duration(quiet.p99.unwrap_or_default()))), ..others },
    );
    let document = document(client).await?;
    let served = one_after_the_other(client, process).await?;
    let cpu = one_in_peace(client, process).await?;
    server.stop().await?;
    let server = again.start().await?;
    let seen =
        Observed { cpu: Some(server.process.cpu()?), peak: Some(server.process.peak_memory()?), ..Observed::default() };
    let start = (Quantity::Time(server.ready_after), seen);
    ensure!(resources(&server.client).await? >= DEFINITIONS, "the server was ready without its definitions");
    server.stop().await?;
    Ok(DefinitionFigures { discovered, memory, served, cpu, document, others, start })
}

/// Creates all definitions during reads of other objects. Returns the time until all were discovered, and the latencies
/// of the reads.
async fn create_all(client: &Client, process: &Process) -> Result<((Quantity, Observed), Observed)> {
    let (began, cpu) = (Instant::now(), process.cpu()?);
    let is_done = Rc::new(Cell::new(false));
    let creating = async {
        let done =
            load(client, CREATING, Until::Count(DEFINITIONS), |number| Request::post(DEFINED, definition(number)));
        let done = done.await?;
        let created = began.elapsed();
        until(async || Ok(resources(client).await? >= DEFINITIONS)).await?;
        let discovered = began.elapsed();
        is_done.set(true);
        let note = format!("created after {}", duration(created));
        let cpu = Some(process.cpu()?.saturating_sub(cpu));
        Ok::<_, anyhow::Error>((Quantity::Time(discovered), Observed { note: Some(note), cpu, ..done.seen() }))
    };
    let reading = async {
        let (mut connection, mut times) = (client.connect().await?, Vec::new());
        while !is_done.get() {
            times.push(connection.send(Request::get(READ)).await?.whole);
        }
        times.sort_unstable();
        let (p50, p99) = (percentile(&times, 0.5), percentile(&times, 0.99));
        Ok(Observed { p50: Some(p50), p99: Some(p99), ..Observed::default() })
    };
    tokio::try_join!(creating, reading)
}

/// Creates further definitions, each after the previous one is served.
async fn one_after_the_other(client: &Client, process: &Process) -> Result<(Quantity, Observed)> {
    let cpu = process.cpu()?;
    let mut times = Vec::new();
    for number in DEFINITIONS..DEFINITIONS + MORE {
        let began = Instant::now();
        define(client, definition(number), &objects(number)).await?;
        times.push(began.elapsed());
    }
    times.sort_unstable();
    let each = process.cpu()?.saturating_sub(cpu) / u32::try_from(MORE)?;
    let (p50, p99) = (percentile(&times, 0.5), percentile(&times, 0.99));
    let note = Some(format!("{} of server CPU each, with asking", duration(each)));
    Ok((Quantity::Time(p99), Observed { p50: Some(p50), p99: Some(p99), note, ..Observed::default() }))
}

/// The server's work for one definition without requests: the CPU time with definitions, less that of an idle time.
async fn one_in_peace(client: &Client, process: &Process) -> Result<(Quantity, Observed)> {
    let (mut connection, count) = (client.connect().await?, u32::try_from(MORE)?);
    let before = process.cpu()?;
    tokio::time::sleep(PAUSE * count).await;
    let idle = process.cpu()?.saturating_sub(before);
    let before = process.cpu()?;
    for number in DEFINITIONS + MORE..DEFINITIONS + 2 * MORE {
        connection.send(Request::post(DEFINED, definition(number))).await?;
        tokio::time::sleep(PAUSE).await;
    }
    let each = process.cpu()?.saturating_sub(before).saturating_sub(idle) / count;
    Ok((Quantity::Time(each), Observed::default()))
}

/// Reads the document, which is compressed if the client accepts it.
async fn document(client: &Client) -> Result<(Quantity, Observed)> {
    let plain = || Request::get("/apis").header("accept", AGGREGATED);
    let bytes = client.connect().await?.send(plain()).await?.bytes;
    let compressed = move || plain().header("accept-encoding", "gzip");
    let compressed_bytes = client.connect().await?.send(compressed()).await?.bytes;
    let done = load(client, DOCUMENT_READERS, Until::Elapsed(READING), move |_| compressed()).await?;
    let note = Some(format!("{} KB of {} KB", compressed_bytes / 1000, bytes / 1000));
    Ok((Quantity::Rate(done.rate()), Observed { note, ..done.seen() }))
}

/// Creates a definition and waits until its collection is served.
pub(super) async fn define(client: &Client, definition: impl Into<Bytes>, collection: &str) -> Result<()> {
    client.connect().await?.send(Request::post(DEFINED, definition)).await?;
    until(async || Ok(client.connect().await?.send(Request::get(format!("{collection}?limit=1"))).await.is_ok())).await
}

/// Polls until the condition holds.
async fn until(is_so: impl AsyncFn() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !is_so().await? {
        ensure!(Instant::now() < deadline, "the created objects did not appear within {PATIENCE:?}");
        tokio::time::sleep(ASK_EVERY).await;
    }
    Ok(())
}

/// The number of the resources in the document.
async fn resources(client: &Client) -> Result<usize> {
    let mut connection = client.connect().await?;
    let body = connection.open(Request::get("/apis").header("accept", AGGREGATED)).await?;
    let document = body.collect().await?.to_bytes();
    Ok(String::from_utf8_lossy(&document).matches("\"resource\":\"things").count())
}

fn group(number: usize) -> String {
    format!("group{}.bench.example.com", number / GROUP)
}

/// The collection of a definition's resource.
fn objects(number: usize) -> String {
    format!("/apis/{}/v1/things{number}", group(number))
}

pub(super) fn definition(number: usize) -> Vec<u8> {
    let schema = json!({
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {"replicas": {"type": "integer", "minimum": 0}, "name": {"type": "string"}},
            },
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        },
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("things{number}.{}", group(number))},
        "spec": {
            "group": group(number),
            "scope": "Namespaced",
            "names": {"plural": format!("things{number}"), "singular": format!("thing{number}"), "kind": format!("Thing{number}")},
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": schema},
                "subresources": {"status": {}},
            }],
        },
    })
    .to_string()
    .into_bytes()
}
