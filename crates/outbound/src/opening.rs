//! The first bytes that a peer sends, to tell one that speaks HTTP where TLS was expected.
//!
//! The library for TLS says only that it can't read them. Go's client knows a server without TLS by how its answer begins, and so
//! does this.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How an answer begins that is not secured.
const PLAIN_HTTP: [u8; 5] = *b"HTTP/";

/// A stream of which the first bytes are kept.
pub(crate) struct Opening<S> {
    inner: S,
    first: [u8; PLAIN_HTTP.len()],
    kept: usize,
}

impl<S> Opening<S> {
    pub(crate) fn new(inner: S) -> Self {
        Self { inner, first: Default::default(), kept: 0 }
    }

    /// Whether what came began as an answer in plain HTTP does.
    pub(crate) fn is_plain_http(&self) -> bool {
        self.first == PLAIN_HTTP
    }

    fn note(&mut self, bytes: &[u8]) {
        let room = &mut self.first[self.kept..];
        let noted = room.len().min(bytes.len());
        room[..noted].copy_from_slice(&bytes[..noted]);
        self.kept += noted;
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Opening<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let read = Pin::new(&mut this.inner).poll_read(context, buffer);
        this.note(&buffer.filled()[before..]);
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Opening<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write_vectored(context, slices)
    }
}
