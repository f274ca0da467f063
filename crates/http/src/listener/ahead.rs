//! Reads a client's bytes with few system calls.
//!
//! TLS reads 4 KiB at a time, so a request with an object would need two or more calls. Here one call reads up to a
//! whole TLS record and buffers the rest. An idle connection has no buffer.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use keelson_outbound::{Layer, LayeredStream};
use tokio::io::{AsyncRead, ReadBuf};

/// The number of bytes of one read: the largest TLS record (RFC 8446, section 5.1).
const READ_BYTES: usize = 16 * 1024;

/// A stream that is read in large pieces.
pub(super) type ReadAhead<S> = LayeredStream<S, ReadAheadStream>;

/// The bytes read ahead.
#[derive(Default)]
pub(super) struct ReadAheadStream(Bytes);

impl Layer for ReadAheadStream {
    fn read<S: AsyncRead + Unpin>(
        &mut self,
        inner: &mut S,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.0.is_empty() {
            if buffer.remaining() >= READ_BYTES {
                return Pin::new(inner).poll_read(context, buffer);
            }
            let mut space = [MaybeUninit::uninit(); READ_BYTES];
            let mut read = ReadBuf::uninit(&mut space);
            ready!(Pin::new(inner).poll_read(context, &mut read))?;
            let read = read.filled();
            let (asked, ahead) = read.split_at(read.len().min(buffer.remaining()));
            buffer.put_slice(asked);
            self.0 = Bytes::copy_from_slice(ahead);
            return Poll::Ready(Ok(()));
        }
        let asked = self.0.len().min(buffer.remaining());
        buffer.put_slice(&self.0[..asked]);
        self.0.advance(asked);
        if self.0.is_empty() {
            self.0 = Bytes::new();
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    /// Sends `sent` bytes and reads them in pieces of at most `piece` bytes. Returns the number of reads of the inner
    /// stream.
    async fn check(sent: usize, piece: usize) -> usize {
        struct CountingStream<'b>(&'b [u8], usize);
        impl AsyncRead for CountingStream<'_> {
            fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
                self.1 += 1;
                let (now, later) = self.0.split_at(self.0.len().min(buf.remaining()));
                buf.put_slice(now);
                self.0 = later;
                Poll::Ready(Ok(()))
            }
        }
        let bytes: Vec<u8> = (0..sent).map(|place| place as u8).collect();
        let mut stream = ReadAhead::new(CountingStream(&bytes, 0), ReadAheadStream::default());
        let mut read = Vec::new();
        let mut buffer = vec![0; piece];
        loop {
            match stream.read(&mut buffer).await.unwrap() {
                0 => break,
                more => read.extend_from_slice(&buffer[..more]),
            }
        }
        assert_eq!(read, bytes, "{sent} in pieces of {piece}");
        // The last read returned the end of the stream.
        stream.inner.1 - 1
    }

    #[tokio::test]
    async fn many_small_reads_are_one_and_nothing_is_lost() {
        assert_eq!(check(5_000, 4_096).await, 1);
        assert_eq!(check(5_000, 7).await, 1);
        assert_eq!(check(40_000, 4_096).await, 3);
        assert_eq!(check(40_000, 64 * 1024).await, 1);
        assert_eq!(check(0, 10).await, 0);
    }

    #[tokio::test]
    async fn writes_pass() {
        let (near, mut far) = tokio::io::duplex(16);
        let mut stream = ReadAhead::new(near, ReadAheadStream::default());
        stream.write_all(b"abc").await.unwrap();
        let mut taken = [0; 3];
        far.read_exact(&mut taken).await.unwrap();
        assert_eq!(&taken, b"abc");
    }
}
