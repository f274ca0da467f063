//! Limits the memory for the request heads of unauthenticated clients.
//!
//! A request head may be large, since its path contains selectors and continue tokens, and it is read before
//! authentication. Unauthenticated connections that have sent more than a small head are therefore counted. At the
//! limit, a new one evicts the oldest. A client with a credential has authenticated by then, so clients without one
//! cannot block it.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use keelson_outbound::{Layer, LayeredStream};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, ReadBuf};
use tokio_util::sync::CancellationToken;

use crate::metrics::Edge;

/// An unauthenticated client may send this many bytes, including the TLS handshake, before its connection counts.
const SMALL_BYTES: usize = 24 * 1024;
/// The maximum number of unauthenticated connections with large heads. Each may need memory for the largest header
/// block, 1 MiB, and for a decoded head.
const LARGE_HEADS: usize = 64;

/// All unauthenticated connections with large heads. Clones share one state.
#[derive(Clone, Debug)]
pub(super) struct LargeHeaders {
    places: Arc<Mutex<Places>>,
    metrics: Arc<Edge>,
}

#[derive(Debug, Default)]
struct Places {
    next: u64,
    /// The counted connections, oldest first.
    taken: BTreeMap<u64, AuthenticationState>,
}

/// A counted connection, until this is dropped or the connection is evicted.
struct Place {
    places: Arc<Mutex<Places>>,
    number: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.lock().taken.remove(&self.number);
    }
}

/// The authentication state of one connection. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct AuthenticationState(Arc<State>);

#[derive(Debug, Default)]
struct State {
    is_known: AtomicBool,
    /// The bytes read since the last request began.
    read: AtomicUsize,
    /// Cancelled to evict the connection in favour of another with a large head.
    displaced: CancellationToken,
}

impl AuthenticationState {
    /// Marks the client as authenticated.
    pub(super) fn is_known(&self) {
        self.0.is_known.store(true, Ordering::Relaxed);
    }

    /// Returns true if the client is not authenticated.
    pub(super) fn is_unauthenticated(&self) -> bool {
        !self.0.is_known.load(Ordering::Relaxed)
    }

    /// Waits until the connection is evicted, which never happens to an authenticated one.
    pub(super) async fn displaced(&self) {
        self.0.displaced.cancelled().await;
    }

    /// Notes that a whole request head was received.
    pub(super) fn head_is_whole(&self) {
        self.0.read.store(0, Ordering::Relaxed);
    }
}

impl LargeHeaders {
    pub(super) fn new(metrics: Arc<Edge>) -> Self {
        Self { places: Arc::default(), metrics }
    }

    /// Counts a connection. Evicts the oldest one if there are too many.
    fn take(&self, standing: &AuthenticationState) -> Place {
        let mut places = self.places.lock();
        if places.taken.len() >= LARGE_HEADS
            && let Some((_, oldest)) = places.taken.pop_first()
            // A client that has authenticated since keeps its connection, and no longer counts.
            && oldest.is_unauthenticated()
        {
            self.metrics.count_large_head();
            oldest.0.displaced.cancel();
        }
        let number = places.next;
        places.next += 1;
        places.taken.insert(number, standing.clone());
        Place { places: self.places.clone(), number }
    }
}

/// A stream that counts the bytes read before authentication.
pub(super) type HeaderGuard<S> = LayeredStream<S, HeaderLimit>;

/// The number of bytes read from a client, and its limit.
pub(super) struct HeaderLimit {
    heads: LargeHeaders,
    standing: AuthenticationState,
    /// Kept until the client authenticates or disconnects, since a buffer that has grown stays large.
    place: Option<Place>,
}

impl HeaderLimit {
    pub(super) fn new(heads: LargeHeaders, standing: AuthenticationState) -> Self {
        Self { heads, standing, place: None }
    }

    /// Adds to the bytes read.
    fn count(&mut self, bytes: usize) {
        if !self.standing.is_unauthenticated() {
            self.place = None;
            return;
        }
        let read = self.standing.0.read.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if read > SMALL_BYTES && self.place.is_none() {
            self.place = Some(self.heads.take(&self.standing));
        }
    }
}

impl Layer for HeaderLimit {
    fn read<S: AsyncRead + Unpin>(
        &mut self,
        inner: &mut S,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // Asked of unauthenticated clients alone, since the question takes a lock.
        if self.standing.is_unauthenticated() && self.standing.0.displaced.is_cancelled() {
            return Poll::Ready(Err(io::Error::new(
                io::ErrorKind::QuotaExceeded,
                "too many unauthenticated clients send large requests",
            )));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(inner).poll_read(context, buffer))?;
        self.count(buffer.filled().len() - before);
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt as _;

    async fn read(
        heads: &LargeHeaders,
        standing: &AuthenticationState,
        bytes: usize,
    ) -> (io::Result<usize>, HeaderGuard<io::Cursor<Vec<u8>>>) {
        let mut guard =
            HeaderGuard::new(io::Cursor::new(vec![0; bytes]), HeaderLimit::new(heads.clone(), standing.clone()));
        let read = guard.read_to_end(&mut Vec::new()).await;
        (read, guard)
    }

    #[tokio::test]
    async fn large_headers_evict_the_oldest_unauthenticated_client_only() {
        const MUCH: usize = SMALL_BYTES + 1;
        let heads = LargeHeaders::new(Arc::new(Edge::default()));
        let mut held = Vec::new();
        for _ in 0..LARGE_HEADS {
            let standing = AuthenticationState::default();
            let (outcome, guard) = read(&heads, &standing, MUCH).await;
            outcome.unwrap();
            held.push((standing, guard));
        }
        let is_displaced = |(standing, _): &(AuthenticationState, _)| standing.0.displaced.is_cancelled();
        assert!(
            read(&heads, &AuthenticationState::default(), SMALL_BYTES).await.0.is_ok()
                && !held.iter().any(is_displaced)
        );
        held[1].0.is_known();
        let newest = read(&heads, &AuthenticationState::default(), MUCH).await;
        assert!(newest.0.is_ok() && held.iter().map(is_displaced).eq((0..LARGE_HEADS).map(|number| number == 0)));
        assert!(held[0].1.read(&mut [0]).await.is_err(), "nothing more is read of it");
        let another = read(&heads, &AuthenticationState::default(), MUCH).await;
        assert!(another.0.is_ok() && !is_displaced(&held[1]) && !is_displaced(&held[2]), "who is known needs no place");
        drop((newest, another, held));
        assert!(heads.places.lock().taken.is_empty());
    }
}
