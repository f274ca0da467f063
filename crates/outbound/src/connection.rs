//! A TLS connection in a connection pool.
//!
//! A connection counts its requests. If a request fails on a connection that has carried requests before, the peer may
//! have closed it meanwhile; on a new connection that can't be the reason.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{CaptureConnection, Connected, Connection};
use hyper_util::rt::TokioIo;
use tokio::sync::OwnedSemaphorePermit;
use tokio_rustls::client::TlsStream;

use crate::dialer::HTTP2;
use crate::network_stream::NetworkStream;
use crate::opening::Opening;
use crate::response_start::{RecordedStream, ResponseStart};

/// A TLS connection.
pub(crate) struct SecureConnection {
    stream: TokioIo<RecordedStream<TlsStream<Opening<NetworkStream>>>>,
    uses: UseCount,
    response_start: ResponseStart,
    _permit: OwnedSemaphorePermit,
}

/// The number of requests of a connection.
#[derive(Clone, Debug, Default)]
struct UseCount(Arc<AtomicU64>);

/// The connection of a request, if one was chosen.
pub(crate) struct UsedConnection {
    /// True if it had earlier requests.
    pub(crate) was_kept: bool,
    /// The start of the response.
    pub(crate) response_start: Option<ResponseStart>,
}

impl UsedConnection {
    /// Returns the connection chosen for one request, and counts the request.
    pub(crate) fn new(captured: &CaptureConnection) -> Self {
        let mut extras = http::Extensions::new();
        if let Some(connected) = captured.connection_metadata().as_ref() {
            connected.get_extras(&mut extras);
        }
        let was_kept = extras.get::<UseCount>().is_some_and(|uses| uses.0.fetch_add(1, Ordering::Relaxed) > 0);
        Self { was_kept, response_start: extras.remove() }
    }
}

impl SecureConnection {
    /// Creates a connection that holds its permit until it is closed.
    pub(crate) fn new(stream: TlsStream<Opening<NetworkStream>>, permit: OwnedSemaphorePermit) -> Self {
        let response_start = ResponseStart::default();
        let stream = RecordedStream::new(stream, response_start.clone());
        Self { stream: TokioIo::new(stream), uses: UseCount::default(), response_start, _permit: permit }
    }

    /// The recorded start of the current response.
    pub(crate) fn response_start(&self) -> ResponseStart {
        self.response_start.clone()
    }
}

impl Connection for SecureConnection {
    fn connected(&self) -> Connected {
        let speaks_http2 = self.stream.inner().inner.get_ref().1.alpn_protocol() == Some(HTTP2);
        let connected = Connected::new().extra(self.uses.clone()).extra(self.response_start.clone());
        if speaks_http2 { connected.negotiated_h2() } else { connected }
    }
}

impl Read for SecureConnection {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, buffer)
    }
}

impl Write for SecureConnection {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(context, bytes)
    }
}
