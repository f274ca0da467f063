//! `keelson demo`: fills a server with a made-up cluster, so that lists, queries and the console have content.
//!
//! A number of pods always gives the same cluster ([`cluster`]). Its objects ([`objects`]) are created by requests of
//! an administrator. An existing object is not changed, so a second run completes an interrupted one.

mod cluster;
mod objects;

use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures::{StreamExt as _, stream};
use http::{Method, Request, StatusCode};
use kube::Client;
use serde_json::{Value, json};

use self::objects::Object;
use crate::args::{Demo, Output};
use crate::interrupt::Interrupt;
use crate::output::answer;
use crate::progress::{Progress, Step, Unit};
use crate::user::Server;

/// The number of concurrent requests.
const AT_ONCE: usize = 32;
/// The longest wait until the server serves the custom resources.
const SERVED: Duration = Duration::from_secs(30);
const SERVED_POLL: Duration = Duration::from_millis(50);

/// Fills a server, or removes the demo from it.
///
/// # Errors
/// When the server can't be reached, or refuses an object.
pub(crate) fn run(settings: &Demo) -> anyhow::Result<()> {
    let interrupt = Interrupt::listen("repeat the command to continue, or delete the demo with --remove")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("starting a runtime")?;
    let output = settings.output.form;
    runtime.block_on(interrupt.or(async {
        let client = Server::new(&settings.administrator).await?.into_client();
        if settings.remove { remove(&client, output).await } else { fill(&client, settings.pods, output).await }
    }))
}

async fn fill(client: &Client, pods: u32, output: Output) -> anyhow::Result<()> {
    let begun = Instant::now();
    let cluster = cluster::Cluster::with_pods(pods);
    let total = cluster.stages().iter().map(Vec::len).sum::<usize>() as u64;
    let (mut made, mut existing) = (0, 0);
    let mut progress = Progress::new("demo");
    for (number, stage) in cluster.stages().iter().enumerate() {
        let mut creating = stream::iter(stage.iter().map(|object| create(client, object))).buffer_unordered(AT_ONCE);
        while let Some(created) = creating.next().await {
            *if created? { &mut made } else { &mut existing } += 1;
            progress.step(Step { stage: "creating", unit: Unit::Objects, done: made + existing, total });
        }
        if number == cluster::DEFINITIONS {
            served(client).await?;
        }
    }
    progress.end();
    let (namespaces, nodes, seconds) = (cluster.namespaces(), cluster.nodes(), begun.elapsed().as_secs_f64());
    if output == Output::Json {
        return answer(json!({
            "created": made, "existing": existing, "namespaces": namespaces, "nodes": nodes, "pods": pods,
            "seconds": seconds,
        }));
    }
    answer(format_args!(
        "made {made} objects in {seconds:.1} s and found {existing} of them there already: {namespaces} namespaces, {nodes} nodes, {pods} \
         pods\n  try: kubectl get pods -A --field-selector status.phase!=Running\n  try: kubectl get databases,topics -A\n  remove it \
         with keelson demo --remove"
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

async fn remove(client: &Client, output: Output) -> anyhow::Result<()> {
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
    if output == Output::Json {
        return answer(json!({ "deletedNamespaces": names.len() }));
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
