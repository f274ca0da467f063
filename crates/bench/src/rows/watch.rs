//! Watches: one event for many watches, and many watches that do not match an event.
//!
//! Every watch has its own connection. `watchers.rs` counts events.

use std::rc::Rc;
use std::time::Instant;

use anyhow::{Context as _, Result};
use serde_json::json;

use crate::bench::{Bench, Meter, create_namespace};
use crate::figure::{Observed, Quantity, median_of};
use crate::load::{Until, load};
use crate::pods::{NODES, node};
use crate::server::Server;
use crate::watchers::Watchers;
use crate::wire::{Client, Request};

/// The number of objects updated in turn.
const OBJECTS: usize = 100;
/// The size of each object's content in bytes.
const CONTENT: usize = 200;
/// The total number of events received in one run.
const DELIVERED: usize = 250_000;
/// The number of concurrent updates. No object is updated concurrently with itself.
const UPDATING: usize = 8;
/// The number of watches that select one object each.
const SELECTORS: usize = 2_000;
/// The number of concurrent creates.
const CREATING: usize = 48;

/// Updates of small objects that are all watched by every watch.
pub(super) async fn fan_out(bench: &mut Bench, watchers: usize) -> Result<(Quantity, Observed)> {
    let count = bench.runs;
    let server = bench.filled().await?;
    let namespace = format!("bench-watch-{watchers}");
    create_namespace(&server.client, &namespace).await?;
    let collection = format!("/api/v1/namespaces/{namespace}/configmaps");
    let create = |number: usize| Request::post(collection.clone(), object(&namespace, number, "new"));
    create_objects(&server.client, create).await?;
    let place = collection.clone();
    let update = move |run: usize, number: usize| {
        let content = format!("{run}-{number}");
        Request::put(format!("{place}/{}", name(number)), object(&namespace, number, &content))
    };
    delivered(server, &collection, watchers, count, update).await
}

/// Updates of custom resources, on a server that serves them in an empty namespace.
pub(super) async fn custom(
    server: &Server,
    collection: &str,
    watchers: usize,
    runs: usize,
) -> Result<(Quantity, Observed)> {
    let padding = "x".repeat(CONTENT);
    let create = |number: usize| {
        let object = json!({"apiVersion": "bench.example.com/v1", "kind": "Workload", "metadata": {"name": name(number)},
            "spec": {"image": "new", "description": padding}});
        Request::post(collection, object.to_string())
    };
    create_objects(&server.client, create).await?;
    let place = collection.to_owned();
    let update = move |run: usize, number: usize| {
        let patch = json!({"spec": {"image": format!("{run}-{number}")}});
        Request::patch(format!("{place}/{}", name(number)), "application/merge-patch+json", patch.to_string())
    };
    delivered(server, collection, watchers, runs, update).await
}

/// The cost of delivering updates. `update` performs one by its number in a run.
async fn delivered(
    server: &Server,
    collection: &str,
    watchers: usize,
    runs: usize,
    update: impl Fn(usize, usize) -> Request + Clone + 'static,
) -> Result<(Quantity, Observed)> {
    let revision = revision(&server.client, &format!("{collection}?limit=1")).await?;
    let path = format!("{collection}?watch=true&resourceVersion={revision}");
    let open = Watchers::open(&server.client, watchers, |_| path.clone()).await?;
    let updates = DELIVERED / watchers;
    let mut figures = Vec::new();
    for run in 1..=runs {
        let update = update.clone();
        let meter = Meter::start(&server.process)?;
        let began = Instant::now();
        let done = load(&server.client, UPDATING, Until::Count(updates), move |number| update(run, number)).await?;
        open.received((run * updates * watchers) as u64).await?;
        let elapsed = began.elapsed();
        let delivered = updates * watchers;
        let mut seen = meter.stop(done.seen())?;
        seen.bytes_per_second = None;
        seen.note = Some(format!("{:.0} events/s", delivered as f64 / elapsed.as_secs_f64()));
        let cpu = seen.cpu.unwrap_or_default() / u32::try_from(delivered)?;
        figures.push((Quantity::Time(cpu), seen));
    }
    Ok(median_of(figures))
}

/// Creates of pods while each of 4,000 nodes watches its own.
pub(super) async fn node_watchers(bench: &mut Bench) -> Result<(Quantity, Observed)> {
    let count = bench.runs;
    bench.filled().await?;
    let pods = Rc::clone(&bench.pods);
    let server = bench.filled().await?;
    let revision = revision(&server.client, "/api/v1/pods?limit=1").await?;
    let path = |number: usize| {
        format!("/api/v1/pods?watch=true&resourceVersion={revision}&fieldSelector=spec.nodeName%3D{}", node(number))
    };
    let open = Watchers::open(&server.client, NODES, path).await?;
    let mut runs = Vec::new();
    for run in 1..=count {
        let pods = Rc::clone(&pods);
        // As many pods as nodes, with consecutive numbers: each node gets one.
        let first = pods.count + run * NODES;
        let create = move |number: usize| Request::post(pods.collection(first + number), pods.body(first + number));
        let meter = Meter::start(&server.process)?;
        let done = load(&server.client, CREATING, Until::Count(NODES), create).await?;
        open.received((run * NODES) as u64).await?;
        let mut seen = meter.stop(done.seen())?;
        seen.bytes_per_second = None;
        seen.note = Some(format!("{:.0} pods/s", done.rate()));
        let cpu = seen.cpu.unwrap_or_default() / u32::try_from(NODES)?;
        runs.push((Quantity::Time(cpu), seen));
    }
    Ok(median_of(runs))
}

/// Updates of objects while 2,000 watches select one label each. Each update matches one of them.
pub(super) async fn selector_watchers(bench: &mut Bench) -> Result<(Quantity, Observed)> {
    let count = bench.runs;
    let server = bench.filled().await?;
    let namespace = "bench-selectors";
    create_namespace(&server.client, namespace).await?;
    let collection = format!("/api/v1/namespaces/{namespace}/configmaps");
    let body = |number: usize, content: &str| {
        let metadata =
            json!({"name": format!("object-{number:04}"), "labels": {"all": "yes", "one": format!("v{number}")}});
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"content": content}}).to_string()
    };
    let place = collection.clone();
    let create = move |number: usize| Request::post(&place, body(number, "new"));
    load(&server.client, UPDATING, Until::Count(SELECTORS), create).await?;
    let revision = revision(&server.client, &format!("{collection}?limit=1")).await?;
    let path = |number: usize| {
        format!("/api/v1/configmaps?watch=true&resourceVersion={revision}&labelSelector=all%3Dyes%2Cone%3Dv{number}")
    };
    let open = Watchers::open(&server.client, SELECTORS, path).await?;
    let mut runs = Vec::new();
    for run in 1..=count {
        let place = collection.clone();
        let update = move |number: usize| {
            Request::put(format!("{place}/object-{number:04}"), body(number, &format!("run-{run}")))
        };
        let meter = Meter::start(&server.process)?;
        let done = load(&server.client, UPDATING, Until::Count(SELECTORS), update).await?;
        open.received((run * SELECTORS) as u64).await?;
        let mut seen = meter.stop(done.seen())?;
        seen.bytes_per_second = None;
        seen.note = Some(format!("{:.0} updates/s", done.rate()));
        let cpu = seen.cpu.unwrap_or_default() / u32::try_from(SELECTORS)?;
        runs.push((Quantity::Time(cpu), seen));
    }
    Ok(median_of(runs))
}

async fn create_objects(client: &Client, create: impl Fn(usize) -> Request) -> Result<()> {
    let mut connection = client.connect().await?;
    for number in 0..OBJECTS {
        connection.send(create(number)).await?;
    }
    Ok(())
}

async fn revision(client: &Client, path: &str) -> Result<String> {
    let reply = client.connect().await?.send(Request::get(path)).await?;
    reply.field("resourceVersion").context("the list has no resourceVersion")
}

fn name(number: usize) -> String {
    format!("object-{:03}", number % OBJECTS)
}

fn object(namespace: &str, number: usize, content: &str) -> String {
    let padding = "x".repeat(CONTENT);
    let metadata = json!({"name": name(number), "namespace": namespace});
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"content": content, "padding": padding}})
        .to_string()
}
