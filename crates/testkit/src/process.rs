//! Runs the `keelson` binary as a child process, for tests that need a process: kill -9, and a restart on its data.
//!
//! A test passes `env!("CARGO_BIN_EXE_keelson")`, which cargo sets for tests of that crate. Dropping the handle kills
//! the child. A restart reuses the first address, so existing clients stay valid.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::time::Instant;

use crate::Endpoint;
use crate::server::CONTROLLERS;

/// The longest wait for a start or an end.
const PATIENCE: Duration = Duration::from_secs(60);
/// The interval between readiness checks of a starting server.
const ASK_EVERY: Duration = Duration::from_millis(5);

/// The settings of a process.
#[derive(Debug)]
pub struct ProcessServerBuilder {
    binary: PathBuf,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    data: Option<PathBuf>,
}

impl ProcessServerBuilder {
    /// Adds an argument after `serve`.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// Adds several arguments after `serve`.
    #[must_use]
    pub fn args<A: AsRef<OsStr>>(self, args: impl IntoIterator<Item = A>) -> Self {
        args.into_iter().fold(self, Self::arg)
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Sets a data directory that outlives the server; a temporary one by default.
    #[must_use]
    pub fn data_dir(mut self, path: impl Into<PathBuf>) -> Self {
        self.data = Some(path.into());
        self
    }

    /// Starts the process and waits until it is ready.
    ///
    /// # Panics
    /// When the server is not ready within a minute; the text ends with its log.
    pub async fn start(self) -> ProcessServer {
        let directory = TempDir::new().expect("a temporary directory can be made");
        let data = self.data.unwrap_or_else(|| directory.path().join("data"));
        let log = directory.path().join("log");
        let launch = Launch { binary: self.binary, args: self.args, env: self.env, data, log };
        let (child, endpoint) = launch.start("127.0.0.1:0").await;
        ProcessServer { child, endpoint, launch, _directory: directory }
    }
}

/// A running child process, which derefs to its [`Endpoint`].
#[derive(Debug)]
pub struct ProcessServer {
    child: Child,
    endpoint: Endpoint,
    launch: Launch,
    _directory: TempDir,
}

impl Deref for ProcessServer {
    type Target = Endpoint;

    fn deref(&self) -> &Endpoint {
        &self.endpoint
    }
}

impl ProcessServer {
    /// A builder for this binary. It uses a new data directory by default.
    pub fn builder(binary: impl Into<PathBuf>) -> ProcessServerBuilder {
        ProcessServerBuilder { binary: binary.into(), args: Vec::new(), env: Vec::new(), data: None }
    }

    /// The directory with its store, certificates and kubeconfig.
    pub fn data_dir(&self) -> &Path {
        &self.launch.data
    }

    /// The process id, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// The log so far.
    pub fn log(&self) -> String {
        self.launch.log()
    }

    /// Kills the process with SIGKILL. It flushes and closes nothing.
    ///
    /// # Panics
    /// When the process can't be killed.
    pub async fn kill(&mut self) {
        self.child.kill().await.expect("a child of ours can be killed");
    }

    /// Sends SIGTERM and waits for the end.
    ///
    /// # Panics
    /// When the process still runs after a minute.
    pub async fn terminate(&mut self) -> ExitStatus {
        self.signal("-TERM").await;
        self.ended().await
    }

    /// Sends a signal such as `-HUP`, unless it has ended.
    ///
    /// # Panics
    /// When the signal can't be sent.
    pub async fn signal(&self, signal: &str) {
        if let Some(pid) = self.child.id() {
            let sent = Command::new("kill").args([signal, &pid.to_string()]).status().await;
            assert!(sent.is_ok_and(|status| status.success()), "cannot send a signal to process {pid}");
        }
    }

    /// Waits until it ends by itself.
    ///
    /// # Panics
    /// When the process still runs after a minute.
    pub async fn ended(&mut self) -> ExitStatus {
        tokio::time::timeout(PATIENCE, self.child.wait())
            .await
            .unwrap_or_else(|_| panic!("the server did not end within {PATIENCE:?}; its log:\n{}", self.log()))
            .expect("a child of ours can be waited for")
    }

    /// Sets binary, arguments and environment of the next [`restart`](Self::restart) on the same data.
    pub fn change(&mut self, to: ProcessServerBuilder) {
        (self.launch.binary, self.launch.args, self.launch.env) = (to.binary, to.args, to.env);
    }

    /// Restarts it on the same data and address, after a [`kill`](Self::kill) or [`terminate`](Self::terminate).
    ///
    /// # Panics
    /// When the server is not ready within a minute.
    pub async fn restart(&mut self) {
        assert!(self.child.id().is_none(), "the server still runs");
        let url = self.endpoint.url();
        (self.child, self.endpoint) = self.launch.start(url.trim_start_matches("https://")).await;
    }
}

#[derive(Debug)]
struct Launch {
    binary: PathBuf,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    data: PathBuf,
    log: PathBuf,
}

impl Launch {
    async fn start(&self, bind: &str) -> (Child, Endpoint) {
        let mut child = self.spawn(bind).unwrap_or_else(|error| panic!("cannot start the server: {error:#}"));
        match self.ready(&mut child).await {
            Ok(endpoint) => (child, endpoint),
            Err(error) => panic!("the server did not start: {error:#}; its log:\n{}", self.log()),
        }
    }

    fn spawn(&self, bind: &str) -> Result<Child> {
        // The kubeconfig of an earlier start has an earlier port. This start writes a new one once it listens.
        match std::fs::remove_file(self.kubeconfig()) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        let log = File::options().create(true).append(true).open(&self.log).context("cannot write the log")?;
        let mut command = Command::new(&self.binary);
        command.env("KEELSON_CONTROLLERS", CONTROLLERS).envs(self.env.iter().map(|(name, value)| (name, value)));
        command.arg("serve").args(["--bind", bind]).arg("--data-dir").arg(&self.data).args(&self.args);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).kill_on_drop(true);
        command.spawn().with_context(|| format!("cannot run {}", self.binary.display()))
    }

    async fn ready(&self, child: &mut Child) -> Result<Endpoint> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(endpoint) = self.ask().await {
                return Ok(endpoint);
            }
            if let Some(status) = child.try_wait()? {
                bail!("it ended ({status})");
            }
            if Instant::now() > deadline {
                bail!("not ready within {PATIENCE:?}");
            }
            tokio::time::sleep(ASK_EVERY).await;
        }
    }

    /// Returns the endpoint if its kubeconfig is written and the server is ready.
    async fn ask(&self) -> Option<Endpoint> {
        if !self.kubeconfig().exists() {
            return None;
        }
        let endpoint = Endpoint::from_kubeconfig(self.kubeconfig()).await.ok()?;
        let answer = endpoint.raw().get("/readyz").try_send().await.ok()?;
        (answer.status == 200).then_some(endpoint)
    }

    fn kubeconfig(&self) -> PathBuf {
        self.data.join("kubeconfig")
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}
