//! The server in this process: it has its own threads, and its objects are in memory.
//!
//! Its own runtime lets it outlive the runtime of one test if several tests share it. All of its tasks end with its
//! thread.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use keelson_server::{Config, ForkOrigin, Server, Switches};
use keelson_storage::Store as _;
use keelson_storage::memory::MemorySnapshot;
use tokio::sync::oneshot;

use crate::builder::Builder;
use crate::clock::Clock;
use crate::error::Error;

/// The number of runtime threads of one server.
const THREADS: usize = 2;
/// The time that requests in flight have to end when the server stops.
const GRACE: Duration = Duration::from_millis(100);
/// The time that idle clients have to close their connections when the server stops.
const PARTING: Duration = Duration::from_millis(20);
/// The timeout for the stop of a server.
const STOP_LIMIT: Duration = Duration::from_secs(2);
/// The timeout for tasks of a stopped server that can't be interrupted.
const LAST_GRACE: Duration = Duration::from_millis(500);

/// The prefixes of keys that belong to the server itself: its identity and its address. A restore does not change them.
const OWN_KEYS: [&str; 2] = ["/registry/leases/kube-system/keelson", "/registry/masterleases/"];

/// All objects of a server at one moment. It shares memory with the server, and a clone copies no objects.
#[derive(Clone)]
pub struct Snapshot(MemorySnapshot);

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot").field("revision", &self.0.revision().to_string()).finish()
    }
}

/// A server in this process. Dropping it ends the server.
pub(crate) struct Embedded {
    origin: ForkOrigin,
    pub(crate) clock: Clock,
    running: Running,
}

/// The thread of a server.
struct Running {
    /// No message is sent: dropping the sender ends the server.
    end: Option<oneshot::Sender<()>>,
    /// It is closed when the server has ended.
    ended: oneshot::Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

/// A server that has just started.
struct StartedServer {
    kubeconfig: String,
    origin: ForkOrigin,
}

impl Embedded {
    /// Starts a server. Returns it with its kubeconfig.
    pub(crate) async fn start(settings: &Builder) -> Result<(Self, String), Error> {
        if !settings.args.is_empty() {
            return Err(Error::Argument("a server in this process takes no arguments of `keelson serve`".to_owned()));
        }
        let clock = Clock::default();
        let mut config = Config {
            console: false,
            cache_check_interval: None,
            shutdown_grace: GRACE,
            parting: PARTING,
            clock: Arc::new(clock.clone()),
            ..Config::default()
        };
        if let Some(controllers) = &settings.controllers {
            let switches = Switches::parse(controllers.split(',').filter(|name| !name.is_empty()));
            config.controllers = switches.map_err(|error| Error::Argument(format!("the controllers: {error}")))?;
        }
        // An alpha API of Kubernetes, which is off there too. It would add nearly a hundred writes to each start.
        config.registry.storage_version_api = false;
        config.history = settings.history.unwrap_or(config.history);
        Self::run(config, clock).await
    }

    async fn run(config: Config, clock: Clock) -> Result<(Self, String), Error> {
        let (running, StartedServer { kubeconfig, origin }) = Running::start(config).await?;
        Ok((Self { origin, clock, running }, kubeconfig))
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot(self.origin.store().snapshot())
    }

    pub(crate) fn restore(&self, snapshot: &Snapshot) {
        self.origin.store().restore(&snapshot.0, |key| OWN_KEYS.iter().any(|own| key.as_str().starts_with(own)));
    }

    /// Starts another server with the same keys and objects.
    pub(crate) async fn fork(&self) -> Result<(Self, String), Error> {
        self.start_fork(self.origin.config_now().await).await
    }

    /// Starts another server with the same keys and the objects of a snapshot.
    pub(crate) async fn fork_from(&self, snapshot: &Snapshot) -> Result<(Self, String), Error> {
        self.start_fork(self.origin.config_at(&snapshot.0)).await
    }

    async fn start_fork(&self, config: Config) -> Result<(Self, String), Error> {
        let clock = self.clock.copied();
        Self::run(Config { clock: Arc::new(clock.clone()), ..config }, clock).await
    }

    /// Moves the clock forward and removes expired objects.
    pub(crate) async fn advance(&self, by: Duration) -> Result<(), Error> {
        self.clock.advance(by);
        let expired = self.origin.store().expire(self.clock.now()).await;
        let failed = |error: keelson_storage::StoreError| Error::Store {
            action: "removing expired objects",
            reason: error.to_string(),
        };
        expired.map(drop).map_err(failed)
    }

    /// Ends the server without blocking the caller's thread.
    pub(crate) async fn stop(mut self) {
        drop(self.running.end.take());
        // No message is sent: the thread drops the sender when it ends.
        let _ = (&mut self.running.ended).await;
    }
}

impl Running {
    async fn start(config: Config) -> Result<(Self, StartedServer), Error> {
        let (end, to_end) = oneshot::channel();
        let (has_ended, ended) = oneshot::channel::<()>();
        let (ready, is_ready) = oneshot::channel();
        let run = move || {
            match runtime() {
                Ok(runtime) => {
                    runtime.block_on(serve(config, ready, to_end));
                    runtime.shutdown_timeout(LAST_GRACE);
                }
                Err(error) => drop(ready.send(Err(format!("starting threads: {error}")))),
            }
            drop(has_ended);
        };
        let thread = std::thread::Builder::new().name("keelson-server".to_owned()).spawn(run);
        let thread = Some(thread.map_err(Error::io("starting a thread"))?);
        let running = Self { end: Some(end), ended, thread };
        match is_ready.await {
            Ok(Ok(started)) => Ok((running, started)),
            Ok(Err(reason)) => Err(Error::Start(reason)),
            Err(_) => Err(Error::Start("its thread ended".to_owned())),
        }
    }
}

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .thread_name("keelson-worker")
        .enable_all()
        .build()
}

/// Runs a server until `to_end` is closed.
async fn serve(config: Config, ready: oneshot::Sender<Result<StartedServer, String>>, to_end: oneshot::Receiver<()>) {
    let server = match Server::start(config).await {
        Ok(server) => server,
        Err(error) => return drop(ready.send(Err(format!("{error:#}")))),
    };
    let fault = tokio::select! {
        () = server.ready() => None,
        failure = server.failed() => Some(failure.to_string()),
    };
    let started = match (fault, server.fork_origin()) {
        (None, Some(origin)) => {
            let kubeconfig = server.pki().kubeconfig(&server.url());
            Ok(StartedServer { kubeconfig, origin: origin.clone() })
        }
        (None, None) => Err("its store is not in memory".to_owned()),
        (Some(fault), _) => Err(fault),
    };
    if ready.send(started).is_ok() {
        // Ends when the sender is dropped, since no message is sent.
        let _ = to_end.await;
    }
    // An orderly shutdown closes the port before this function returns. Tasks that exceed the timeout end with the
    // runtime.
    let _ = tokio::time::timeout(STOP_LIMIT, server.shutdown()).await;
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // An error means that the thread panicked; it has ended in either case.
            let _ = thread.join();
        }
    }
}
