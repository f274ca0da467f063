//! `keelson demo`: fills a server with a made-up cluster, so that lists, queries and the console have content.
//!
//! A number of pods always gives the same cluster ([`cluster`]). Its objects ([`objects`]) are created by requests of
//! an administrator. An existing object is not changed, so a second run completes an interrupted one.

mod cluster;
mod objects;

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures::{StreamExt as _, stream};
use http::{Method, Request, StatusCode};
use kube::Client;
use serde_json::Value;

use self::objects::Object;
use crate::args::Demo;
use crate::output::{answer, note, note_over};
use crate::user::Server;

/// The number of concurrent requests.
const AT_ONCE: usize = 32;
/// The interval of progress lines.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
/// The longest wait until the server serves the custom resources.
const SERVED: Duration = Duration::from_secs(30);
const SERVED_POLL: Duration = Duration::from_millis(50);

/// Fills a server, or removes the demo from it.
///
/// # Errors
/// When the server can't be reached, or refuses an object.
pub(crate) fn run(settings: &Demo) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("starting a runtime")?;
    runtime.block_on(async {
        let client = Server::of(&settings.administrator).await?.into_client();
        if settings.remove { remove(&client).await } else { fill(&client, settings.pods).await }
    })
}

async fn fill(client: &Client, pods: u32) -> anyhow::Result<()> {
    let begun = Instant::now();
    let cluster = cluster::Cluster::of(pods);
    let mut progress = Progress::new(cluster.stages().iter().map(Vec::len).sum());
    for (number, stage) in cluster.stages().iter().enumerate() {
        let mut creating = stream::iter(stage.iter().map(|object| create(client, object))).buffer_unordered(AT_ONCE);
        while let Some(created) = creating.next().await {
            progress.step(created?);
        }
        if number == cluster::DEFINITIONS {
            served(client).await?;
        }
    }
    progress.end();
    let Progress { made, existing, .. } = progress;
    answer(format_args!(
        "made {made} objects in {:.1} s and found {existing} of them there already: {} namespaces, {} nodes, {pods} pods\n  try: kubectl get \
         pods -A --field-selector status.phase!=Running\n  try: kubectl get databases,topics -A\n  remove it with keelson demo --remove",
        begun.elapsed().as_secs_f64(),
        cluster.namespaces(),
        cluster.nodes(),
    ))
}

/// Creates an object and writes its status. Returns false if the object exists.
async fn create(client: &Client, object: &Object) -> anyhow::Result<bool> {
    let failed = || format!("creating {} {}", object.kind, object.name);
    let made = match send(client, Method::POST, &object.collection, "application/json", Some(&object.body)).await {
        Ok(_) => true,
        Err(kube::Error::Api(status)) if status.code == StatusCode::CONFLICT.as_u16() => false,
        Err(error) => return Err(error).with_context(failed),
    };
    if let Some(status) = object.status.as_ref().filter(|_| made) {
        let path = format!("{}/{}/status", object.collection, object.name);
        let patched = send(client, Method::PATCH, &path, "application/merge-patch+json", Some(status)).await;
        patched.with_context(|| format!("writing the status of {} {}", object.kind, object.name))?;
    }
    Ok(made)
}

/// Waits until the server serves the custom resources of the demo.
async fn served(client: &Client) -> anyhow::Result<()> {
    let begun = Instant::now();
    loop {
        let served = send(client, Method::GET, objects::CUSTOM_GROUP_VERSION, "", None).await;
        let kinds = served.ok().and_then(|list| Some(list["resources"].as_array()?.len())).unwrap_or_default();
        if kinds >= objects::CUSTOM_RESOURCES.len() {
            return Ok(());
        }
        anyhow::ensure!(begun.elapsed() < SERVED, "the custom resources of the demo are not served after {SERVED:?}");
        tokio::time::sleep(SERVED_POLL).await;
    }
}

async fn remove(client: &Client) -> anyhow::Result<()> {
    let selector = format!("?labelSelector={}", objects::SELECTOR);
    for collection in ["/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "/api/v1/nodes"] {
        let path = format!("{collection}{selector}");
        send(client, Method::DELETE, &path, "", None).await.with_context(|| format!("deleting {collection}"))?;
    }
    let namespaces = send(client, Method::GET, &format!("/api/v1/namespaces{selector}"), "", None).await;
    let namespaces = namespaces.context("listing the namespaces of the demo")?;
    let names: Vec<_> =
        namespaces["items"].as_array().into_iter().flatten().map(|it| it["metadata"]["name"].clone()).collect();
    for name in names.iter().filter_map(Value::as_str) {
        let path = format!("/api/v1/namespaces/{name}");
        send(client, Method::DELETE, &path, "", None)
            .await
            .with_context(|| format!("deleting the namespace {name}"))?;
    }
    answer(format_args!("deleted the demo: the server empties its {} namespaces", names.len()))
}

async fn send(
    client: &Client,
    method: Method,
    path: &str,
    kind: &str,
    body: Option<&Value>,
) -> Result<Value, kube::Error> {
    let bytes = body.map(Value::to_string).unwrap_or_default().into_bytes();
    let request = Request::builder().method(method).uri(path).header("content-type", kind).body(bytes);
    client.request(request.map_err(kube::Error::HttpError)?).await
}

/// The progress of the run: one line that is overwritten on a terminal, separate lines elsewhere.
struct Progress {
    total: usize,
    made: usize,
    existing: usize,
    begun: Instant,
    told: Instant,
    is_terminal: bool,
}

impl Progress {
    fn new(total: usize) -> Self {
        let now = Instant::now();
        Self { total, made: 0, existing: 0, begun: now, told: now, is_terminal: std::io::stderr().is_terminal() }
    }

    fn step(&mut self, made: bool) {
        *if made { &mut self.made } else { &mut self.existing } += 1;
        if self.told.elapsed() >= PROGRESS_INTERVAL {
            self.told = Instant::now();
            let done = self.made + self.existing;
            let rate = done as f64 / self.begun.elapsed().as_secs_f64();
            let left = (self.total - done) as f64 / rate;
            let line = format!("{done} of {} objects, {rate:.0} a second, {left:.0} s left", self.total);
            if self.is_terminal { note_over(line) } else { note(line) }
        }
    }

    fn end(&self) {
        if self.is_terminal {
            note_over("");
        }
    }
}
