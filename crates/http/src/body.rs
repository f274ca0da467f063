//! Bodies of requests and responses.
//!
//! A response body is a stream of frames that may fail. A failure after the first byte is an `Err` from the stream, which
//! resets the HTTP/2 stream or cuts the HTTP/1.1 chunked body: a client must never take a broken answer for a whole one.
//! Request bodies are read whole, up to a limit; nothing is buffered before a handler asks.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use keelson_meta::ApiError;
use tokio::time::{Instant, Sleep, sleep};

/// The largest request body in bytes (3 MiB, as the reference server has it).
pub const MAX_REQUEST_BYTES: usize = 3 * 1024 * 1024;

/// Why a response body ended before it was whole.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// What made the body gave up.
    #[error("the response was given up: {0}")]
    Aborted(String),
    /// The body made no frame for this long although the connection could have taken one.
    #[error("the response made no progress for {0:?}")]
    Stalled(Duration),
}

/// The body of every response.
pub type ResponseBody = UnsyncBoxBody<Bytes, BodyError>;

/// A body that is known whole.
pub fn full(bytes: impl Into<Bytes>) -> ResponseBody {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// No body.
pub fn empty() -> ResponseBody {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// A body that is made while it is sent.
pub fn stream(body: impl Body<Data = Bytes, Error = BodyError> + Send + 'static) -> ResponseBody {
    UnsyncBoxBody::new(body)
}

type IncomingError = Box<dyn std::error::Error + Send + Sync>;

/// The body of a request, not yet read.
#[derive(Debug)]
pub struct RequestBody(UnsyncBoxBody<Bytes, IncomingError>);

impl RequestBody {
    /// The body of a request that arrives over a connection.
    pub fn new(incoming: Incoming) -> Self {
        Self(incoming.map_err(IncomingError::from).boxed_unsync())
    }

    /// A body that is known whole, for callers inside the process.
    pub fn from_bytes(bytes: impl Into<Bytes>) -> Self {
        Self(Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync())
    }

    /// Reads the body whole, at most `limit` bytes.
    ///
    /// What is beyond the limit, but within twice the limit, is read and thrown away: a client on HTTP/1.1 that sends its
    /// whole body before it listens would otherwise find the connection closed, and never learn why.
    ///
    /// # Errors
    /// [`ApiError::TooLarge`] when the body is, or declares itself, larger; [`ApiError::BadRequest`] when the client
    /// stopped sending.
    pub async fn read(mut self, limit: usize) -> Result<Bytes, ApiError> {
        if self.0.size_hint().lower() > limit as u64 {
            return Err(self.refuse(limit, 0).await);
        }
        let mut first = Bytes::new();
        let mut joined = BytesMut::new();
        while let Some(frame) = self.0.frame().await {
            let frame = frame.map_err(|error| ApiError::BadRequest(format!("the body could not be read: {error}")))?;
            let Ok(data) = frame.into_data() else { continue };
            let read = first.len() + joined.len() + data.len();
            if read > limit {
                return Err(self.refuse(limit, read).await);
            }
            if first.is_empty() && joined.is_empty() {
                // Most bodies arrive in one frame, which is then handed on without a copy.
                first = data;
            } else {
                joined.extend_from_slice(&std::mem::take(&mut first));
                joined.extend_from_slice(&data);
            }
        }
        Ok(if joined.is_empty() { first } else { joined.freeze() })
    }

    /// The refusal of a body that is too large, once the client can hear it.
    async fn refuse(&mut self, limit: usize, mut read: usize) -> ApiError {
        let most = limit.saturating_mul(2);
        while self.0.size_hint().lower() <= most.saturating_sub(read) as u64 {
            let Some(Ok(frame)) = self.0.frame().await else { break };
            read += frame.data_ref().map_or(0, Bytes::len);
            if read >= most {
                break;
            }
        }
        ApiError::TooLarge { limit }
    }
}

/// Resets a response that makes no frame for `patience` although the connection asks for one.
///
/// The time a client takes to read is not counted: a body is only asked for more when there is room to send it.
pub struct Progress {
    inner: ResponseBody,
    patience: Duration,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Progress {
    /// Watches over `inner`.
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

/// A body that holds something until it was sent, or given up.
pub struct Guarded<G> {
    inner: ResponseBody,
    guard: G,
}

impl<G> Guarded<G> {
    /// Keeps `guard` as long as the body.
    pub fn new(inner: ResponseBody, guard: G) -> Self {
        Self { inner, guard }
    }

    /// What is kept.
    pub fn guard(&self) -> &G {
        &self.guard
    }
}

impl<G: Unpin> Body for Guarded<G> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_body_within_the_limit_is_read_whole() {
        assert_eq!(RequestBody::from_bytes("abc").read(3).await.unwrap(), Bytes::from("abc"));
    }

    #[tokio::test]
    async fn a_body_beyond_the_limit_is_refused() {
        let refused = RequestBody::from_bytes("abcd").read(3).await.unwrap_err();
        assert_eq!(refused.code(), 413);
    }

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
