//! `GET` with `watch`: a stream of events, one on each line, or in each message of a websocket.
//!
//! The registry returns events, and `render/watch.rs` encodes them. Watches with the same view share the encoded bytes.
//! A watch with initial events is compressed for clients that accept gzip (`watch/compression.rs`).

mod compression;

use bytes::Bytes;
use futures::stream::{self, Stream, StreamExt as _};
use http::{Response, StatusCode};
use keelson_meta::ApiError;
use keelson_registry::{Registry, Target, WatchOutput, WatchStream};
use keelson_supervision::Turns;
use tokio_util::sync::CancellationToken;

use self::compression::{WatchFrame, gzip};
use super::render::{EventEncoder, Renderer};
use super::{live_page, query};
use crate::body::ResponseBody;
use crate::filters::InitialSeats;
use crate::metrics::WatchMeter;
use crate::negotiation::{Subject, accepts_gzip};
use crate::service::ApiRequest;
use crate::{respond, websocket};

/// The feature gate of compressed watches.
const COMPRESSION: &str = "WatchListCompression";
/// After events of this many bytes the watch yields to other tasks.
const REST_FROM_BYTES: usize = 16 * 1024;

pub(super) async fn handle(
    registry: &Registry,
    target: &Target,
    mut request: Box<ApiRequest>,
) -> Result<Response<ResponseBody>, ApiError> {
    let renderer = Renderer::negotiate(registry, target, &request, Subject::Watch)?;
    let kind = renderer.media().kind;
    let options = request.query.list_options()?;
    // As upstream, only clients that read the end of the initial events get them compressed.
    let is_compressed = options.send_initial_events
        && options.allow_bookmarks
        && accepts_gzip(&request.parts.headers)
        && registry.config().gates.is_on(COMPRESSION)
        && !websocket::is_opened(&request.parts);
    let (watch, mask) = match request.query.extended()? {
        None => (registry.watch(target, &request.caller, options).await?, query::mask(None, &renderer)?),
        Some(query) => {
            query.check_watch().map_err(|error| ApiError::BadRequest(error.to_string()))?;
            target.check_query(query, &request.caller)?;
            let mask = query::mask(Some(query), &renderer)?;
            if query.is_live_page() {
                let encoder = EventEncoder::new(renderer).masked(mask);
                return Box::pin(live_page::handle(registry, target, request, encoder)).await;
            }
            (registry.watch_query(target, &request.caller, options, query).await?, mask)
        }
    };
    let watch = match request.parts.extensions.remove::<InitialSeats>() {
        Some(seats) => watch.holding(seats),
        None => watch,
    };
    let encoder = EventEncoder::new(renderer).masked(mask).metered(request.parts.extensions.remove::<WatchMeter>());
    let turns = request.parts.extensions.remove::<Turns>();
    let frames = frames(watch, encoder, turns, request.stopping);
    if is_compressed {
        let body = websocket::streamed(gzip(frames));
        let mut response = respond::stream(StatusCode::OK, kind.watch_content_type(), body);
        respond::mark_gzip(response.headers_mut());
        return Ok(response);
    }
    Ok(websocket::answer_watch(&mut request.parts, kind, frames.map(|frame| frame.bytes)))
}

/// The frames of a watch. A watch with a query takes turns with others of its user. The stream ends cleanly at the end
/// of the watch, and when the server stops.
fn frames(
    watch: WatchStream,
    encoder: EventEncoder,
    turns: Option<Turns>,
    stopping: CancellationToken,
) -> impl Stream<Item = WatchFrame> + Send + Unpin + 'static {
    // One registration for the whole watch, since each takes a lock that all watches share.
    let stopped = Box::pin(stopping.cancelled_owned());
    let begun = Some((watch, encoder, turns, stopped, 0));
    let steps = stream::unfold(begun, |state| async move {
        let (mut watch, mut encoder, turns, mut stopped, sent) = state?;
        if sent > REST_FROM_BYTES {
            // More events may be available at once, and the client may read them as fast, so other tasks get a turn.
            tokio::task::yield_now().await;
        }
        let deadline = watch.deadline();
        let told = async {
            let outputs = match &turns {
                // Evaluating objects costs CPU time, which is divided among users.
                Some(turns) => turns.clone().take(watch.next()).await?,
                None => watch.next().await?,
            };
            let is_initial = outputs.iter().any(|output| matches!(output, WatchOutput::Initial(_)));
            let told: (Bytes, bool) = match encoder.encode_now(&outputs) {
                Some(told) => told,
                // A conversion may take long, and must not delay the end of the watch.
                None => tokio::time::timeout_at(deadline, encoder.encode(&outputs)).await.ok()?,
            };
            Some((told, is_initial))
        };
        let ((bytes, ended), is_initial) = tokio::select! {
            biased;
            told = told => told?,
            () = stopped.as_mut() => return None,
        };
        let sent = bytes.len();
        let frame = WatchFrame { bytes, is_initial };
        Some((frame, (!ended).then_some((watch, encoder, turns, stopped, sent))))
    });
    Box::pin(steps)
}
