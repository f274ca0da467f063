//! Records the first bytes from a peer, to detect plain HTTP where TLS was expected.
//!
//! The TLS library only reports that it can't parse these bytes. Go's client recognizes a server without TLS by the
//! start of its response, and so does this module.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, ReadBuf};

use crate::layer::{Layer, LayeredStream};

/// The start of a plain HTTP response.
const PLAIN_HTTP: [u8; 5] = *b"HTTP/";

/// A stream that records its first bytes.
pub(crate) type Opening<S> = LayeredStream<S, FirstBytes>;

/// The first received bytes of a connection.
#[derive(Debug, Default)]
pub(crate) struct FirstBytes {
    first: [u8; PLAIN_HTTP.len()],
    kept: usize,
}

impl FirstBytes {
    /// Returns true if the bytes start a plain HTTP response.
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
