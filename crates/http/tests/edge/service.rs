//! Handlers that show the requests that the HTTP layer passes to them.
//!
//! The namespace of a request selects the behaviour of its handler: wait, fail, stream, panic.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{StreamExt, stream};
use http::{Response, StatusCode};
use http_body_util::StreamBody;
use hyper::body::{Body, Frame};
use keelson_http::body::{self, MAX_REQUEST_BYTES};
use keelson_http::negotiation::MediaType;
use keelson_http::{ApiRequest, ApiService, BodyError, RequestInfo, RequestVerb, ResponseBody, respond};
use keelson_registry::Target;
use keelson_resources::Verb;

/// The size of one frame of a large response.
pub(crate) const FRAME_BYTES: usize = 64 * 1024;
/// The number of frames of a large response.
pub(crate) const LARGE_FRAMES: usize = 256;

/// The time that a request blocks its thread on purpose.
pub(crate) const HELD: Duration = Duration::from_secs(4);

/// Counts the frames of large responses.
#[derive(Default)]
pub(crate) struct Service {
    pub(crate) frames: Arc<AtomicUsize>,
}

impl ApiService for Service {
    fn call(&self, request: Box<ApiRequest>, _: Target) -> BoxFuture<'static, Response<ResponseBody>> {
        let frames = self.frames.clone();
        Box::pin(async move {
            let RequestInfo { verb, resource, namespace, name, .. } = request.info.clone();
            let namespace = namespace.unwrap_or_default();
            match (&verb, namespace.as_str()) {
                (_, "panic") => panic!("asked to"),
                (_, "held") => {
                    std::thread::sleep(HELD);
                    respond::text(StatusCode::OK, "held\n")
                }
                (RequestVerb::Resource(Verb::Create), _) => match request.body.read(MAX_REQUEST_BYTES).await {
                    Ok(bytes) => respond::text(StatusCode::CREATED, format!("{} bytes\n", bytes.len())),
                    Err(error) => respond::error(&error, MediaType::JSON),
                },
                // A watch with so many events that it waits for its client.
                (RequestVerb::Resource(Verb::Watch), "large") => {
                    json(body::stream(Large { frames, left: LARGE_FRAMES }))
                }
                (RequestVerb::Resource(Verb::Watch), _) => json(watch(request)),
                (_, "broken") => json(broken()),
                (_, "large") => json(body::stream(Large { frames, left: LARGE_FRAMES })),
                _ => {
                    let name = name.unwrap_or_default();
                    let text = format!("{} {verb} {resource} {namespace}/{name}\n", request.caller.user().name);
                    respond::text(StatusCode::OK, text)
                }
            }
        })
    }
}

fn json(body: ResponseBody) -> Response<ResponseBody> {
    respond::stream(StatusCode::OK, "application/json", body)
}

/// One event, then nothing until the server stops.
fn watch(request: Box<ApiRequest>) -> ResponseBody {
    let first = stream::iter([Ok::<_, Infallible>(Frame::data(Bytes::from("{\"type\":\"ADDED\"}\n")))]);
    let end = stream::once(request.stopping.cancelled_owned()).filter_map(|()| async { None });
    body::stream(StreamBody::new(Box::pin(first.chain(end).map(|frame| frame.map_err(|never| match never {})))))
}

fn broken() -> ResponseBody {
    let frames =
        [Ok(Frame::data(Bytes::from("{\"items\":["))), Err(BodyError::Aborted("the store went away".to_owned()))];
    body::stream(StreamBody::new(stream::iter(frames)))
}

struct Large {
    frames: Arc<AtomicUsize>,
    left: usize,
}

impl Body for Large {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let this = self.get_mut();
        if this.left == 0 {
            return Poll::Ready(None);
        }
        this.left -= 1;
        this.frames.fetch_add(1, Ordering::Relaxed);
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[b' '; FRAME_BYTES])))))
    }
}
