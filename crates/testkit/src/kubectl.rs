//! Runs kubectl as a user does, against the server of a test.
//!
//! `KEELSON_TEST_KUBECTL`, which `cargo xtask test` sets, is the path of the binary. Its cache directory exists only as
//! long as the command, so no run uses the discovery documents of another server.

use std::ffi::{OsStr, OsString};
use std::future::{Future, IntoFuture};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

const VARIABLE: &str = "KEELSON_TEST_KUBECTL";
/// The variable with the paths of kubectls of other releases, in the form of `PATH`.
const OTHERS: &str = "KEELSON_TEST_KUBECTLS";

/// The longest wait for a command or its next line.
const PATIENCE: Duration = Duration::from_secs(60);

/// A command that is not running yet. Await it, or call [`Kubectl::spawn`] to read its output while it runs.
#[derive(Debug)]
pub struct Kubectl {
    command: Command,
    line: String,
    stdin: Option<String>,
    home: TempDir,
}

impl Kubectl {
    pub(crate) fn new<I>(kubeconfig: &Path, args: I) -> Self
    where
        I: IntoIterator,
        I::Item: AsRef<OsStr>,
    {
        let home = TempDir::new().expect("a temporary directory can be made");
        let cache = home.path().join("cache");
        Self::make(binary().as_ref(), kubeconfig, &cache, home, args)
    }

    /// A command of another kubectl, with a cache that outlives it.
    pub(crate) fn other<I>(program: &Path, kubeconfig: &Path, cache: &Path, args: I) -> Self
    where
        I: IntoIterator,
        I::Item: AsRef<OsStr>,
    {
        let home = TempDir::new().expect("a temporary directory can be made");
        Self::make(program, kubeconfig, cache, home, args)
    }

    fn make<I>(program: &Path, kubeconfig: &Path, cache: &Path, home: TempDir, args: I) -> Self
    where
        I: IntoIterator,
        I::Item: AsRef<OsStr>,
    {
        let args: Vec<OsString> = args.into_iter().map(|arg| arg.as_ref().to_owned()).collect();
        let line = args.iter().map(|arg| arg.to_string_lossy()).collect::<Vec<_>>().join(" ");
        let mut command = Command::new(program);
        command.arg("--kubeconfig").arg(kubeconfig).arg("--cache-dir").arg(cache).args(args);
        command.env("HOME", home.path()).env_remove("KUBECONFIG").current_dir(home.path());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        Self { command, line: format!("kubectl {line}"), stdin: None, home }
    }

    /// Sets the command's standard input (`-f -`).
    #[must_use]
    pub fn stdin(mut self, text: impl Into<String>) -> Self {
        self.stdin = Some(text.into());
        self
    }

    /// Sets an environment variable (`KUBE_EDITOR`).
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// Starts the command, whose output is read line by line (`-w`).
    ///
    /// # Panics
    /// It can't be started.
    pub async fn spawn(self) -> KubectlStream {
        let (mut child, line, home) = self.start().await;
        let stdout = child.stdout.take().expect("standard output was piped");
        KubectlStream { child, lines: BufReader::new(stdout).lines(), line, _home: home }
    }

    async fn start(mut self) -> (Child, String, TempDir) {
        self.command.stdin(if self.stdin.is_some() { Stdio::piped() } else { Stdio::null() });
        let mut child = self.command.spawn().unwrap_or_else(|error| panic!("cannot start {}: {error}", self.line));
        if let (Some(text), Some(mut pipe)) = (self.stdin, child.stdin.take()) {
            // A command that rejects its arguments closes the pipe early. Its own message is more useful than the error
            // of the pipe.
            let _ = pipe.write_all(text.as_bytes()).await;
        }
        (child, self.line, self.home)
    }

    async fn run(self) -> KubectlOutput {
        let (child, line, _home) = self.start().await;
        let output = tokio::time::timeout(PATIENCE, child.wait_with_output())
            .await
            .unwrap_or_else(|_| panic!("{line} did not end within {PATIENCE:?}"))
            .unwrap_or_else(|error| panic!("{line} cannot be waited for: {error}"));
        KubectlOutput {
            line,
            status: output.status,
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl IntoFuture for Kubectl {
    type Output = KubectlOutput;
    type IntoFuture = Pin<Box<dyn Future<Output = KubectlOutput> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

/// The output of a command and its exit status.
#[derive(Clone, Debug)]
pub struct KubectlOutput {
    line: String,
    /// The exit status.
    pub status: ExitStatus,
    /// The standard output.
    pub stdout: String,
    /// The standard error: warnings and errors.
    pub stderr: String,
}

impl KubectlOutput {
    /// The standard output of a command that must succeed.
    ///
    /// # Panics
    /// It failed.
    #[track_caller]
    pub fn ok(self) -> String {
        assert!(self.status.success(), "{} failed ({}):\n{}{}", self.line, self.status, self.stderr, self.stdout);
        self.stdout
    }

    /// The standard error of a command that must fail.
    ///
    /// # Panics
    /// It succeeded.
    #[track_caller]
    pub fn refused(self) -> String {
        assert!(!self.status.success(), "{} succeeded:\n{}", self.line, self.stdout);
        self.stderr
    }

    /// The JSON output of a command that must succeed.
    ///
    /// # Panics
    /// It failed or printed something else.
    #[track_caller]
    pub fn json(self) -> Value {
        let line = self.line.clone();
        let text = self.ok();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{line} printed no JSON ({error}):\n{text}"))
    }
}

/// A running command. Killed when dropped.
#[derive(Debug)]
pub struct KubectlStream {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    line: String,
    _home: TempDir,
}

impl KubectlStream {
    /// The next line; `None` at the end.
    ///
    /// # Panics No line for a minute.
    pub async fn next_line(&mut self) -> Option<String> {
        tokio::time::timeout(PATIENCE, self.lines.next_line())
            .await
            .unwrap_or_else(|_| panic!("{} printed nothing for {PATIENCE:?}", self.line))
            .unwrap_or_else(|error| panic!("{} cannot be read: {error}", self.line))
    }

    /// Stops the command.
    pub async fn stop(mut self) {
        // It may have ended by itself.
        let _ = self.child.kill().await;
    }
}

/// The kubectls of other releases that `cargo xtask test` has fetched. Prints a message if there are none.
#[allow(clippy::print_stderr, reason = "reports the tests that did not run")]
pub fn other_kubectls() -> Vec<PathBuf> {
    let named = std::env::var_os(OTHERS).filter(|named| !named.is_empty());
    if named.is_none() {
        eprintln!("NOT run: {OTHERS} names no kubectls of other releases (cargo xtask test fetches them)");
    }
    named.iter().flat_map(std::env::split_paths).collect()
}

fn binary() -> OsString {
    std::env::var_os(VARIABLE).unwrap_or_else(|| {
        panic!("{VARIABLE} does not name a kubectl: run the tests with `cargo xtask test`, which fetches one")
    })
}
