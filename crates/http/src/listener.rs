//! The TLS port: accepts connections, limits their resources, and ends them in order when the server stops.
//!
//! A thread of its own accepts connections (`acceptor.rs`). They are counted (`connections.rs`), and the runtime serves
//! them (`connection.rs`), which refuses malformed request heads (`request_head.rs`). Limits bound the bytes before
//! authentication (`large_headers.rs`), the time of unread responses (`sending.rs`, `stall.rs`), and the memory of responses
//! (`answers.rs`). `websocket.rs` sends watches over websockets.
//!
//! During a shutdown the listener accepts no connections and announces the shutdown on open ones (GOAWAY on HTTP/2, no
//! keep-alive on HTTP/1.1). Watches end cleanly, and requests in flight continue while they make progress. Idle
//! connections and those without progress are closed within seconds, the rest at the deadline.

mod acceptor;
mod ahead;
mod answers;
mod connection;
mod connections;
mod header_block;
mod idle;
mod large_headers;
mod linger;
mod long_headers;
mod port;
mod request_head;
mod sending;
mod stall;
mod websocket;

use std::net::IpAddr;
use std::panic::resume_unwind;
use std::pin::pin;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures::future::BoxFuture;
use keelson_access::tls::ServingConfig;
use rustls::ServerConfig;
use tokio::sync::Semaphore;
use tokio::sync::oneshot::error::RecvError;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::answers::Answers;
pub use self::answers::ReplacedBytes;
use self::connections::Connections;
use self::large_headers::LargeHeaders;
pub use self::port::{Accept, Port, Transport};
use crate::filters::Pipeline;
use crate::metrics::Edge;

/// The limits of each connection and of all connections together.
#[derive(Clone)]
pub struct Limits {
    /// The number of open connections. A quarter of them may be unauthenticated, and each user may have a share.
    pub connections: usize,
    /// A response is reset when its client reads nothing for this time. After a sixtieth of it the response's seats of
    /// flow control are lent.
    pub unread: Duration,
    /// The least read rate of a client in bytes per second, averaged over the time that the response waits for the
    /// client.
    pub least_bytes_per_second: u64,
    /// The maximum number of replaced bytes that the snapshots of lists in flight may keep in memory.
    pub pinned_bytes: u64,
    /// Returns the number of replaced bytes so far.
    pub replaced_bytes: ReplacedBytes,
    /// The maximum number of concurrent requests on one HTTP/2 connection.
    pub streams: u32,
    /// The longest time of a shutdown.
    pub drain: Duration,
    /// The time that an idle connection stays open during a shutdown, so that its client can read the announcement.
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
            streams: connection::MAX_STREAMS,
            drain: Duration::from_secs(30),
            parting: Duration::from_secs(1),
        }
    }
}

/// The maximum number of unread responses to unauthenticated clients. Further responses have no body.
const UNREAD_OF_STRANGERS: usize = 1000;

/// The TLS settings of the listener, which may change while connections are open.
#[derive(Clone)]
pub struct TlsSettings(Arc<ArcSwap<Acceptors>>);

/// The acceptors of connections, by the addresses of the host that have one of their own.
struct Acceptors {
    all: TlsAcceptor,
    by_address: Vec<(IpAddr, TlsAcceptor)>,
}

impl Acceptors {
    fn new(config: ServingConfig) -> Self {
        let acceptor = |config: ServerConfig| TlsAcceptor::from(Arc::new(config));
        let by_address = config.by_address.into_iter().map(|(address, config)| (address, acceptor(config))).collect();
        Self { all: acceptor(config.all), by_address }
    }
}

impl TlsSettings {
    /// The initial settings.
    pub fn new(config: impl Into<ServingConfig>) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(Acceptors::new(config.into()))))
    }

    /// Sets the settings for new connections.
    pub fn change(&self, config: impl Into<ServingConfig>) {
        self.0.store(Arc::new(Acceptors::new(config.into())));
    }

    /// The acceptor of a connection to this address of the host.
    fn acceptor(&self, local: Option<IpAddr>) -> TlsAcceptor {
        let known = self.0.load();
        let own = local.and_then(|local| known.by_address.iter().find(|(address, _)| *address == local.to_canonical()));
        own.map_or(&known.all, |(_, acceptor)| acceptor).clone()
    }
}

/// The state that all connections of a listener share.
struct Shared {
    pipeline: Arc<Pipeline>,
    tls: TlsSettings,
    metrics: Arc<Edge>,
    connections: Arc<Connections>,
    heads: LargeHeaders,
    answers: Arc<Answers>,
    /// A permit for each unread response to an unauthenticated client.
    unread_of_strangers: Arc<Semaphore>,
    unread: Duration,
    parting: Duration,
    streams: u32,
    /// Cancelled at the deadline of a shutdown, to close the remaining connections.
    cut: CancellationToken,
}

/// Serves `pipeline` on `port` until the pipeline's shutdown closes it, and drains connections for at most
/// [`Limits::drain`] after the server stops.
///
/// The caller binds the port, so that it learns the port number and can report a failure.
pub fn serve(
    port: impl Into<Port>,
    tls: TlsSettings,
    pipeline: Arc<Pipeline>,
    limits: Limits,
) -> BoxFuture<'static, ()> {
    Box::pin(serve_until_stopped(port.into(), tls, pipeline, limits))
}

async fn serve_until_stopped(port: Port, tls: TlsSettings, pipeline: Arc<Pipeline>, limits: Limits) {
    let metrics = pipeline.metrics().edge().clone();
    let (closing, stopping) = (pipeline.closing().clone(), pipeline.stopping().clone());
    let answers = Arc::new(Answers::new(&limits, metrics.clone()));
    let cut = CancellationToken::new();
    let shared = Arc::new(Shared {
        pipeline,
        tls,
        connections: Arc::new(Connections::new(limits.connections, metrics.clone())),
        heads: LargeHeaders::new(metrics.clone()),
        metrics,
        answers: answers.clone(),
        unread_of_strangers: Arc::new(Semaphore::new(UNREAD_OF_STRANGERS)),
        unread: limits.unread,
        parting: limits.parting,
        streams: limits.streams,
        cut: cut.clone(),
    });
    // Dropping this future closes all connections.
    let _cut = cut.drop_guard();
    let served = TaskTracker::new();
    let opened = acceptor::open(port, shared, served.clone());
    let mut door = match opened {
        Ok(door) => door,
        Err(error) => return tracing::error!(%error, "connections can't be accepted"),
    };
    let mut look = tokio::time::interval(answers::LOOK_EVERY);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            // ORDER: at a shutdown the thread ends too. The shutdown must come first, or requests in flight would seem
            // to be lost.
            biased;
            () = closing.cancelled() => break,
            // Before a shutdown this resolves only if the thread panicked. Then no connection is accepted any more, so
            // it is reported at once.
            ended = &mut door => return ended_early(ended),
            _ = look.tick() => answers.enforce(),
        }
    }
    served.close();
    let mut drained = pin!(async {
        if let Ok(Err(panic)) = door.await {
            resume_unwind(panic);
        }
        served.wait().await;
        // Watches may have ended before the end of their grace period.
        stopping.cancelled().await;
    });
    // Until the server stops, responses to clients that read nothing are still reset.
    while !stopping.is_cancelled() {
        tokio::select! {
            () = stopping.cancelled() => {}
            () = &mut drained => return,
            _ = look.tick() => answers.enforce(),
        }
    }
    if tokio::time::timeout(limits.drain, drained).await.is_err() {
        tracing::warn!("connections were cut at the end of the time for stopping");
    }
}

/// Reports that the accepting thread ended before the shutdown.
///
/// # Panics
/// With the thread's panic.
fn ended_early(ended: Result<thread::Result<()>, RecvError>) {
    match ended {
        Ok(Err(panic)) => resume_unwind(panic),
        Ok(Ok(())) | Err(_) => tracing::error!("connections are no longer accepted"),
    }
}
