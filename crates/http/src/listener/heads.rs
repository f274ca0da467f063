//! The bound for what a stranger may send before it has proved who it is.
//!
//! The head of a request may be large, since selectors and continue tokens stand in its path, and it has to be read before anybody knows
//! whose it is. So strangers' connections that have sent more than a small head are counted, and only a bounded
//! number of them is read on.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::layer::{Layer, Layered};
use crate::metrics::Edge;

/// How many bytes of a request a stranger may send without being counted, the handshake included.
const SMALL_BYTES: usize = 24 * 1024;
/// How many strangers may have sent more at once. Each may take as much as the largest head, 256 KiB.
const LARGE_HEADS: usize = 128;

/// All strangers with large heads. A clone is the same.
#[derive(Clone, Debug)]
pub(super) struct LargeHeads {
    places: Arc<Semaphore>,
    metrics: Arc<Edge>,
}

/// What is known of the client of one connection. A clone is the same.
#[derive(Clone, Debug, Default)]
pub(super) struct Standing(Arc<State>);

#[derive(Debug, Default)]
struct State {
    is_known: AtomicBool,
    /// Bytes since the last request began.
    read: AtomicUsize,
}

impl Standing {
    /// The client has proved who it is; whether that is news.
    pub(super) fn is_known(&self) -> bool {
        let is_known = &self.0.is_known;
        !is_known.load(Ordering::Relaxed) && !is_known.swap(true, Ordering::Relaxed)
    }

    /// Whether the client has not proved who it is.
    pub(super) fn is_strange(&self) -> bool {
        !self.0.is_known.load(Ordering::Relaxed)
    }

    /// A head has come whole.
    pub(super) fn head_is_whole(&self) {
        self.0.read.store(0, Ordering::Relaxed);
    }
}

impl LargeHeads {
    pub(super) fn new(metrics: Arc<Edge>) -> Self {
        Self { places: Arc::new(Semaphore::new(LARGE_HEADS)), metrics }
    }
}

/// A stream that is read as far as the standing of its client allows.
pub(super) type HeadGuard<S> = Layered<S, HeadLimit>;

/// How much has been read of a client, beside what it may send.
pub(super) struct HeadLimit {
    heads: LargeHeads,
    standing: Standing,
    /// Kept until the client is known or gone, since a buffer that has grown stays large.
    place: Option<OwnedSemaphorePermit>,
}

impl<S> HeadGuard<S> {
    pub(super) fn new(inner: S, heads: LargeHeads, standing: Standing) -> Self {
        Self { inner, layer: HeadLimit { heads, standing, place: None } }
    }
}

impl HeadLimit {
    /// Counts what was read.
    fn count(&mut self, bytes: usize) -> io::Result<()> {
        if self.standing.0.is_known.load(Ordering::Relaxed) {
            self.place = None;
            return Ok(());
        }
        let read = self.standing.0.read.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if read > SMALL_BYTES && self.place.is_none() {
            self.place = self.heads.places.clone().try_acquire_owned().ok();
            if self.place.is_none() {
                self.heads.metrics.count_large_head();
                return Err(io::Error::new(io::ErrorKind::QuotaExceeded, "too many strangers send much"));
            }
        }
        Ok(())
    }
}

impl Layer for HeadLimit {
    fn read<S: AsyncRead + Unpin>(
        &mut self,
        inner: &mut S,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(inner).poll_read(context, buffer))?;
        let counted = self.count(buffer.filled().len() - before);
        if counted.is_err() {
            buffer.set_filled(before);
        }
        Poll::Ready(counted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt as _;

    async fn read(
        heads: &LargeHeads,
        standing: &Standing,
        bytes: usize,
    ) -> (io::Result<usize>, HeadGuard<io::Cursor<Vec<u8>>>) {
        let mut guard = HeadGuard::new(io::Cursor::new(vec![0; bytes]), heads.clone(), standing.clone());
        let read = guard.read_to_end(&mut Vec::new()).await;
        (read, guard)
    }

    #[tokio::test]
    async fn only_so_many_strangers_may_send_much() {
        const MUCH: usize = SMALL_BYTES + 1;
        let heads = LargeHeads::new(Arc::new(Edge::default()));
        let mut held = Vec::new();
        for _ in 0..LARGE_HEADS {
            let (outcome, guard) = read(&heads, &Standing::default(), MUCH).await;
            outcome.unwrap();
            held.push(guard);
        }
        assert!(read(&heads, &Standing::default(), MUCH).await.0.is_err());
        assert!(read(&heads, &Standing::default(), SMALL_BYTES).await.0.is_ok());
        let known = Standing::default();
        known.is_known();
        assert!(read(&heads, &known, MUCH).await.0.is_ok());
        held.pop();
        assert!(read(&heads, &Standing::default(), MUCH).await.0.is_ok());
    }
}
