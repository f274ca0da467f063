//! The measured server: a child process on a data directory.
//!
//! The benchmark starts the server as an operator does, and stops and restarts it for the rows that measure this.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use tokio::process::{Child, Command};

use crate::process::Process;
use crate::wire::{Client, Credentials, Request};

/// The polling interval of readiness, which is also the error of the measured time.
const ASK_EVERY: Duration = Duration::from_millis(1);
/// The maximum time of a start or stop.
const PATIENCE: Duration = Duration::from_secs(120);

/// The command that starts servers.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    pub(crate) binary: PathBuf,
    pub(crate) args: Vec<String>,
    /// The number of server threads. One for each processor by default.
    pub(crate) threads: Option<usize>,
}

/// A running server, killed on drop.
pub(crate) struct Server {
    child: Child,
    pub(crate) process: Process,
    pub(crate) client: Client,
    kubeconfig: PathBuf,
    /// The time from its start to its first ready response.
    pub(crate) ready_after: Duration,
}

impl Launch {
    /// Returns the command for one of several servers, with its share of the machine's processors.
    pub(crate) fn sharing(&self, servers: usize) -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).div_ceil(servers);
        Self { threads: Some(threads), ..self.clone() }
    }

    /// Starts a server on the directory, with its objects there or in another store, and waits until it is ready.
    pub(crate) async fn start(&self, data: &Path, store: Option<&str>) -> Result<Server> {
        let kubeconfig = data.join("kubeconfig");
        // The kubeconfig of an earlier start has another port.
        if kubeconfig.exists() {
            std::fs::remove_file(&kubeconfig).context("cannot remove the old kubeconfig")?;
        }
        let log = data.with_extension("log");
        let file = File::options().create(true).append(true).open(&log).context("cannot write the server's log")?;
        let mut command = Command::new(&self.binary);
        command.args(["serve", "--bind", "127.0.0.1:0", "--data-dir"]).arg(data).args(&self.args);
        if let Some(store) = store {
            command.args(["--store", store]);
        }
        if let Some(threads) = self.threads {
            // Set by an environment variable instead of a flag, so that older builds can be measured too.
            command.env("KEELSON_THREADS", threads.to_string());
        }
        // The pods are on nodes that do not exist, and must not be collected.
        command.args(["--controllers", "*,-pod-garbage-collector-controller"]);
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).kill_on_drop(true);
        let began = Instant::now();
        let mut child = command.spawn().with_context(|| format!("cannot run {}", self.binary.display()))?;
        let client = ready(&mut child, &kubeconfig).await.with_context(|| {
            format!("the server did not start; its log:\n{}", std::fs::read_to_string(&log).unwrap_or_default())
        })?;
        let ready_after = began.elapsed();
        let process = Process::new(child.id().context("the server has ended")?);
        Ok(Server { child, process, client, kubeconfig, ready_after })
    }
}

impl Server {
    /// The kubeconfig of the administrator, written by the server.
    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Sends a signal such as `-HUP`, unless it has ended.
    pub(crate) async fn signal(&self, signal: &str) -> Result<()> {
        if let Some(pid) = self.child.id() {
            Command::new("kill").args([signal, &pid.to_string()]).status().await.context("cannot send a signal")?;
        }
        Ok(())
    }

    /// Stops the server and waits for its end.
    pub(crate) async fn stop(mut self) -> Result<()> {
        self.signal("-TERM").await?;
        tokio::time::timeout(PATIENCE, self.child.wait()).await.context("the server does not end")??;
        Ok(())
    }
}

async fn ready(child: &mut Child, kubeconfig: &Path) -> Result<Client> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if kubeconfig.exists()
            && let Ok(client) = ask(kubeconfig).await
        {
            return Ok(client);
        }
        if let Some(status) = child.try_wait()? {
            bail!("it ended ({status})");
        }
        if Instant::now() > deadline {
            bail!("it was not ready within {PATIENCE:?}");
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
}

async fn ask(kubeconfig: &Path) -> Result<Client> {
    let client = Client::new(Credentials::read(kubeconfig)?)?;
    client.connect().await?.send(Request::get("/readyz")).await?;
    Ok(client)
}
