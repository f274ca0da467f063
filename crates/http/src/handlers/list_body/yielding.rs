//! A body that yields to other tasks after each frame, for frames that are encoded and not just copied.
//!
//! A connection polls frames in one go while it has room for them. Encoding a frame takes up to a few milliseconds, so
//! a client that reads fast would otherwise occupy a thread for the whole response.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

use crate::body::BodyError;

/// A body that yields after each frame.
pub(in crate::handlers) struct YieldingBody<B> {
    inner: B,
    /// True after a frame, until other tasks have run.
    rests: bool,
}

impl<B> YieldingBody<B> {
    /// Wraps a body.
    pub(in crate::handlers) fn new(inner: B) -> Self {
        Self { inner, rests: false }
    }
}

impl<B: Body<Data = Bytes, Error = BodyError> + Unpin> Body for YieldingBody<B> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        if std::mem::take(&mut this.rests) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let frame = ready!(Pin::new(&mut this.inner).poll_frame(context));
        this.rests = true;
        Poll::Ready(frame)
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
    use futures::FutureExt as _;
    use futures::stream;
    use http_body_util::{BodyExt as _, StreamBody};

    #[tokio::test]
    async fn a_paced_body_yields_between_frames() {
        let frames = ["a", "b"].map(|text| Ok(Frame::data(Bytes::from(text))));
        let mut body = YieldingBody::new(StreamBody::new(stream::iter(frames)));
        for text in ["a", "b"] {
            let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
            assert_eq!(frame, text);
            assert!(body.frame().now_or_never().is_none(), "not at once");
        }
        assert!(body.frame().await.is_none());
    }
}
