//! The port of a listener: TCP, or another transport such as a simulated network.
//!
//! A connection is TLS over a [`Socket`], whichever transport carries it. TCP connections are accepted on a thread of
//! their own (`acceptor.rs`), those of another transport in a task.

use std::fmt;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};

/// The bytes of a connection in both directions.
pub trait Transport: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Transport for S {}

/// Accepts the connections of a transport other than TCP.
pub trait Accept: Send + Sync {
    /// The next connection, with the address of its client.
    ///
    /// # Errors
    /// The transport is closed. It is not asked again.
    fn accept(&self) -> BoxFuture<'_, io::Result<(Box<dyn Transport>, SocketAddr)>>;

    /// The address that clients use.
    fn local_addr(&self) -> SocketAddr;
}

/// The source of a listener's connections.
pub enum Port {
    /// A TCP port.
    Tcp(TcpListener),
    /// Another transport.
    Other(Arc<dyn Accept>),
}

impl Port {
    /// The address that clients use.
    ///
    /// # Errors
    /// The system does not know the address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Tcp(port) => port.local_addr(),
            Self::Other(port) => Ok(port.local_addr()),
        }
    }
}

impl From<TcpListener> for Port {
    fn from(port: TcpListener) -> Self {
        Self::Tcp(port)
    }
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Port").field(&self.local_addr().ok()).finish()
    }
}

/// An accepted connection before TLS.
pub(super) enum Socket {
    Tcp(TcpStream),
    Other(Box<dyn Transport>, SocketAddr),
}

impl Socket {
    /// The address of the client.
    pub(super) fn peer(&self) -> Option<IpAddr> {
        match self {
            Self::Tcp(stream) => stream.peer_addr().ok().map(|address| address.ip()),
            Self::Other(_, peer) => Some(peer.ip()),
        }
    }

    /// The address of the host that the client has reached, if it may have several.
    pub(super) fn local(&self) -> Option<IpAddr> {
        match self {
            Self::Tcp(stream) => stream.local_addr().ok().map(|address| address.ip()),
            Self::Other(..) => None,
        }
    }

    /// Sends each write at once. Responses are written in large pieces, and a watch event must not wait for the next.
    pub(super) fn send_at_once(&self) {
        if let Self::Tcp(stream) = self
            && let Err(error) = stream.set_nodelay(true)
        {
            tracing::debug!(%error, "setting TCP_NODELAY failed");
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Other(stream, _) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Other(stream, _) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Self::Other(stream, _) => Pin::new(stream).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Tcp(stream) => stream.is_write_vectored(),
            Self::Other(stream, _) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(context),
            Self::Other(stream, _) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Other(stream, _) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
