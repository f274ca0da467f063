//! Bodies of requests and responses.
//!
//! A response body is a stream of frames that may fail. A failure after the first byte is an `Err` from the stream. It
//! resets the HTTP/2 stream or cuts the HTTP/1.1 chunked body, since a client must never take a broken response for a
//! complete one. Request bodies are read completely, up to a limit, and not before a handler reads them (`request.rs`).

mod request;

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::{Body, Frame, SizeHint};
use keelson_meta::ApiError;
use tokio::time::{Instant, Sleep, sleep};

pub use request::RequestBody;

/// The largest request body in bytes (3 MiB, as upstream).
pub const MAX_REQUEST_BYTES: usize = 3 * 1024 * 1024;

/// The reason why a response body ended early.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// The producer of the body failed.
    #[error("the response was aborted: {0}")]
    Aborted(String),
    /// The body produced no frame for this time although the connection had room for one.
    #[error("the response made no progress for {0:?}")]
    Stalled(Duration),
}

/// An error after the status line of a 200 response. Only the broken body shows the client that the response is
/// incomplete.
impl From<ApiError> for BodyError {
    fn from(error: ApiError) -> Self {
        Self::Aborted(error.to_string())
    }
}

/// The body of every response.
pub type ResponseBody = UnsyncBoxBody<Bytes, BodyError>;

/// A body whose bytes are all in memory.
pub fn full(bytes: impl Into<Bytes>) -> ResponseBody {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// No body.
pub fn empty() -> ResponseBody {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// A body that is produced while it is sent.
pub fn stream(body: impl Body<Data = Bytes, Error = BodyError> + Send + 'static) -> ResponseBody {
    UnsyncBoxBody::new(body)
}

/// Resets a response that produces no frame for `patience` although the connection requests one.
///
/// The time that a client takes to read does not count: the connection requests a frame only when it has room to send
/// it.
pub struct Progress {
    inner: ResponseBody,
    patience: Duration,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Progress {
    /// Applies the time limit to `inner`.
    pub fn new(inner: ResponseBody, patience: Duration) -> Self {
        Self { inner, patience, timer: None }
    }
}

impl Body for Progress {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let this = self.get_mut();
        if let Poll::Ready(frame) = Pin::new(&mut this.inner).poll_frame(context) {
            this.timer = None;
            return Poll::Ready(frame);
        }
        let patience = this.patience;
        let timer = this.timer.get_or_insert_with(|| Box::pin(sleep(patience)));
        match timer.as_mut().poll(context) {
            Poll::Ready(()) => {
                timer.as_mut().reset(Instant::now() + patience);
                Poll::Ready(Some(Err(BodyError::Stalled(patience))))
            }
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// A body that keeps a guard alive until it is sent or dropped.
pub struct GuardedBody<G> {
    inner: ResponseBody,
    guard: G,
}

impl<G> GuardedBody<G> {
    /// Keeps `guard` alive as long as the body.
    pub fn new(inner: ResponseBody, guard: G) -> Self {
        Self { inner, guard }
    }

    /// The guarded value.
    pub fn guard(&self) -> &G {
        &self.guard
    }
}

impl<G: Unpin> Body for GuardedBody<G> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Pin::new(&mut self.get_mut().inner).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// Counts what is sent of a body.
pub trait BodyMeter {
    /// The connection took a frame of this many bytes.
    fn sent(&mut self, bytes: usize);

    /// The body was dropped or failed before its end.
    fn broken_off(&mut self);
}

/// A body with a meter for its frames, which also keeps a guard alive until it is sent or dropped.
pub struct MeteredBody<M, G> {
    inner: ResponseBody,
    meter: M,
    _guard: G,
}

impl<M, G> MeteredBody<M, G> {
    /// Keeps `guard` alive as long as the body, and counts frames with `meter`.
    pub fn new(inner: ResponseBody, meter: M, guard: G) -> Self {
        Self { inner, meter, _guard: guard }
    }
}

impl<M: BodyMeter + Unpin, G: Unpin> Body for MeteredBody<M, G> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.inner).poll_frame(context);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => this.meter.sent(frame.data_ref().map_or(0, Bytes::len)),
            Poll::Ready(Some(Err(_))) => this.meter.broken_off(),
            Poll::Ready(None) | Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stalls_is_reset_and_never_ends_cleanly() {
        struct Never;
        impl Body for Never {
            type Data = Bytes;
            type Error = BodyError;
            fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
                Poll::Pending
            }
        }
        let mut body = Progress::new(stream(Never), Duration::from_secs(60));
        assert!(matches!(body.frame().await, Some(Err(BodyError::Stalled(_)))));
    }
}
