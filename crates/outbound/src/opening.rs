//! The first bytes that a peer sends, to tell one that speaks HTTP where TLS was expected.
//!
//! The library for TLS says only that it can't read them. Go's client knows a server without TLS by how its answer begins, and so
//! does this.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, ReadBuf};

use crate::layer::{Layer, Layered};

/// How an answer begins that is not secured.
const PLAIN_HTTP: [u8; 5] = *b"HTTP/";

/// A stream of which the first bytes are kept.
pub(crate) type Opening<S> = Layered<S, FirstBytes>;

/// The first bytes that came.
#[derive(Debug, Default)]
pub(crate) struct FirstBytes {
    first: [u8; PLAIN_HTTP.len()],
    kept: usize,
}

impl FirstBytes {
    /// Whether they are those of an answer in plain HTTP.
    pub(crate) fn are_plain_http(&self) -> bool {
        self.first == PLAIN_HTTP
    }

    fn note(&mut self, bytes: &[u8]) {
        let room = &mut self.first[self.kept..];
        let noted = room.len().min(bytes.len());
        room[..noted].copy_from_slice(&bytes[..noted]);
        self.kept += noted;
    }
}

impl Layer for FirstBytes {
    fn read<S: AsyncRead + Unpin>(
        &mut self,
        inner: &mut S,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(inner).poll_read(context, buffer);
        self.note(&buffer.filled()[before..]);
        read
    }
}
