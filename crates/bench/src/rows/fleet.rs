//! A gateway in front of the filled server: its mirror from cold and after a restart, lists, pages and searches.
//!
//! The gateway is a separate process, and clients use their certificate for the server. A response with the header
//! `Keelson-Lag` comes from the mirror.

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use tokio::process::{Child, Command};

use crate::bench::{Bench, Meter};
use crate::figure::{Observed, Quantity, median_of, percentile};
use crate::process::Process;
use crate::wire::{Client, Credentials, Request};

const PODS: &str = "/api/v1/pods";
/// The header of responses from a mirror.
const LAG: &str = "keelson-lag";
/// The longest time until a gateway has loaded all resources, and the polling interval.
const PATIENCE: Duration = Duration::from_secs(120);
const ASK_EVERY: Duration = Duration::from_millis(2);
/// The number of requests in one run.
const ASKED: usize = 100;
/// The number of objects of the long list.
const LISTED: usize = 10_000;
/// The number of objects of a sorted page.
const PAGE: usize = 50;

/// The kind of figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fleet {
    /// The time from the start on an empty directory until the pods are served.
    Cold,
    /// The time from a start with the stored mirror of an earlier gateway.
    Restart,
    /// The memory of the gateway with the pods, at rest.
    Memory,
    /// A list of 10,000 pods.
    List,
    /// The first sorted page.
    FirstPage,
    /// A jump to the last sorted page.
    DeepPage,
    /// A search for a new word.
    Search,
    /// The first sorted page over two sources, which are the same server.
    MergedPage,
    /// A jump to the last sorted page over both sources.
    MergedDeepPage,
}

/// A running gateway, killed on drop.
struct Gateway {
    child: Child,
    process: Process,
    client: Client,
    ready_after: Duration,
}

/// One of the figures.
pub(super) async fn figure(bench: &mut Bench, which: Fleet) -> Result<(Quantity, Observed)> {
    let (runs, pods) = (bench.runs, bench.pods.count);
    let directory = bench.directory().join(format!("gateway-{}", which as usize));
    let binary = bench.binary().to_owned();
    let kubeconfig = bench.filled().await?.kubeconfig().to_owned();
    let sources = match which {
        Fleet::MergedPage | Fleet::MergedDeepPage => 2,
        _ => 1,
    };
    if sources > 1 {
        return merged(&binary, &directory, &kubeconfig, (runs, pods), which).await;
    }
    let mut figures = Vec::new();
    match which {
        Fleet::Cold => {
            for run in 0..runs {
                let gateway = start(&binary, &directory.join(run.to_string()), &kubeconfig, pods).await?;
                figures.push((Quantity::Time(gateway.ready_after), gateway.seen()?));
                gateway.stop().await?;
            }
        }
        Fleet::Restart => {
            start(&binary, &directory, &kubeconfig, pods).await?.stop().await?;
            for _ in 0..runs {
                let gateway = start(&binary, &directory, &kubeconfig, pods).await?;
                figures.push((Quantity::Time(gateway.ready_after), gateway.seen()?));
                gateway.stop().await?;
            }
        }
        Fleet::Memory => {
            let gateway = start(&binary, &directory, &kubeconfig, pods).await?;
            figures.push((Quantity::Memory(gateway.process.memory()?), Observed::default()));
            gateway.stop().await?;
        }
        _ => {
            let gateway = start(&binary, &directory, &kubeconfig, pods).await?;
            for run in 0..runs {
                figures.push(reads(&gateway, |number| path(which, pods, run * ASKED + number)).await?);
            }
            gateway.stop().await?;
        }
    }
    Ok(median_of(figures))
}

/// The path of a read.
fn path(which: Fleet, pods: usize, number: usize) -> String {
    let last = (pods / PAGE).max(1);
    let query = match which {
        Fleet::List => format!("limit={LISTED}&resourceVersion=0&resourceVersionMatch=NotOlderThan"),
        Fleet::DeepPage | Fleet::MergedDeepPage => {
            format!("limit={PAGE}&keelson.io/page={last}&keelson.io/sortBy=-spec.nodeName&resourceVersion=0")
        }
        Fleet::Search => format!("limit={PAGE}&keelson.io/search=service-{:03}&resourceVersion=0", number % 1_000),
        _ => format!("limit={PAGE}&keelson.io/sortBy=-spec.nodeName&resourceVersion=0"),
    };
    format!("{PODS}?{query}")
}

/// The median time of reads one after the other. The first one is not measured, since it may build an order.
async fn reads(gateway: &Gateway, path: impl Fn(usize) -> String) -> Result<(Quantity, Observed)> {
    let mut connection = gateway.client.connect().await?;
    let first = connection.send(Request::get(path(0))).await?;
    ensure!(first.header(LAG).is_some(), "the mirror does not answer {}", path(0));
    let meter = Meter::start(&gateway.process)?;
    let mut times = Vec::with_capacity(ASKED);
    for number in 1..=ASKED {
        times.push(connection.send(Request::get(path(number))).await?.whole);
    }
    times.sort_unstable();
    let (p50, p99) = (percentile(&times, 0.5), percentile(&times, 0.99));
    Ok((Quantity::Time(p50), meter.stop(Observed { p50: Some(p50), p99: Some(p99), ..Observed::default() })?))
}

/// Starts a gateway in front of one source, and waits until it serves the pods from its mirror.
async fn start(binary: &Path, directory: &Path, kubeconfig: &Path, pods: usize) -> Result<Gateway> {
    let gateway = launch(binary, directory, &[("one", kubeconfig)], None).await?;
    let (gateway, total) = gateway.serving(&format!("{PODS}?limit=1&resourceVersion=0&keelson.io/count=true")).await?;
    ensure!(total == pods.to_string(), "the gateway has {total} of {pods} pods");
    Ok(gateway)
}

/// A figure over two sources, which are the same server.
async fn merged(
    binary: &Path,
    directory: &Path,
    kubeconfig: &Path,
    (runs, pods): (usize, usize),
    which: Fleet,
) -> Result<(Quantity, Observed)> {
    // With several sources a gateway authenticates users by tokens only, so the row creates a token.
    let client = Client::new(Credentials::read(kubeconfig)?)?;
    let path_of_account = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let binding = r#"{"metadata":{"name":"bench-fleet"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"},"subjects":[{"kind":"ServiceAccount","namespace":"default","name":"default"}]}"#;
    let mut connection = client.connect().await?;
    // An earlier row may have created the account.
    let _exists =
        connection.send(Request::post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)).await;
    let token = client.connect().await?.send(Request::post(path_of_account, "{\"spec\":{}}")).await?;
    let token = token.field("token").context("the server made no token")?;
    let sources = [("one", kubeconfig), ("two", kubeconfig)];
    let gateway = launch(binary, directory, &sources, Some(format!("Bearer {token}"))).await?;
    let count = format!("/clusters/*{PODS}?limit=1&resourceVersion=0&keelson.io/requireAll=true");
    let (gateway, total) = gateway.serving(&count).await?;
    ensure!(total == (2 * pods).to_string(), "the gateway has {total} of {} pods", 2 * pods);
    let mut figures = Vec::new();
    for run in 0..runs {
        let of = |number| format!("/clusters/*{}", path(which, 2 * pods, run * ASKED + number));
        figures.push(reads(&gateway, of).await?);
    }
    gateway.stop().await?;
    Ok(median_of(figures))
}

async fn launch(
    binary: &Path,
    directory: &Path,
    sources: &[(&str, &Path)],
    authorization: Option<String>,
) -> Result<Gateway> {
    std::fs::create_dir_all(directory)?;
    // The port is free again once the listener is dropped.
    let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
    let log = directory.with_extension("log");
    let file = File::options().create(true).append(true).open(&log).context("cannot write the gateway's log")?;
    let mut command = Command::new(binary);
    command.args(["gateway", "--bind", &address.to_string(), "--data-dir"]).arg(directory);
    for (name, kubeconfig) in sources {
        command.arg("--source").arg(format!("{name}={}", kubeconfig.display()));
    }
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).kill_on_drop(true);
    let began = Instant::now();
    let mut child = command.spawn().with_context(|| format!("cannot run {}", binary.display()))?;
    let (authority, ca): (String, PathBuf) = (address.to_string(), directory.join("pki").join("ca.crt"));
    loop {
        if ca.exists() && std::net::TcpStream::connect(address).is_ok() {
            break;
        }
        if let Some(status) = child.try_wait()? {
            bail!("the gateway ended ({status}); its log is {}", log.display());
        }
        ensure!(began.elapsed() < PATIENCE, "the gateway does not listen within {PATIENCE:?}");
        tokio::time::sleep(ASK_EVERY).await;
    }
    let credentials = Credentials::behind(sources[0].1, authority, &ca)?;
    let client = Client::new(credentials)?.authorized(authorization);
    let process = Process::new(child.id().context("the gateway has ended")?);
    Ok(Gateway { child, process, client, ready_after: began.elapsed() })
}

impl Gateway {
    /// Waits until the mirror answers a path. Returns the number of objects.
    async fn serving(mut self, path: &str) -> Result<(Self, String)> {
        // The measured time includes the start of the listener.
        let (began, before) = (Instant::now(), self.ready_after);
        loop {
            if let Ok(mut connection) = self.client.connect().await
                && let Ok(reply) = connection.send(Request::get(path)).await
                && reply.header(LAG).is_some()
            {
                self.ready_after = before + began.elapsed();
                return Ok((self, reply.header("keelson-total-count").unwrap_or_default().to_owned()));
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("the gateway ended ({status})");
            }
            ensure!(began.elapsed() < PATIENCE, "the mirror does not answer within {PATIENCE:?}");
            tokio::time::sleep(ASK_EVERY).await;
        }
    }

    fn seen(&self) -> Result<Observed> {
        let (cpu, peak) = (Some(self.process.cpu()?), Some(self.process.peak_memory()?));
        Ok(Observed { cpu, peak, ..Observed::default() })
    }

    async fn stop(mut self) -> Result<()> {
        if let Some(pid) = self.child.id() {
            Command::new("kill").args(["-TERM", &pid.to_string()]).status().await.context("cannot send a signal")?;
        }
        tokio::time::timeout(PATIENCE, self.child.wait()).await.context("the gateway does not end")??;
        Ok(())
    }
}
