//! The socket at which the owner of an ephemeral server gets forks: fresh servers with its objects.
//!
//! A connection is one fork. The fork ends when the connection closes, and so with its owner, also after kill -9. A
//! request is a line of JSON, and so is the response.
//!
//! A fork comes with the administrator's credentials, so only processes of the server's own user are served. The socket
//! is in the private directory of the server and has mode 0600, and the kernel reports the user of each peer. No flag
//! opens the socket on a server that keeps its objects, and no web page can reach it.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use keelson_server::{ForkOrigin, RunningServer, Server};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::private_file;

/// The name of the socket in the directory of the server.
const SOCKET: &str = "forks.sock";
/// The permissions of the socket.
const SOCKET_MODE: u32 = 0o600;
/// The maximum size of a request in bytes.
const REQUEST_BYTES: u64 = 1024;
/// The longest time until a request is complete.
const REQUEST_PATIENCE: Duration = Duration::from_secs(5);
/// The time that requests in flight have to end when a fork stops.
const GRACE: Duration = Duration::from_millis(100);
/// The longest time for the stop of all forks.
const END_PATIENCE: Duration = Duration::from_secs(2);
/// The pause after a failed accept, such as for lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The open socket. Dropping it removes the socket file.
pub(crate) struct Forks {
    listener: UnixListener,
    path: PathBuf,
    shared: Arc<Shared>,
    connections: TaskTracker,
}

/// The state that the connections share.
struct Shared {
    origin: ForkOrigin,
    /// The directory for kubeconfigs.
    directory: PathBuf,
    most: usize,
    /// A permit for each fork.
    room: Arc<Semaphore>,
    number: AtomicU64,
    /// The running forks by number, from which other forks can start.
    running: Mutex<BTreeMap<u64, ForkOrigin>>,
    stopping: CancellationToken,
}

/// A running fork.
struct Fork {
    number: u64,
    server: RunningServer,
    kubeconfig: PathBuf,
    _permit: OwnedSemaphorePermit,
}

impl Forks {
    /// Opens the socket in the directory of the server. A server without the socket is useful too, so a failure, such
    /// as a path that is too long for a socket, is logged.
    pub(crate) fn open(origin: &ForkOrigin, directory: &Path, most: usize) -> Option<Self> {
        let path = directory.join(SOCKET);
        let listener = match listen(&path) {
            Ok(listener) => listener,
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "the socket for forks can't be opened; this server has no forks");
                return None;
            }
        };
        let shared = Shared {
            origin: origin.clone(),
            directory: directory.to_owned(),
            most,
            room: Arc::new(Semaphore::new(most)),
            number: AtomicU64::new(0),
            running: Mutex::default(),
            stopping: CancellationToken::new(),
        };
        Some(Self { listener, path, shared: Arc::new(shared), connections: TaskTracker::new() })
    }

    /// The path of the socket.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Serves connections, and never returns.
    pub(crate) async fn serve(&self) -> Infallible {
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => drop(self.connections.spawn(self.shared.clone().attend(stream))),
                Err(error) => {
                    tracing::warn!(%error, "a connection for a fork could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Ends all forks.
    pub(crate) async fn end(self) {
        self.shared.stopping.cancel();
        self.connections.close();
        // Forks that exceed the timeout end with the runtime.
        let _ended = tokio::time::timeout(END_PATIENCE, self.connections.wait()).await;
    }
}

impl Drop for Forks {
    fn drop(&mut self) {
        // The directory is removed with the server in any case.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Shared {
    /// Serves one connection until its end, which ends its fork.
    async fn attend(self: Arc<Self>, stream: UnixStream) {
        if !is_owner(&stream) {
            tracing::warn!("a process of another user asked for a fork and got none");
            return;
        }
        let (reader, mut writer) = stream.into_split();
        let mut reader = BufReader::new(reader);
        let started = tokio::select! {
            () = self.stopping.cancelled() => return,
            started = self.start(&mut reader) => started,
        };
        match started {
            Ok(fork) => {
                self.running.lock().await.extend(fork.server.fork_origin().map(|origin| (fork.number, origin.clone())));
                self.run(&fork, reader, &mut writer).await;
                self.running.lock().await.remove(&fork.number);
                fork.end().await;
            }
            Err(error) => {
                // The client may have gone.
                let _ = answer(&mut writer, &json!({ "error": format!("{error:#}") })).await;
            }
        }
    }

    /// Reads the request and starts the fork.
    async fn start(&self, reader: &mut BufReader<OwnedReadHalf>) -> anyhow::Result<Fork> {
        let request = tokio::time::timeout(REQUEST_PATIENCE, request(reader)).await;
        let request = request.map_err(|_| anyhow::anyhow!("no complete request within {REQUEST_PATIENCE:?}"))??;
        let origin = match request.get("of") {
            None => self.origin.clone(),
            Some(of) => self.fork_named(of).await?,
        };
        let Ok(permit) = self.room.clone().try_acquire_owned() else {
            bail!("all {} forks of this server are in use; --max-forks allows more", self.most);
        };
        let mut config = origin.config_now().await;
        (config.shutdown_grace, config.parting) = (GRACE, crate::serve::EPHEMERAL_PARTING);
        let server = Server::start(config).await.context("starting the fork")?;
        tokio::select! {
            () = server.ready() => {}
            failure = server.failed() => bail!("starting the fork: {failure}"),
        }
        let number = self.number.fetch_add(1, Ordering::Relaxed) + 1;
        let kubeconfig = self.directory.join(format!("fork-{number}.kubeconfig"));
        private_file::write(&kubeconfig, &server.pki().kubeconfig(&server.url())).context("writing the kubeconfig")?;
        Ok(Fork { number, server, kubeconfig, _permit: permit })
    }

    /// The running fork that a request names.
    async fn fork_named(&self, of: &Value) -> anyhow::Result<ForkOrigin> {
        let number = of.as_str().and_then(|text| text.parse::<u64>().ok());
        let found = match number {
            Some(number) => self.running.lock().await.get(&number).cloned(),
            None => None,
        };
        found.with_context(|| format!("no fork {of} is running"))
    }

    /// Reports the fork to the client, and waits until the connection closes or the fork has to end.
    async fn run(&self, fork: &Fork, mut reader: BufReader<OwnedReadHalf>, writer: &mut OwnedWriteHalf) {
        if answer(writer, &fork.to_json()).await.is_err() {
            return;
        }
        let mut rest = tokio::io::sink();
        tokio::select! {
            // Further bytes have no meaning. An error ends the connection like its end.
            _ = tokio::io::copy(&mut reader, &mut rest) => {}
            () = self.stopping.cancelled() => {}
            failure = fork.server.failed() => tracing::error!(fork = fork.number, %failure, "a fork has failed"),
        }
    }
}

impl Fork {
    /// The response to its client.
    fn to_json(&self) -> Value {
        json!({
            "fork": self.number.to_string(),
            "url": self.server.url(),
            "kubeconfig": self.kubeconfig,
            "pid": std::process::id(),
            "version": env!("CARGO_PKG_VERSION"),
        })
    }

    async fn end(self) {
        self.server.shutdown().await;
        // The directory is removed with the server in any case.
        let _ = std::fs::remove_file(&self.kubeconfig);
    }
}

fn listen(path: &Path) -> std::io::Result<UnixListener> {
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(SOCKET_MODE))?;
    Ok(listener)
}

/// Returns true if the peer is a process of this server's user.
fn is_owner(stream: &UnixStream) -> bool {
    stream.peer_cred().is_ok_and(|peer| peer.uid() == rustix::process::geteuid().as_raw())
}

/// Reads a request: a JSON object in one line.
async fn request(reader: &mut BufReader<OwnedReadHalf>) -> anyhow::Result<Value> {
    let mut line = Vec::new();
    reader.take(REQUEST_BYTES).read_until(b'\n', &mut line).await.context("reading the request")?;
    ensure!(line.ends_with(b"\n"), "a request is one line of at most {REQUEST_BYTES} bytes");
    let request: Value = serde_json::from_slice(&line).context("the request is not JSON")?;
    let known = request.as_object().is_some_and(|fields| fields.keys().all(|field| field == "of"));
    ensure!(known, r#"a request is {{}} for a fork of the server, or {{"of":"FORK"}} for a fork of a fork"#);
    Ok(request)
}

async fn answer(writer: &mut OwnedWriteHalf, response: &Value) -> std::io::Result<()> {
    writer.write_all(format!("{response}\n").as_bytes()).await
}
