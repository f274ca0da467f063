//! `GET` with `watch`: a stream of events, one line each.

use bytes::{Bytes, BytesMut};
use futures::stream::{self, Stream, StreamExt as _};
use http::{Response, StatusCode};
use http_body_util::StreamBody;
use hyper::body::Frame;
use keelson_cache::FrameKind;
use keelson_codec::EventType;
use keelson_codec::watch::{bookmark_frame, error_frame, event_frame};
use keelson_meta::options::{ListOptions, Query};
use keelson_meta::{ApiError, GroupVersionKind};
use keelson_registry::{Registry, Target, VersionedView, WatchOutput, WatchStream};
use tokio_util::sync::CancellationToken;

use crate::body::{self, BodyError, ResponseBody};
use crate::negotiation::{WATCH_OFFERS, negotiate};
use crate::respond;
use crate::service::ApiRequest;

pub(super) async fn handle(
    registry: &Registry,
    target: &Target,
    request: ApiRequest,
) -> Result<Response<ResponseBody>, ApiError> {
    let media = negotiate(&request.parts, WATCH_OFFERS)?;
    let query = Query::parse(request.parts.uri.query().unwrap_or_default());
    let options = ListOptions::parse(&query, true)?;
    let watch = registry.watch(target, &options).await?;
    let frames = frames(watch, Encoder::new(target), request.stopping);
    let body = body::stream(StreamBody::new(frames.map(|bytes| Ok::<_, BodyError>(Frame::data(bytes)))));
    Ok(respond::stream(StatusCode::OK, media.kind.content_type(), body))
}

/// The frames of a watch. It ends cleanly when the watch does and when the server stops.
fn frames(
    watch: WatchStream,
    encoder: Encoder,
    stopping: CancellationToken,
) -> impl Stream<Item = Bytes> + Send + 'static {
    let state = (watch, encoder, stopping);
    let steps = stream::unfold(state, |(mut watch, encoder, stopping)| async move {
        let outputs = tokio::select! {
            outputs = watch.next() => outputs?,
            () = stopping.cancelled() => return None,
        };
        let bytes = encoder.encode(&outputs);
        Some((bytes, (watch, encoder, stopping)))
    });
    Box::pin(steps)
}

/// Makes frames for one version of a kind.
struct Encoder {
    kind: GroupVersionKind,
    view: VersionedView,
}

impl Encoder {
    fn new(target: &Target) -> Self {
        Self { kind: target.kind(), view: target.view() }
    }

    /// One event is shared as it is; several are joined, because each frame costs more than its copy.
    fn encode(&self, outputs: &[WatchOutput]) -> Bytes {
        if let [one] = outputs {
            return self.frame(one);
        }
        let mut joined = BytesMut::new();
        for output in outputs {
            joined.extend_from_slice(&self.frame(output));
        }
        joined.freeze()
    }

    fn frame(&self, output: &WatchOutput) -> Bytes {
        let renamed = match &self.view {
            VersionedView::Identity => None,
            VersionedView::Renamed(kind) => Some(kind),
        };
        match output {
            WatchOutput::Initial(entry) => event_frame(EventType::Added, &entry.object, entry.revision, renamed),
            WatchOutput::Event(kind, event) => match renamed {
                None => event.frame(*kind),
                Some(renamed) => match event.object(*kind) {
                    Some(entry) => event_frame(event_type(*kind), &entry.object, event.revision, Some(renamed)),
                    None => Bytes::new(),
                },
            },
            WatchOutput::Bookmark { revision, initial_events_end } => {
                bookmark_frame(&self.kind, *revision, *initial_events_end)
            }
            WatchOutput::Error(error) => error_frame(&error.status()),
        }
    }
}

fn event_type(kind: FrameKind) -> EventType {
    match kind {
        FrameKind::Added => EventType::Added,
        FrameKind::Modified => EventType::Modified,
        FrameKind::Deleted => EventType::Deleted,
    }
}
