//! Responses of aggregated servers, forwarded as they arrive.
//!
//! A body is read at the speed of the client, so it needs only the buffers of connections. If the other server's body
//! breaks off, so does the client's. At a shutdown of this server an endless stream ends after the end of a line, as in
//! JSON events. If no line ends in time, it is broken off.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, LOCATION};
use http::{Response, StatusCode};
use hyper::body::{Body, Frame, SizeHint};
use keelson_outbound::{ForwardPermit, ForwardedBody, reading_fault};
use tokio::time::Sleep;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::headers::{keep_of_answer, keep_passed_back};
use crate::body::{BodyError, ResponseBody, stream};
use crate::respond;

/// The longest time for a line to end at a shutdown.
const LAST_LINE_TIME: Duration = Duration::from_secs(1);

/// Response extension: another server sent the response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Forwarded {
    /// True if this server must not change it.
    pub(crate) as_it_is: bool,
}

/// The response for the client. `stopping` must be set for endless streams.
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
    passed(answer, permit, is_peer, stopping)
}

/// The response of a node for the client, including redirects.
pub(crate) fn pass(
    answer: Response<ForwardedBody>,
    permit: ForwardPermit,
    stopping: Option<CancellationToken>,
) -> Response<ResponseBody> {
    passed(answer, permit, false, stopping)
}

/// The response of a server that this server stands in front of, including redirects and the fields of queries.
pub(super) fn pass_whole(
    answer: Response<ForwardedBody>,
    permit: ForwardPermit,
    stopping: Option<CancellationToken>,
) -> Response<ResponseBody> {
    passed(answer, permit, true, stopping)
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
    let body = ForwardedResponse {
        inner: body,
        stopping,
        last_line: None,
        is_at_line_end: true,
        is_encoded: head.headers.contains_key(CONTENT_ENCODING),
        failed: None,
        is_peer,
        _permit: permit,
    };
    let mut response = Response::new(stream(body));
    *response.status_mut() = head.status;
    *response.headers_mut() = head.headers;
    response.extensions_mut().insert(Forwarded { as_it_is: false });
    response
}

/// The body of a forwarded response.
struct ForwardedResponse {
    inner: ForwardedBody,
    stopping: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    /// The deadline for the end of a line at a shutdown.
    last_line: Option<Pin<Box<Sleep>>>,
    /// True if the last byte ended a line, or there is none yet.
    is_at_line_end: bool,
    /// True for a compressed body, which has no lines.
    is_encoded: bool,
    /// The error that follows the bytes already sent.
    failed: Option<BodyError>,
    /// True for the response of a peer.
    is_peer: bool,
    _permit: ForwardPermit,
}

impl Body for ForwardedResponse {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        if let Some(failed) = this.failed.take() {
            return Poll::Ready(Some(Err(failed)));
        }
        // Checked first, since a stream that is always ready must end too.
        if this.stopping.as_mut().is_some_and(|stopping| stopping.as_mut().poll(context).is_ready()) {
            (this.stopping, this.last_line) = (None, Some(Box::pin(tokio::time::sleep(LAST_LINE_TIME))));
        }
        if let Some(last_line) = &mut this.last_line {
            if this.is_at_line_end || this.is_encoded {
                return Poll::Ready(None);
            }
            if last_line.as_mut().poll(context).is_ready() {
                let why = "the server is stopping".to_owned();
                return Poll::Ready(Some(Err(BodyError::Aborted(why))));
            }
        }
        let mut frame = Pin::new(&mut this.inner).poll_frame(context);
        // On HTTP/2 the end of the stream may be an empty frame.
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
                // ORDER: a connection writes its buffer when a body is pending, and drops it when a body fails. The
                // client must get all bytes that the server sent before its stream broke off, including the response
                // head.
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
