//! Layers around a connection's stream. Each inspects or changes reads or writes, and leaves all other calls to the
//! stream.
//!
//! A [`Layer`] in a [`LayeredStream`] stream needs no forwarding code: the stream forwards all calls of the read and write
//! traits. Connections from clients have layers too.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A hook into the calls of a stream.
pub trait Layer: Unpin {
    /// Reads from the stream below.
    fn read<S: AsyncRead + Unpin>(
        &mut self,
        inner: &mut S,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(inner).poll_read(context, buffer)
    }

    /// Receives the outcome of a write and returns it.
    fn written(&mut self, _: &mut Context<'_>, write: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        write
    }
}

/// A stream with a layer around it.
#[derive(Debug)]
pub struct LayeredStream<S, L> {
    /// The stream below.
    pub inner: S,
    /// The layer.
    pub layer: L,
}

impl<S, L> LayeredStream<S, L> {
    /// Adds a layer to a stream.
    pub fn new(inner: S, layer: L) -> Self {
        Self { inner, layer }
    }
}

impl<S: AsyncRead + Unpin, L: Layer> AsyncRead for LayeredStream<S, L> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.layer.read(&mut this.inner, context, buffer)
    }
}

impl<S: AsyncWrite + Unpin, L: Layer> AsyncWrite for LayeredStream<S, L> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let write = Pin::new(&mut this.inner).poll_write(context, bytes);
        this.layer.written(context, write)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let write = Pin::new(&mut this.inner).poll_write_vectored(context, slices);
        this.layer.written(context, write)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(context)
    }
}
