//! The `keelson` binary as a child process: for what only a process can show, such as kill -9 and a restart on its data.
//!
//! A test passes `env!("CARGO_BIN_EXE_keelson")`, which cargo sets for tests of that crate. The child is killed when this
//! is dropped. A restart uses the address of the first start, so that clients stay valid.

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

/// Longest time that a start or an end is waited for.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often a starting server is asked whether it is ready.
const ASK_EVERY: Duration = Duration::from_millis(5);

/// What to start.
#[derive(Debug)]
pub struct ProcessServerBuilder {
    binary: PathBuf,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    data: Option<PathBuf>,
}

impl ProcessServerBuilder {
    /// An argument after `serve`.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// Several arguments after `serve`.
    #[must_use]
    pub fn args<A: AsRef<OsStr>>(self, args: impl IntoIterator<Item = A>) -> Self {
        args.into_iter().fold(self, Self::arg)
    }

    /// A variable of its environment.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// A data directory that outlives the server; a temporary one otherwise.
    #[must_use]
    pub fn data_dir(mut self, path: impl Into<PathBuf>) -> Self {
        self.data = Some(path.into());
        self
    }

    /// Starts it and waits until it is ready.
    ///
    /// # Panics
    /// When it is not ready within a minute; the text ends with what it logged.
    pub async fn start(self) -> ProcessServer {
        let directory = TempDir::new().expect("a temporary directory can be made");
        let data = self.data.unwrap_or_else(|| directory.path().join("data"));
        let log = directory.path().join("log");
        let launch = Launch { binary: self.binary, args: self.args, env: self.env, data, log };
        let (child, endpoint) = launch.start("127.0.0.1:0").await;
        ProcessServer { child, endpoint, launch, _directory: directory }
    }
}

/// A running child process, reached as an [`Endpoint`].
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
    /// A server made of this binary, with a data directory of its own unless another is given.
    pub fn builder(binary: impl Into<PathBuf>) -> ProcessServerBuilder {
        ProcessServerBuilder { binary: binary.into(), args: Vec::new(), env: Vec::new(), data: None }
    }

    /// The directory that holds its store, certificates and kubeconfig.
    pub fn data_dir(&self) -> &Path {
        &self.launch.data
    }

    /// Its process, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// What it logged so far.
    pub fn log(&self) -> String {
        self.launch.log()
    }

    /// kill -9: nothing is flushed, nothing is said goodbye to.
    ///
    /// # Panics
    /// When it cannot be killed.
    pub async fn kill(&mut self) {
        self.child.kill().await.expect("a child of ours can be killed");
    }

    /// Asks it to end (SIGTERM) and waits until it has.
    ///
    /// # Panics
    /// When it does not end within a minute.
    pub async fn terminate(&mut self) -> ExitStatus {
        self.signal("-TERM").await;
        self.ended().await
    }

    /// Sends it a signal, `-HUP` for one, unless it has ended.
    ///
    /// # Panics
    /// When that can't be sent.
    pub async fn signal(&self, signal: &str) {
        if let Some(pid) = self.child.id() {
            let sent = Command::new("kill").args([signal, &pid.to_string()]).status().await;
            assert!(sent.is_ok_and(|status| status.success()), "cannot send a signal to process {pid}");
        }
    }

    /// Waits until it ends by itself.
    ///
    /// # Panics
    /// When it does not end within a minute.
    pub async fn ended(&mut self) -> ExitStatus {
        tokio::time::timeout(PATIENCE, self.child.wait())
            .await
            .unwrap_or_else(|_| panic!("the server did not end within {PATIENCE:?}; its log:\n{}", self.log()))
            .expect("a child of ours can be waited for")
    }

    /// What the next [`restart`](Self::restart) starts on the same data: another binary, other arguments, another environment.
    pub fn change(&mut self, to: ProcessServerBuilder) {
        (self.launch.binary, self.launch.args, self.launch.env) = (to.binary, to.args, to.env);
    }

    /// Starts it again on the same data and the same address, after a [`kill`](Self::kill) or
    /// [`terminate`](Self::terminate).
    ///
    /// # Panics
    /// When it is not ready within a minute.
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
        // The file of an earlier start names an earlier port; this start writes its own once it listens.
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

    /// The endpoint, once its kubeconfig is written and it says that it is ready.
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
