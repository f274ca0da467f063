//! Sends a response for as long as its client reads.
//!
//! An HTTP/2 stream has a flow control window of its own. A client that keeps it closed reads nothing of the response,
//! although it reads from the connection below. The time of a write to the connection therefore shows nothing, and a
//! frame counts as read when the next one is polled.
//!
//! A response that its client does not read for long is aborted: on HTTP/2 its stream is reset, and everything that it
//! held is freed. On HTTP/1.1 a response is alone on its connection, so `stall.rs` finds it, and aborting it closes the
//! connection. `answers.rs` counts the time that a response waits for its client.

use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures::task::AtomicWaker;
use hyper::body::{Body, Frame, SizeHint};
use hyper::rt::Executor;
use parking_lot::Mutex;
use tokio::time::{Instant, Sleep, sleep_until};

use super::answers::AnswerGuard;
use super::connections::Ticket;
use super::idle::Busy;
use crate::body::{BodyError, ResponseBody};
use crate::metrics::Edge;

/// The number of last bytes that the connection may still buffer when the rest of the server has finished the response.
/// They stay in memory if the client does not read, so a larger response ends with a piece of this size.
const LAST_BYTES: usize = 16 * 1024;

tokio::task_local! {
    /// The response that the stream of this task sends.
    static CURRENT: Sending;
}

/// One response in flight. Clones share one state.
#[derive(Clone, Debug, Default)]
pub(super) struct Sending(Arc<State>);

#[derive(Debug, Default)]
struct State {
    progress: Mutex<Progress>,
    /// Wakes the task of the stream.
    stream: AtomicWaker,
    /// The connection, on HTTP/1.1 alone.
    connection: Option<Weak<Ticket>>,
}

/// The times that a response has waited for its client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waits {
    /// The time for the last frame.
    pub(super) now: Duration,
    /// The time for all frames so far.
    pub(super) in_all: Duration,
    /// The bytes of all frames so far.
    pub(super) bytes: u64,
    /// The bytes of the last frame, which stay in memory until the client has read them.
    pub(super) frame: usize,
}

#[derive(Debug, Default)]
struct Progress {
    /// The start of the current wait for the client.
    waits_since: Option<Instant>,
    /// The time of all earlier waits.
    waited: Duration,
    /// The bytes of all frames so far.
    bytes: u64,
    /// The bytes of the last frame.
    frame: usize,
    /// True if the response was aborted by [`Sending::cut`].
    is_cut: bool,
}

impl Sending {
    /// The response of this task's HTTP/2 stream, or a new one on HTTP/1.1.
    pub(super) fn current(connection: &Arc<Ticket>) -> Self {
        CURRENT.try_with(Self::clone).unwrap_or_else(|_| {
            let connection = Some(Arc::downgrade(connection));
            Self(Arc::new(State { connection, ..State::default() }))
        })
    }

    /// Aborts the response.
    pub(super) fn cut(&self) {
        self.0.progress.lock().is_cut = true;
        self.0.stream.wake();
        if let Some(connection) = self.0.connection.as_ref().and_then(Weak::upgrade) {
            connection.cut();
        }
    }

    /// The times that the response has waited for its client. `None` while the server produces the next frame.
    pub(super) fn waits_at(&self, now: Instant) -> Option<Waits> {
        let progress = self.0.progress.lock();
        let waits = now.saturating_duration_since(progress.waits_since?);
        let (bytes, frame) = (progress.bytes, progress.frame);
        Some(Waits { now: waits, in_all: progress.waited + waits, bytes, frame })
    }

    /// Records a frame of this many bytes, which the client must read next.
    pub(super) fn waits(&self, bytes: usize) {
        let mut progress = self.0.progress.lock();
        progress.waits_since = Some(Instant::now());
        progress.bytes += bytes as u64;
        progress.frame = bytes;
    }

    /// Records that the client read the frame. Returns false if the response is aborted.
    pub(super) fn makes_progress(&self) -> bool {
        let mut progress = self.0.progress.lock();
        if let Some(since) = progress.waits_since.take() {
            progress.waited += since.elapsed();
        }
        !progress.is_cut
    }
}

/// Runs each HTTP/2 stream of a connection in a task of its own, and ends those that are not read.
#[derive(Clone, Debug)]
pub(super) struct Streams {
    /// The time that a client may read nothing.
    patience: Duration,
    metrics: Arc<Edge>,
}

impl Streams {
    pub(super) fn new(patience: Duration, metrics: Arc<Edge>) -> Self {
        Self { patience, metrics }
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Streams {
    fn execute(&self, stream: F) {
        tokio::spawn(watched(stream, self.patience, self.metrics.clone()));
    }
}

/// Runs a stream to its end, or until its client has read nothing for `patience`. Dropping the stream resets it.
fn watched(stream: impl Future<Output = ()>, patience: Duration, metrics: Arc<Edge>) -> impl Future<Output = ()> {
    let sending = Sending::default();
    // Boxed: the task would hold the place of its argument and that of the pinned stream, twice 8 KB.
    let mut stream = Box::pin(CURRENT.scope(sending.clone(), stream));
    // Created only for streams that wait for their clients, which are few.
    let mut timer: Option<Pin<Box<Sleep>>> = None;
    std::future::poll_fn(move |context| {
        sending.0.stream.register(context.waker());
        if metrics.polls.timed(|| stream.as_mut().poll(context)).is_ready() {
            return Poll::Ready(());
        }
        let (waits_since, is_cut) = {
            let progress = sending.0.progress.lock();
            (progress.waits_since, progress.is_cut)
        };
        if is_cut {
            return Poll::Ready(());
        }
        let Some(since) = waits_since else {
            timer = None;
            return Poll::Pending;
        };
        let deadline = since + patience;
        let waiting = timer.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if waiting.deadline() != deadline {
            waiting.as_mut().reset(deadline);
        }
        ready!(waiting.as_mut().poll(context));
        tracing::debug!(?patience, "a response was aborted because its client did not read it");
        metrics.count_unread();
        Poll::Ready(())
    })
}

/// The body of a response, which the connection polls.
pub(super) struct SentBody {
    inner: ResponseBody,
    /// The end of the response, split from its last frame.
    rest: Bytes,
    sending: Sending,
    busy: Busy,
    /// Registers the response with the periodic check while it is sent.
    _watched: Option<AnswerGuard>,
}

impl SentBody {
    pub(super) fn new(inner: ResponseBody, sending: Sending, busy: Busy, watched: Option<AnswerGuard>) -> Self {
        Self { inner, rest: Bytes::new(), sending, busy, _watched: watched }
    }

    /// Splits the end from the last frame if that is large.
    fn cut_last(&mut self, data: Bytes) -> Bytes {
        if data.len() <= LAST_BYTES || !self.inner.is_end_stream() {
            return data;
        }
        let (first, last) = data.split_at(data.len() - LAST_BYTES);
        // A copy, since a slice would keep the whole frame in memory.
        self.rest = Bytes::copy_from_slice(last);
        data.slice(..first.len())
    }
}

impl Body for SentBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        if !this.sending.makes_progress() {
            let why = "its client was too slow, and it kept memory that others need".to_owned();
            return Poll::Ready(Some(Err(BodyError::Aborted(why))));
        }
        let frame = if this.rest.is_empty() {
            match Pin::new(&mut this.inner).poll_frame(context) {
                Poll::Ready(frame) => frame,
                Poll::Pending => {
                    this.busy.works();
                    return Poll::Pending;
                }
            }
        } else {
            Some(Ok(Frame::data(std::mem::take(&mut this.rest))))
        };
        this.busy.moves();
        let Some(Ok(frame)) = frame else { return Poll::Ready(frame) };
        this.sending.waits(frame.data_ref().map_or(0, Bytes::len));
        Poll::Ready(Some(Ok(match frame.into_data() {
            Ok(data) => Frame::data(this.cut_last(data)),
            Err(other) => other,
        })))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (inner, rest) = (self.inner.size_hint(), self.rest.len() as u64);
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower() + rest);
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use super::super::idle::Activity;
    use super::*;
    use crate::body::full;
    use http_body_util::BodyExt as _;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn sent(inner: ResponseBody) -> SentBody {
        let sending = CURRENT.try_with(Sending::clone).unwrap_or_default();
        SentBody::new(inner, sending, Activity::new().begin(), None)
    }

    #[tokio::test]
    async fn a_large_answer_ends_with_a_small_piece_of_its_own() {
        let whole = Bytes::from(vec![7; 100 * 1024]);
        let mut body = sent(full(whole.clone()));
        assert_eq!(body.size_hint().exact(), Some(100 * 1024));
        let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert!(!body.is_end_stream());
        let last = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert!(body.is_end_stream() && last.len() == LAST_BYTES);
        assert_eq!([first, last].concat(), whole);

        let mut small = sent(full("x"));
        assert_eq!(small.frame().await.unwrap().unwrap().into_data().unwrap(), "x");
        assert!(small.is_end_stream());
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_ends_when_its_client_takes_nothing_and_not_before() {
        let started = Instant::now();
        let metrics = Arc::new(Edge::default());
        watched(
            async {
                let mut body = sent(full("x"));
                // Slow work of the server does not count against the client.
                tokio::time::sleep(10 * PATIENCE).await;
                let _ = body.frame().await;
                std::future::pending::<()>().await;
            },
            PATIENCE,
            metrics,
        )
        .await;
        assert_eq!(started.elapsed(), 11 * PATIENCE);
    }

    #[tokio::test(start_paused = true)]
    async fn sending_measures_the_time_and_bytes_of_waiting() {
        let (sending, second) = (Sending::default(), Duration::from_secs(1));
        sending.waits(100);
        tokio::time::advance(2 * second).await;
        assert!(sending.makes_progress());
        assert!(sending.waits_at(Instant::now()).is_none());
        tokio::time::advance(10 * second).await;
        sending.waits(50);
        tokio::time::advance(second).await;
        let waits = sending.waits_at(Instant::now()).unwrap();
        assert_eq!((waits.now, waits.in_all, waits.bytes, waits.frame), (second, 3 * second, 150, 50));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_is_cut_ends_at_once() {
        let started = Instant::now();
        watched(
            async {
                CURRENT.with(Sending::cut);
                let refused = sent(full("x")).frame().await;
                assert!(matches!(refused, Some(Err(BodyError::Aborted(_)))));
                std::future::pending::<()>().await;
            },
            PATIENCE,
            Arc::new(Edge::default()),
        )
        .await;
        assert_eq!(started.elapsed(), Duration::ZERO);
    }
}
