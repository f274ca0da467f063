//! Responses of aggregated servers, forwarded as they arrive.
//!
//! A body is read when the client reads, so that only the buffers of connections are held. A body that breaks off is broken off
//! here too. An endless stream ends when this server stops: cleanly after the end of a line, as in JSON events, and broken off
//! otherwise.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::LOCATION;
use http::{Response, StatusCode};
use hyper::body::{Body, Frame, SizeHint};
use keelson_outbound::{ForwardPermit, ForwardedBody, reading_fault};
use tokio::time::Sleep;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::headers::{keep_of_answer, keep_passed_back};
use crate::body::{BodyError, ResponseBody, stream};
use crate::respond;

/// The time that a line may take to end when this server stops.
const LAST_LINE_TIME: Duration = Duration::from_secs(1);

/// Marks an answer of another server, in its extensions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PassedOn {
    /// True if nothing is added to it.
    pub(crate) as_it_is: bool,
}

/// An answer as the client gets it. `stopping` is given for streams without an end of their own.
pub(super) fn pass_back(
    answer: Response<ForwardedBody>,
    permit: ForwardPermit,
    is_peer: bool,
    stopping: Option<CancellationToken>,
) -> Response<ResponseBody> {
    if answer.status().is_redirection() && answer.headers().contains_key(LOCATION) {
        const REFUSED: &str = "the backend attempted to redirect this request, which is not permitted";
        return respond::text(StatusCode::BAD_GATEWAY, REFUSED);
    }
    let mut response = passed(answer, permit, is_peer, stopping);
    response.extensions_mut().insert(PassedOn { as_it_is: false });
    response
}

/// The response of a node, as the client gets it, redirects too.
pub(crate) fn pass(
    answer: Response<ForwardedBody>,
    permit: ForwardPermit,
    stopping: Option<CancellationToken>,
) -> Response<ResponseBody> {
    let mut response = passed(answer, permit, false, stopping);
    response.extensions_mut().insert(PassedOn { as_it_is: false });
    response
}

fn passed(
    answer: Response<ForwardedBody>,
    permit: ForwardPermit,
    is_peer: bool,
    stopping: Option<CancellationToken>,
) -> Response<ResponseBody> {
    let (mut head, body) = answer.into_parts();
    keep_of_answer(&mut head.headers, is_peer);
    let stopping = stopping.map(|stopping| Box::pin(stopping.cancelled_owned()));
    let body = Passing {
        inner: body,
        stopping,
        last_line: None,
        is_at_line_end: true,
        failed: None,
        is_peer,
        _permit: permit,
    };
    let mut response = Response::new(stream(body));
    *response.status_mut() = head.status;
    *response.headers_mut() = head.headers;
    response
}

/// The body of an answer on its way.
struct Passing {
    inner: ForwardedBody,
    stopping: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    /// Until when a line may end, once this server stops.
    last_line: Option<Pin<Box<Sleep>>>,
    /// True if the last byte ended a line, or there was none.
    is_at_line_end: bool,
    /// The reason why the response is broken off, which follows the bytes before.
    failed: Option<BodyError>,
    /// True for the answer of a peer.
    is_peer: bool,
    _permit: ForwardPermit,
}

impl Body for Passing {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        if let Some(failed) = this.failed.take() {
            return Poll::Ready(Some(Err(failed)));
        }
        // Looked at first: a stream that never rests has to end too.
        if this.stopping.as_mut().is_some_and(|stopping| stopping.as_mut().poll(context).is_ready()) {
            (this.stopping, this.last_line) = (None, Some(Box::pin(tokio::time::sleep(LAST_LINE_TIME))));
        }
        if let Some(last_line) = &mut this.last_line {
            if this.is_at_line_end {
                return Poll::Ready(None);
            }
            if last_line.as_mut().poll(context).is_ready() {
                let why = "the server is stopping".to_owned();
                return Poll::Ready(Some(Err(BodyError::Aborted(why))));
            }
        }
        let mut frame = Pin::new(&mut this.inner).poll_frame(context);
        // On HTTP/2 the end may come as a frame of its own, which holds nothing.
        while matches!(&frame, Poll::Ready(Some(Ok(frame))) if frame.data_ref().is_some_and(Bytes::is_empty)) {
            frame = Pin::new(&mut this.inner).poll_frame(context);
        }
        match frame {
            Poll::Ready(Some(Ok(mut frame))) => {
                if this.last_line.is_some() {
                    frame = frame.map_data(|data| {
                        let end = data.iter().position(|byte| *byte == b'\n');
                        end.map_or_else(|| data.clone(), |end| data.slice(..=end))
                    });
                }
                if let Some(last) = frame.data_ref().and_then(|data| data.last()) {
                    this.is_at_line_end = *last == b'\n';
                }
                if let Some(trailers) = frame.trailers_mut() {
                    keep_passed_back(trailers, this.is_peer);
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => {
                let failed = BodyError::Aborted(reading_fault(&error));
                if this.inner.size_hint().exact().is_some() {
                    return Poll::Ready(Some(Err(failed)));
                }
                // ORDER: a connection writes out what it has when a body makes it wait, and drops it when a body fails. Of a stream, what
                // the server said before it broke off is its client's, the head of the answer too.
                this.failed = Some(failed);
                context.waker().wake_by_ref();
                Poll::Pending
            }
            Poll::Ready(None) => Poll::Ready(None),
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
