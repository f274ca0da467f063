//! The body of a request: read whole by a handler, or, after an early answer, read and thrown away.
//!
//! Many requests are answered before their body was read: the user is unknown, the method is not allowed, the body is too
//! large. If the rest of the body then found no reader, HTTP/2 would reset the stream and HTTP/1.1 would close the
//! connection, and a client that sends its whole body before it listens would never learn why it was refused. So what a
//! handler leaves is still taken in for a while, within bounds, beside the answer.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::EXPECT;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use keelson_meta::ApiError;
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::MAX_REQUEST_BYTES;

/// How many bytes of a body are thrown away at the most: twice the largest that any handler takes. One that declares more
/// is not begun.
const DRAIN_BYTES: u64 = 2 * MAX_REQUEST_BYTES as u64;
/// How long that may take.
const DRAIN_TIME: Duration = Duration::from_secs(3);

type IncomingError = Box<dyn std::error::Error + Send + Sync>;
type Unread = UnsyncBoxBody<Bytes, IncomingError>;

/// The body of a request, not yet read.
#[derive(Debug)]
pub struct RequestBody {
    /// `None` once it was read to its end, or failed.
    unread: Option<Unread>,
    /// Whether the client sends nothing before we begin to read.
    held_back: bool,
}

impl RequestBody {
    /// The body of a request that arrives over a connection with these headers.
    pub fn new(incoming: Incoming, headers: &HeaderMap) -> Self {
        let unread = Some(incoming.map_err(IncomingError::from).boxed_unsync());
        // Reading is what makes the connection say `100 Continue`.
        Self { unread, held_back: headers.contains_key(EXPECT) }
    }

    /// A body that is known whole, for callers inside the process.
    pub fn from_bytes(bytes: impl Into<Bytes>) -> Self {
        let unread = Some(Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync());
        Self { unread, held_back: false }
    }

    /// Reads the body whole, at most `limit` bytes.
    ///
    /// # Errors
    /// [`ApiError::TooLarge`] when the body is, or declares itself, larger; [`ApiError::BadRequest`] when the client
    /// stopped sending.
    pub async fn read(mut self, limit: usize) -> Result<Bytes, ApiError> {
        if self.unread.as_ref().is_some_and(|unread| unread.size_hint().lower() > limit as u64) {
            return Err(ApiError::TooLarge { limit });
        }
        self.held_back = false;
        let mut first = Bytes::new();
        let mut joined = BytesMut::new();
        while let Some(data) = self.next().await {
            let data = data.map_err(|error| ApiError::BadRequest(format!("the body could not be read: {error}")))?;
            if first.len() + joined.len() + data.len() > limit {
                return Err(ApiError::TooLarge { limit });
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

    /// The next piece; `None` at the end.
    async fn next(&mut self) -> Option<Result<Bytes, IncomingError>> {
        loop {
            match self.unread.as_mut()?.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Some(Ok(data));
                    }
                }
                Some(Err(error)) => {
                    self.unread = None;
                    return Some(Err(error));
                }
                None => self.unread = None,
            }
        }
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        let Some(unread) = self.unread.take() else { return };
        if self.held_back || unread.is_end_stream() || unread.size_hint().lower() > DRAIN_BYTES {
            return;
        }
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(timeout(DRAIN_TIME, drain(unread)));
        }
    }
}

async fn drain(mut unread: Unread) {
    let mut read = 0;
    while read < DRAIN_BYTES
        && let Some(Ok(frame)) = unread.frame().await
    {
        read += frame.data_ref().map_or(0, |data| data.len() as u64);
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
}
