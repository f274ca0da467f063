//! The server as a child process: the binary of `KEELSON_BIN`, or the `keelson` on the path.
//!
//! Dropping the handle ends it with SIGTERM. It also ends by itself when this process ends in any way. Its data
//! directory is temporary.
//!
//! Its forks run in the same child. It offers them at a socket in its directory: a connection is a fork.

use std::fmt;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _};
use tokio::sync::oneshot;

use crate::builder::Builder;
use crate::error::Error;

/// The timeout until the server is ready.
const START_LIMIT: Duration = Duration::from_secs(60);
/// The time that the server has to stop in order before it is killed.
const END_LIMIT: Duration = Duration::from_secs(5);
/// The interval of checks of a stopping process.
const POLL: Duration = Duration::from_millis(1);
/// The number of bytes from the end of the log that an error includes.
const SHOWN_LOG_BYTES: u64 = 4096;

/// The longest time for the stop of a fork.
const FORK_END_LIMIT: Duration = Duration::from_secs(5);

/// A server in a child process: the child's own, or a fork. The child ends with the last of them.
pub(crate) struct Process {
    // ORDER: a fork ends before the child.
    fork: Option<Fork>,
    running: Arc<Running>,
}

/// A child process. Dropping it ends the process.
struct Running {
    child: Child,
    log: File,
    directory: Option<PathBuf>,
    /// The socket for forks.
    socket: Option<PathBuf>,
}

/// A fork. Dropping it ends the fork.
struct Fork {
    name: String,
    /// The fork ends with the connection.
    connection: UnixStream,
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").field("pid", &self.pid()).finish_non_exhaustive()
    }
}

impl Process {
    /// Starts a server. Returns it with its kubeconfig.
    pub(crate) async fn start(settings: &Builder, binary: &Path) -> Result<(Self, String), Error> {
        // The log is an unnamed file: the system removes it when its handles are closed.
        let log = tempfile::tempfile().map_err(Error::io("making a log file"))?;
        let to_log = log.try_clone().map_err(Error::io("making a log file"))?;
        let mut command = Command::new(binary);
        // The settings of the server come only from the builder.
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("KEELSON_")) {
            command.env_remove(name);
        }
        command.args(["serve", "--ephemeral", "--bind", "127.0.0.1:0", "--output", "json"]);
        command.arg(format!("--exit-with-parent={}", std::process::id()));
        if let Some(controllers) = &settings.controllers {
            command.arg(format!("--controllers={controllers}"));
        }
        if let Some(history) = settings.history {
            command.arg(format!("--history={}s", history.as_secs().max(1)));
        }
        command.args(&settings.args);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(to_log);
        let mut child = command.spawn().map_err(Error::io(format!("starting {}", binary.display())))?;
        let output = child.stdout.take();
        let mut process = Running { child, log, directory: None, socket: None };
        let line = match tokio::time::timeout(START_LIMIT, first_line(output)).await {
            Ok(Ok(line)) => line,
            Ok(Err(_)) => return Err(process.failure("it ended")),
            Err(_) => return Err(process.failure(&format!("it was not ready within {START_LIMIT:?}"))),
        };
        let Ok(told) = serde_json::from_str::<Value>(&line) else {
            return Err(process.failure("it printed no line of JSON"));
        };
        process.directory = told["dataDirectory"].as_str().map(PathBuf::from);
        process.socket = told["forkSocket"].as_str().map(PathBuf::from);
        let kubeconfig = read_kubeconfig(&told)?;
        Ok((Self { fork: None, running: Arc::new(process) }, kubeconfig))
    }

    /// The process id, for example for a debugger.
    pub(crate) fn pid(&self) -> u32 {
        self.running.child.id()
    }

    /// Starts a fork in the child. Returns it with its kubeconfig.
    pub(crate) async fn fork(&self) -> Result<(Self, String), Error> {
        let failed = |action: &'static str| Error::io(format!("a fork: {action}"));
        let Some(socket) = &self.running.socket else {
            return Err(Error::Start("a fork: the server has no socket for forks".to_owned()));
        };
        let mut connection = tokio::net::UnixStream::connect(socket).await.map_err(failed("connecting"))?;
        let of = self.fork.as_ref().map(|fork| json!({ "of": fork.name }));
        let request = format!("{}\n", of.unwrap_or_else(|| json!({})));
        connection.write_all(request.as_bytes()).await.map_err(failed("sending the request"))?;
        let mut line = String::new();
        let mut reader = tokio::io::BufReader::new(&mut connection);
        match tokio::time::timeout(START_LIMIT, reader.read_line(&mut line)).await {
            Ok(read) => read.map_err(failed("reading the response"))?,
            Err(_) => return Err(Error::Start(format!("a fork: it was not ready within {START_LIMIT:?}"))),
        };
        let told: Value = serde_json::from_str(&line).map_err(|_| Error::Ended)?;
        if let Some(reason) = told["error"].as_str() {
            return Err(Error::Start(format!("a fork: {reason}")));
        }
        let kubeconfig = read_kubeconfig(&told)?;
        let connection = connection.into_std().map_err(failed("keeping the connection"))?;
        let fork = Fork { name: told["fork"].as_str().unwrap_or_default().to_owned(), connection };
        Ok((Self { fork: Some(fork), running: self.running.clone() }, kubeconfig))
    }
}

impl Running {
    fn failure(&mut self, reason: &str) -> Error {
        let mut end = String::new();
        let shown = self.log.metadata().map_or(0, |log| log.len().saturating_sub(SHOWN_LOG_BYTES));
        if self.log.seek(SeekFrom::Start(shown)).is_ok() {
            let mut bytes = Vec::new();
            // An unreadable log must not hide the original failure.
            let _ = (&self.log).take(SHOWN_LOG_BYTES).read_to_end(&mut bytes);
            end = String::from_utf8_lossy(&bytes).into_owned();
        }
        Error::Start(format!("{reason}; its log ends with:\n{end}"))
    }
}

/// Reads the kubeconfig that a line of the server names.
fn read_kubeconfig(line: &Value) -> Result<String, Error> {
    let path = line["kubeconfig"].as_str().unwrap_or_default();
    std::fs::read_to_string(path).map_err(Error::io(format!("reading {path}")))
}

/// The first line of the output, which the server prints when it is ready.
async fn first_line(output: Option<ChildStdout>) -> Result<String, oneshot::error::RecvError> {
    let (told, line) = oneshot::channel();
    // A thread, since no timeout applies to a read from a child's pipe. The thread ends with the pipe.
    std::thread::spawn(move || {
        let mut text = String::new();
        let Some(output) = output else { return };
        let mut output = BufReader::new(output);
        if output.read_line(&mut text).is_ok_and(|bytes| bytes > 0) {
            let _ = told.send(text);
            // Reads the rest, so that the pipe stays open and never fills.
            let _ = std::io::copy(&mut output, &mut std::io::sink());
        }
    });
    line.await
}

impl Drop for Fork {
    fn drop(&mut self) {
        // Errors mean that the server has ended, and its forks with it.
        let _ = self.connection.shutdown(Shutdown::Write);
        let _ = self.connection.set_nonblocking(false);
        let _ = self.connection.set_read_timeout(Some(FORK_END_LIMIT));
        // The server closes the connection when the fork has ended.
        let _ = std::io::copy(&mut self.connection, &mut std::io::sink());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // The process may already have ended.
            let _ = kill_process(pid, Signal::TERM);
        }
        let deadline = Instant::now() + END_LIMIT;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() > deadline {
                let _ = self.child.kill();
                let _ = self.child.wait();
                if let Some(directory) = &self.directory {
                    let _ = std::fs::remove_dir_all(directory);
                }
                return;
            }
            std::thread::sleep(POLL);
        }
    }
}
