//! A connection as the pool of connections keeps it.
//!
//! It is secured, and knows how often it was used: only one that was used before may have been ended by its peer meanwhile.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::begun::{Begun, Listened};
use crate::dial::HTTP2;

/// A secured connection.
pub(crate) struct Wire {
    stream: TokioIo<Listened<TlsStream<TcpStream>>>,
    uses: Uses,
    begun: Begun,
}

/// How many calls a connection has had.
#[derive(Clone, Debug, Default)]
pub(crate) struct Uses(Arc<AtomicU64>);

impl Uses {
    /// Counts one more call; whether there were others before.
    pub(crate) fn again(&self) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed) > 0
    }
}

impl Wire {
    pub(crate) fn new(stream: TlsStream<TcpStream>) -> Self {
        let begun = Begun::default();
        let stream = Listened { inner: stream, begun: begun.clone() };
        Self { stream: TokioIo::new(stream), uses: Uses::default(), begun }
    }
}

impl Connection for Wire {
    fn connected(&self) -> Connected {
        let speaks_http2 = self.stream.inner().inner.get_ref().1.alpn_protocol() == Some(HTTP2);
        let connected = Connected::new().extra(self.uses.clone()).extra(self.begun.clone());
        if speaks_http2 { connected.negotiated_h2() } else { connected }
    }
}

impl Read for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, buffer)
    }
}

impl Write for Wire {
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
