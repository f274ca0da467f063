//! The TLS port: accepts connections, and ends them in order when the server stops.
//!
//! Stopping: no new connection is accepted, every open one is told to finish (GOAWAY on HTTP/2, no keep-alive on
//! HTTP/1.1), watches see the same token and end cleanly, answers in flight run to their end. A connection whose client
//! does not take the ends of its watches is cut after a few seconds; what else is left at the deadline is cut then.

mod ahead;
mod connection;
mod idle;
mod stall;

use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::filters::Pipeline;

/// The wait after a failed accept. It fails when the process is out of file descriptors, and trying at once would only
/// burn the CPU that could free some.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// Serves `pipeline` on `port` until its stopping token is cancelled, then for at most `drain` more.
///
/// The port is bound by the caller, who so learns its number and can report a failure.
pub async fn serve(port: TcpListener, tls: Arc<ServerConfig>, pipeline: Arc<Pipeline>, drain: Duration) {
    let acceptor = TlsAcceptor::from(tls);
    let stopping = pipeline.stopping().clone();
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = stopping.cancelled() => break,
            // Finished connections are taken out as they end, so that the set holds only open ones.
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            accepted = port.accept() => match accepted {
                Ok((stream, peer)) => {
                    tracing::trace!(%peer, "connection accepted");
                    connections.spawn(connection::serve(stream, acceptor.clone(), pipeline.clone()));
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            },
        }
    }
    drop(port);
    let drained = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(drain, drained).await.is_err() {
        tracing::warn!("connections were cut at the end of the time for stopping");
    }
}
