//! Answers of aggregated servers, passed back while they come.
//!
//! A body is read when the client takes it, so that nothing is held here but what a connection buffers. One that breaks off is broken
//! off here too. A stream without an end of its own ends when this server stops: cleanly after the end of a line, as events in JSON
//! have them, and as one that broke off otherwise.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::LOCATION;
use http::{Response, StatusCode};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use keelson_outbound::{PassPlace, reading_fault};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::headers::drop_of_connection;
use crate::body::{BodyError, ResponseBody, stream};
use crate::respond;

/// Marks an answer of another server, in its extensions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PassedOn {
    /// Whether nothing at all is added to it.
    pub(crate) as_it_is: bool,
}

/// An answer as the client gets it. `stopping` is given for streams without an end of their own.
pub(super) fn pass_back(
    answer: Response<Incoming>,
    place: PassPlace,
    stopping: Option<CancellationToken>,
) -> Response<ResponseBody> {
    if answer.status().is_redirection() && answer.headers().contains_key(LOCATION) {
        const REFUSED: &str = "the backend attempted to redirect this request, which is not permitted";
        return respond::text(StatusCode::BAD_GATEWAY, REFUSED);
    }
    let (mut head, body) = answer.into_parts();
    drop_of_connection(&mut head.headers);
    let stopping = stopping.map(|stopping| Box::pin(stopping.cancelled_owned()));
    let body = Passing { inner: body, stopping, is_at_line_end: true, _place: place };
    let mut response = Response::new(stream(body));
    *response.status_mut() = head.status;
    *response.headers_mut() = head.headers;
    response.extensions_mut().insert(PassedOn { as_it_is: false });
    response
}

/// The body of an answer on its way.
struct Passing {
    inner: Incoming,
    stopping: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    /// Whether the last byte ended a line, or there was none.
    is_at_line_end: bool,
    _place: PassPlace,
}

impl Body for Passing {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        let mut frame = Pin::new(&mut this.inner).poll_frame(context);
        // On HTTP/2 the end may come as a frame of its own, which holds nothing.
        while matches!(&frame, Poll::Ready(Some(Ok(frame))) if frame.data_ref().is_some_and(Bytes::is_empty)) {
            frame = Pin::new(&mut this.inner).poll_frame(context);
        }
        match frame {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(last) = frame.data_ref().and_then(|data| data.last()) {
                    this.is_at_line_end = *last == b'\n';
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(BodyError::Aborted(reading_fault(&error))))),
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => {
                let is_stopping =
                    this.stopping.as_mut().is_some_and(|stopping| stopping.as_mut().poll(context).is_ready());
                match (is_stopping, this.is_at_line_end) {
                    (false, _) => Poll::Pending,
                    (true, true) => Poll::Ready(None),
                    (true, false) => {
                        this.stopping = None;
                        Poll::Ready(Some(Err(BodyError::Aborted("the server is stopping".to_owned()))))
                    }
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
