//! `GET` with `watch`: a stream of events, one on each line, or in each message of a websocket.
//!
//! The registry returns events, and `render/watch.rs` encodes them. Watches with the same view share the encoded bytes.

use bytes::Bytes;
use futures::stream::{self, Stream};
use http::Response;
use keelson_meta::ApiError;
use keelson_registry::{Registry, Target, WatchStream};
use keelson_supervision::Turns;
use tokio_util::sync::CancellationToken;

use super::render::{EventEncoder, Renderer};
use super::{live_page, query};
use crate::body::ResponseBody;
use crate::filters::InitialSeats;
use crate::metrics::WatchMeter;
use crate::negotiation::Subject;
use crate::service::ApiRequest;
use crate::websocket;

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
    Ok(websocket::answer_watch(&mut request.parts, kind, frames))
}

/// The frames of a watch. A watch with a query takes turns with others of its user. The stream ends cleanly at the end
/// of the watch, and when the server stops.
fn frames(
    watch: WatchStream,
    encoder: EventEncoder,
    turns: Option<Turns>,
    stopping: CancellationToken,
) -> impl Stream<Item = Bytes> + Send + 'static {
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
            if let Some(told) = encoder.encode_now(&outputs) {
                return Some(told);
            }
            // A conversion may take long, and must not delay the end of the watch.
            tokio::time::timeout_at(deadline, encoder.encode(&outputs)).await.ok()
        };
        let (bytes, ended) = tokio::select! {
            biased;
            told = told => told?,
            () = stopped.as_mut() => return None,
        };
        let sent = bytes.len();
        Some((bytes, (!ended).then_some((watch, encoder, turns, stopped, sent))))
    });
    Box::pin(steps)
}
