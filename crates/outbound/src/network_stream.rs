//! A stream to a server: a direct connection, or one through an egress proxy.
//!
//! TLS and HTTP above it do not depend on the way.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::client::TlsStream;

/// A stream to a server, before the TLS of that server.
#[derive(Debug)]
pub enum NetworkStream {
    /// A TCP connection, to the server or to a proxy that has opened a tunnel.
    Tcp(TcpStream),
    /// A connection to the Unix socket of a proxy that has opened a tunnel.
    Unix(UnixStream),
    /// A TLS connection to a proxy that has opened a tunnel.
    Tls(Box<TlsStream<TcpStream>>),
    /// The data packets of a gRPC stream to a proxy.
    Packets(DuplexStream),
}

/// Calls a method of the stream in each variant.
macro_rules! each {
    ($stream:expr, $inner:ident => $call:expr) => {
        match $stream.get_mut() {
            NetworkStream::Tcp($inner) => $call,
            NetworkStream::Unix($inner) => $call,
            NetworkStream::Tls($inner) => $call,
            NetworkStream::Packets($inner) => $call,
        }
    };
}

impl AsyncRead for NetworkStream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        each!(self, inner => Pin::new(inner).poll_read(context, buffer))
    }
}

impl AsyncWrite for NetworkStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        each!(self, inner => Pin::new(inner).poll_write(context, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        each!(self, inner => Pin::new(inner).poll_write_vectored(context, slices))
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Tcp(inner) => inner.is_write_vectored(),
            Self::Unix(inner) => inner.is_write_vectored(),
            Self::Tls(inner) => inner.is_write_vectored(),
            Self::Packets(inner) => inner.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, inner => Pin::new(inner).poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, inner => Pin::new(inner).poll_shutdown(context))
    }
}
