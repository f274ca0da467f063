//! Accepts TCP connections on a thread of its own, and hands them to the runtime.
//!
//! The threads of the runtime serve requests, and a fault in one request may block them all, but a liveness probe must
//! still get its answer. A connection that the runtime does not take in time is therefore served on the accepting
//! thread. That thread answers health requests itself, and sends all others to the runtime. A connection that the
//! runtime took in time stays with the runtime. Connections of another transport are accepted by a task.

use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio_util::task::TaskTracker;

use super::Shared;
use super::connection::{self, Threads};
use super::connections::Ticket;
use super::port::{Accept, Port, Socket};

/// The time in which the runtime must take a connection. Probes wait a second or more.
const HAND_OVER: Duration = Duration::from_millis(250);
/// The wait after a failed accept. Accepting fails when the process has no file descriptors left. Retrying at once
/// would use the CPU time that requests need to end and free some.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);
/// The number of failed accepts between two log lines.
const TELL_EVERY: u32 = 1200;

/// An accepted connection, until it is served.
type AcceptedConnection = Arc<Mutex<Option<(std::net::TcpStream, Ticket)>>>;

/// Accepts connections until the server stops, then waits for those that this thread serves. Sends the result after the
/// port is closed and these connections have ended: the panic, if there was one.
///
/// # Errors
/// The thread cannot be started.
pub(super) fn open(
    port: Port,
    shared: Arc<Shared>,
    served: TaskTracker,
) -> io::Result<oneshot::Receiver<thread::Result<()>>> {
    let (ended, end) = oneshot::channel();
    let port = match port {
        Port::Tcp(port) => port.into_std()?,
        Port::Other(port) => {
            let accepting = accept_other(port, shared, served);
            // The receiver learns of a panic by the sender's end.
            tokio::spawn(async move {
                accepting.await;
                let _ = ended.send(Ok(()));
            });
            return Ok(end);
        }
    };
    let runtime = Handle::current();
    let accepting = move || match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(own) => own.block_on(accept(port, shared, served, runtime)),
        Err(error) => tracing::error!(%error, "connections can't be accepted"),
    };
    let thread = move || {
        // The receiver is dropped if the listener was dropped.
        let _ = ended.send(catch_unwind(AssertUnwindSafe(accepting)));
    };
    thread::Builder::new().name("keelson-door".to_owned()).spawn(thread)?;
    Ok(end)
}

async fn accept(port: std::net::TcpListener, shared: Arc<Shared>, served: TaskTracker, runtime: Handle) {
    let port = match TcpListener::from_std(port) {
        Ok(port) => port,
        Err(error) => return tracing::error!(%error, "connections can't be accepted"),
    };
    let kept = TaskTracker::new();
    let mut failures: u32 = 0;
    loop {
        let accepted = tokio::select! {
            () = shared.pipeline.closing().cancelled() => break,
            accepted = port.accept() => accepted,
        };
        match accepted.and_then(|(stream, peer)| Ok((stream.into_std()?, peer))) {
            Ok((stream, peer)) => {
                failures = 0;
                offer(stream, peer, &shared, &served, &kept, &runtime);
            }
            Err(error) => {
                if failures.is_multiple_of(TELL_EVERY) {
                    tracing::warn!(%error, "connections can't be accepted");
                }
                failures = failures.wrapping_add(1);
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
    }
    drop(port);
    kept.close();
    kept.wait().await;
}

/// Accepts the connections of another transport than TCP until the server stops.
async fn accept_other(port: Arc<dyn Accept>, shared: Arc<Shared>, served: TaskTracker) {
    loop {
        let accepted = tokio::select! {
            () = shared.pipeline.closing().cancelled() => return,
            accepted = port.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => return tracing::error!(%error, "connections are no longer accepted"),
        };
        let Some(ticket) = shared.connections.register() else { continue };
        served.spawn(connection::serve(Socket::Other(stream, peer), shared.clone(), ticket, Threads::Runtime));
    }
}

/// Offers a connection to the runtime. This thread serves it if the runtime does not take it in time.
fn offer(
    stream: std::net::TcpStream,
    peer: SocketAddr,
    shared: &Arc<Shared>,
    served: &TaskTracker,
    kept: &TaskTracker,
    runtime: &Handle,
) {
    let Some(ticket) = shared.connections.register() else { return };
    tracing::trace!(%peer, "connection accepted");
    let offered: AcceptedConnection = Arc::new(Mutex::new(Some((stream, ticket))));
    served.spawn_on(take(offered.clone(), shared.clone(), Threads::Runtime), runtime);
    let (shared, runtime) = (shared.clone(), runtime.clone());
    kept.spawn(async move {
        // During a shutdown there is no wait.
        let stops = tokio::time::timeout(HAND_OVER, shared.pipeline.closing().cancelled()).await.is_ok();
        if !stops && offered.lock().is_some() {
            shared.metrics.count_inline_served();
            tracing::debug!("the runtime takes no connections; this one is served by the thread that accepts them");
            take(offered, shared, Threads::Door(runtime)).await;
        }
    });
}

/// Serves a connection, unless another thread has taken it.
async fn take(offered: AcceptedConnection, shared: Arc<Shared>, place: Threads) {
    let Some((stream, ticket)) = offered.lock().take() else { return };
    match TcpStream::from_std(stream) {
        Ok(stream) => connection::serve(Socket::Tcp(stream), shared, ticket, place).await,
        Err(error) => tracing::debug!(%error, "a connection could not be handed over"),
    }
}
