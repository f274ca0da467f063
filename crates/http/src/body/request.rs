//! The body of a request: read whole by a handler, or drained after an early response.
//!
//! Many requests are answered before their body was read: the user is unknown, the method is not allowed, the body is
//! too large. Without a reader for the rest, HTTP/2 would reset the stream and HTTP/1.1 would close the connection. A
//! client that sends its whole body first would never get the response. The rest is therefore drained for a while,
//! within limits, beside the response.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::EXPECT;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Frame, SizeHint};
use keelson_meta::ApiError;
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::MAX_REQUEST_BYTES;

/// The largest number of bytes drained: twice the largest body of any handler. A body that declares more is not
/// drained.
const DRAIN_BYTES: u64 = 2 * MAX_REQUEST_BYTES as u64;
/// The time limit of draining.
const DRAIN_TIME: Duration = Duration::from_secs(3);

/// The capacity reserved for the rest of a body is at most this many times the bytes received, whatever the client
/// declares.
const TRUSTED: usize = 15;

type IncomingError = Box<dyn std::error::Error + Send + Sync>;
type UnreadBody = UnsyncBoxBody<Bytes, IncomingError>;

/// The body of a request, not yet read.
#[derive(Debug)]
pub struct RequestBody {
    /// The frames read so far, to measure the body.
    begun: Vec<Bytes>,
    /// `None` once it was read to its end, or failed.
    unread: Option<UnreadBody>,
    /// The failure, until a read returns it.
    failed: Option<IncomingError>,
    /// True if the client waits for `100 Continue` before it sends the body.
    held_back: bool,
}

impl RequestBody {
    /// The body of a request that arrives over a connection with these headers.
    pub fn new<B>(incoming: B, headers: &HeaderMap) -> Self
    where
        B: Body<Data = Bytes, Error: Into<IncomingError>> + Send + 'static,
    {
        let unread = Some(incoming.map_err(Into::into).boxed_unsync());
        // The first read of the body makes the connection send `100 Continue`.
        Self { begun: Vec::new(), failed: None, unread, held_back: headers.contains_key(EXPECT) }
    }

    /// A body whose bytes are in memory, for callers inside the process.
    pub fn from_bytes(bytes: impl Into<Bytes>) -> Self {
        let unread = Some(Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync());
        Self { begun: Vec::new(), failed: None, unread, held_back: false }
    }

    /// Returns true if the body is empty, as far as its headers or the bytes read so far show.
    pub fn is_empty(&self) -> bool {
        self.begun.is_empty() && self.failed.is_none() && self.unread.as_ref().is_none_or(Body::is_end_stream)
    }

    /// Returns true if the body has more than this many bytes. Reads no more than is necessary for that. If the client
    /// stops sending, [`read`](Self::read) returns the error.
    pub async fn has_more_than(&mut self, bytes: usize) -> bool {
        if self.known_bytes() > bytes as u64 {
            return true;
        }
        let mut read: usize = self.begun.iter().map(Bytes::len).sum();
        // Nothing is read of a body that declares a smaller size.
        let Some(unread) = &self.unread else { return false };
        let most = unread.size_hint().upper().map(|most| read as u64 + most);
        if unread.is_end_stream() || most.is_some_and(|most| most <= bytes as u64) {
            return false;
        }
        self.held_back = false;
        loop {
            match self.next().await {
                Some(Ok(data)) => {
                    read += data.len();
                    self.begun.push(data);
                    if read > bytes {
                        return true;
                    }
                }
                Some(Err(error)) => {
                    self.failed = Some(error);
                    return false;
                }
                None => return false,
            }
        }
    }

    /// Reads the body into memory up to its end, or until it exceeds `limit` bytes. Reads nothing of a body that
    /// declares a larger size. [`read`](Self::read) returns the errors. Dropping the future loses no bytes.
    pub async fn gather(&mut self, limit: usize) {
        if self.unread.as_ref().is_some_and(|unread| unread.size_hint().lower() > limit as u64) {
            return;
        }
        self.held_back = false;
        let mut gathered: usize = self.begun.iter().map(Bytes::len).sum();
        while gathered <= limit && self.failed.is_none() {
            match self.next().await {
                Some(Ok(data)) => {
                    gathered += data.len();
                    self.begun.push(data);
                }
                Some(Err(error)) => self.failed = Some(error),
                None => return,
            }
        }
    }

    /// The minimum size in bytes. It is exact if the client declares the size, or if the body was read to its end.
    pub fn known_bytes(&self) -> u64 {
        let begun: usize = self.begun.iter().map(Bytes::len).sum();
        begun as u64 + self.unread.as_ref().map_or(0, |unread| unread.size_hint().lower())
    }

    /// Returns true if the body contains one of these texts. Reads the whole body into memory, so the caller must check
    /// its size first.
    pub async fn holds_one_of(&mut self, texts: &[&[u8]]) -> bool {
        self.held_back = false;
        while let Some(data) = self.next().await {
            match data {
                Ok(data) => self.begun.push(data),
                Err(error) => {
                    self.failed = Some(error);
                    return false;
                }
            }
        }
        let whole = self.begun.concat();
        texts.iter().any(|text| whole.windows(text.len()).any(|part| part == *text))
    }

    /// Reads the whole body, at most `limit` bytes.
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
        let mut begun = std::mem::take(&mut self.begun).into_iter();
        loop {
            let data = match begun.next() {
                Some(data) => Ok(data),
                None => match self.next().await {
                    Some(data) => data,
                    None => break,
                },
            };
            let data = data.map_err(|error| ApiError::BadRequest(format!("the body could not be read: {error}")))?;
            if first.len() + joined.len() + data.len() > limit {
                return Err(ApiError::TooLarge { limit });
            }
            if first.is_empty() && joined.is_empty() {
                // Most bodies arrive in one frame, which needs no copy.
                first = data;
            } else {
                joined.extend_from_slice(&std::mem::take(&mut first));
                if joined.capacity() - joined.len() < data.len() {
                    joined.reserve(data.len() + self.room_for_the_rest(joined.len() + data.len()));
                }
                joined.extend_from_slice(&data);
            }
        }
        Ok(if joined.is_empty() { first } else { joined.freeze() })
    }

    /// The capacity for the rest of the body: the declared size, so that the buffer seldom moves. It is small for a
    /// client that has sent little.
    fn room_for_the_rest(&self, came: usize) -> usize {
        let declared = self.unread.as_ref().map_or(0, |unread| unread.size_hint().lower());
        usize::try_from(declared).unwrap_or(usize::MAX).min(came.saturating_mul(TRUSTED))
    }

    /// The next frame. `None` at the end.
    async fn next(&mut self) -> Option<Result<Bytes, IncomingError>> {
        if let Some(failed) = self.failed.take() {
            return Some(Err(failed));
        }
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

/// Passes the body on while it arrives, for the proxy.
impl Body for RequestBody {
    type Data = Bytes;
    type Error = IncomingError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, IncomingError>>> {
        let this = self.get_mut();
        this.held_back = false;
        if !this.begun.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(this.begun.remove(0)))));
        }
        if let Some(failed) = this.failed.take() {
            return Poll::Ready(Some(Err(failed)));
        }
        let Some(unread) = &mut this.unread else { return Poll::Ready(None) };
        let frame = ready!(Pin::new(unread).poll_frame(context));
        if !matches!(frame, Some(Ok(_))) {
            this.unread = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        let begun: usize = self.begun.iter().map(Bytes::len).sum();
        let unread = self.unread.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint);
        let mut hint = SizeHint::new();
        if let Some(upper) = unread.upper() {
            hint.set_upper(begun as u64 + upper);
        }
        hint.set_lower(begun as u64 + unread.lower());
        hint
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

async fn drain(mut unread: UnreadBody) {
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
    use http_body_util::StreamBody;

    #[tokio::test]
    async fn a_body_within_the_limit_is_read_whole() {
        assert_eq!(RequestBody::from_bytes("abc").read(3).await.unwrap(), Bytes::from("abc"));
    }

    #[tokio::test]
    async fn the_size_of_a_body_is_checked_before_reading() {
        for (bytes, much) in [(3, false), (4, false), (5, true), (100, true)] {
            let pieces = (0..bytes).map(|byte| Ok::<_, IncomingError>(Frame::data(Bytes::from(vec![byte]))));
            let unread = Some(StreamBody::new(futures::stream::iter(pieces)).boxed_unsync());
            let mut body = RequestBody { begun: Vec::new(), failed: None, unread, held_back: false };
            if bytes > 3 {
                // The result is the same if a part was read into memory before.
                body.gather(usize::from(bytes) - 1).await;
            }
            assert_eq!(body.has_more_than(4).await, much);
            assert_eq!(body.read(200).await.unwrap(), (0..bytes).collect::<Vec<_>>());
        }
        for (text, held) in [("ab", true), ("xy", true), ("ba", false)] {
            let pieces = ["a", "bx", "y"].map(|piece| Ok::<_, IncomingError>(Frame::data(Bytes::from(piece))));
            let unread = Some(StreamBody::new(futures::stream::iter(pieces)).boxed_unsync());
            let mut body = RequestBody { begun: Vec::new(), failed: None, unread, held_back: false };
            assert_eq!(body.holds_one_of(&[text.as_bytes()]).await, held);
            assert_eq!(body.known_bytes(), 4);
            assert_eq!(body.read(4).await.unwrap(), "abxy");
        }
        assert_eq!(RequestBody::from_bytes("abcde").known_bytes(), 5);
        assert!(RequestBody::from_bytes("abcde").has_more_than(4).await);
        assert!(!RequestBody::from_bytes("").has_more_than(0).await);
    }

    #[tokio::test]
    async fn a_body_beyond_the_limit_is_refused() {
        let refused = RequestBody::from_bytes("abcd").read(3).await.unwrap_err();
        assert_eq!(refused.code(), 413);
    }
}
