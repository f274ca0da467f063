//! The TLS port: accepts connections, bounds what they may take, and ends them in order when the server stops.
//!
//! Connections are accepted by a thread of their own (`door.rs`), counted (`connections.rs`), and served by the runtime
//! (`connection.rs`), which refuses malformed heads (`request_head.rs`). What a client holds is bounded: what it may send before it is
//! known (`heads.rs`), how long it may leave its answers lying (`sending.rs`, `stall.rs`), how slowly it may take them, and what they may
//! keep meanwhile (`answers.rs`). A watch over a websocket goes on where HTTP ends (`websocket.rs`).
//!
//! Stopping: no new connection is accepted, every open one is told to finish (GOAWAY on HTTP/2, no keep-alive on
//! HTTP/1.1), watches see the same token and end cleanly, requests in flight run to their end as long as they move. What does not
//! move is cut after a few seconds, what asks nothing at once or after a moment; what else is left at the deadline is cut then.

mod ahead;
mod answers;
mod connection;
mod connections;
mod door;
mod header_block;
mod heads;
mod idle;
mod long_heads;
mod request_head;
mod sending;
mod stall;
mod websocket;

use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures::future::BoxFuture;
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::sync::oneshot::error::RecvError;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::answers::Answers;
pub use self::answers::ReplacedBytes;
use self::connections::Connections;
use self::heads::LargeHeads;
use crate::filters::Pipeline;
use crate::metrics::Edge;

/// What all connections together, and each alone, may take.
#[derive(Clone)]
pub struct Limits {
    /// How many connections may be open. A quarter of them may be of clients that have not proved who they are, and each user may have a
    /// share.
    pub connections: usize,
    /// How long a client may take nothing of an answer. It is then reset. After a sixtieth of that its seats of flow control are lent.
    pub unread: Duration,
    /// The bytes a second that a client has to take of an answer, on the average of the time that the answer waits for it.
    pub least_bytes_per_second: u64,
    /// How many replaced bytes the snapshots of lists that are being sent may keep.
    pub pinned_bytes: u64,
    /// Counts these bytes.
    pub replaced_bytes: ReplacedBytes,
    /// How long a stop may take.
    pub drain: Duration,
    /// How long a connection without a request is left when the server stops, for its client to read that this is the end.
    pub parting: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 65_536,
            unread: Duration::from_secs(60),
            least_bytes_per_second: 8 * 1024,
            pinned_bytes: 256 * 1024 * 1024,
            replaced_bytes: Arc::new(|| 0),
            drain: Duration::from_secs(30),
            parting: Duration::from_secs(1),
        }
    }
}

/// How many answers to strangers may wait to be read at once. What is beyond is answered without a body, which nobody has to read.
const UNREAD_OF_STRANGERS: usize = 1000;

/// The settings of handshakes, which may be changed while connections last.
#[derive(Clone, Debug)]
pub struct TlsSettings(Arc<ArcSwap<ServerConfig>>);

impl TlsSettings {
    /// These to begin with.
    pub fn new(config: ServerConfig) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(config)))
    }

    /// Settings for the connections that come from now on.
    pub fn change(&self, config: ServerConfig) {
        self.0.store(Arc::new(config));
    }

    fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.0.load_full())
    }
}

/// What the connections of a listener share.
struct Shared {
    pipeline: Arc<Pipeline>,
    tls: TlsSettings,
    metrics: Arc<Edge>,
    connections: Arc<Connections>,
    heads: LargeHeads,
    answers: Arc<Answers>,
    /// A place for each answer to a stranger that waits to be read.
    unread_of_strangers: Arc<Semaphore>,
    unread: Duration,
    parting: Duration,
    /// Cancelled when what is left is cut.
    cut: CancellationToken,
}

/// Serves `pipeline` on `port` until its stopping token is cancelled, then for at most the time for stopping more.
///
/// The port is bound by the caller, who so learns its number and can report a failure.
pub fn serve(port: TcpListener, tls: TlsSettings, pipeline: Arc<Pipeline>, limits: Limits) -> BoxFuture<'static, ()> {
    Box::pin(serve_until_stopped(port, tls, pipeline, limits))
}

async fn serve_until_stopped(port: TcpListener, tls: TlsSettings, pipeline: Arc<Pipeline>, limits: Limits) {
    let metrics = pipeline.metrics().edge().clone();
    let stopping = pipeline.stopping().clone();
    let answers = Arc::new(Answers::new(&limits, metrics.clone()));
    let cut = CancellationToken::new();
    let shared = Arc::new(Shared {
        pipeline,
        tls,
        connections: Arc::new(Connections::new(limits.connections, metrics.clone())),
        heads: LargeHeads::new(metrics.clone()),
        metrics,
        answers: answers.clone(),
        unread_of_strangers: Arc::new(Semaphore::new(UNREAD_OF_STRANGERS)),
        unread: limits.unread,
        parting: limits.parting,
        cut: cut.clone(),
    });
    // Whoever gives the listener up cuts its connections.
    let _cut = cut.drop_guard();
    let served = TaskTracker::new();
    let opened = port.into_std().and_then(|port| door::open(port, shared, served.clone()));
    let mut door = match opened {
        Ok(door) => door,
        Err(error) => return tracing::error!(%error, "connections can't be accepted"),
    };
    let mut look = tokio::time::interval(answers::LOOK_EVERY);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            // ORDER: the thread ends for the same reason, and what is in flight then must not be taken for cut off.
            biased;
            () = stopping.cancelled() => break,
            // Never before the server stops, unless the thread died. Then nobody is left to take connections, so that is told at once.
            ended = &mut door => return ended_early(ended),
            _ = look.tick() => answers.enforce(),
        }
    }
    served.close();
    let drained = async {
        if let Ok(Err(panic)) = door.await {
            resume_unwind(panic);
        }
        served.wait().await;
    };
    if tokio::time::timeout(limits.drain, drained).await.is_err() {
        tracing::warn!("connections were cut at the end of the time for stopping");
    }
}

/// The end of the thread that accepts connections, which nothing has told to end.
///
/// # Panics
/// As the thread did.
fn ended_early(ended: Result<thread::Result<()>, RecvError>) {
    match ended {
        Ok(Err(panic)) => resume_unwind(panic),
        Ok(Ok(())) | Err(_) => tracing::error!("connections are no longer accepted"),
    }
}
