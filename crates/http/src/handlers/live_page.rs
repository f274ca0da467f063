//! `GET` with `watch` and a page: events for the objects that enter, change in and leave the page. After each change
//! follows a line with the state of the page.
//!
//! Objects are events as in any watch. The line after them has an event type of its own, so only clients that request a
//! page get it.

use bytes::{Bytes, BytesMut};
use futures::stream::{self, StreamExt as _};
use http::Response;
use keelson_codec::json;
use keelson_meta::ApiError;
use keelson_meta::json::{Map, Value};
use keelson_registry::{LiveOutput, LivePage, PageChange, Registry, Target};
use keelson_supervision::Turns;

use super::query::head;
use super::render::EventEncoder;
use crate::body::ResponseBody;
use crate::filters::InitialSeats;
use crate::negotiation::MediaKind;
use crate::service::ApiRequest;
use crate::websocket;

/// The event type of the line with the state of the page.
const PAGE: &str = "PAGE";

/// Answers a watch of a page.
///
/// # Errors
/// As [`Registry::watch_page`], and 406 for forms that cannot contain its lines.
pub(super) async fn handle(
    registry: &Registry,
    target: &Target,
    mut request: Box<ApiRequest>,
    encoder: EventEncoder,
) -> Result<Response<ResponseBody>, ApiError> {
    let query = request.query.extended()?.ok_or_else(|| request.query.refusal_beyond_reads())?;
    if encoder.media_kind() != MediaKind::Json {
        return Err(ApiError::BadRequest("live pages support only JSON".to_owned()));
    }
    let page = registry.watch_page(target, &request.caller, request.query.list_options()?, query).await?;
    // Held until the first page has been sent.
    let seats = request.parts.extensions.remove::<InitialSeats>();
    let turns = request.parts.extensions.remove::<Turns>();
    // One registration for the whole watch, since each takes a lock that all watches share.
    let stopped = Box::pin(request.stopping.cancelled_owned());
    let begun = Some((page, encoder, turns, stopped, seats));
    let steps = stream::unfold(begun, |state| async move {
        let (mut page, mut encoder, turns, mut stopped, mut seats) = state?;
        let (bytes, ended) = tokio::select! {
            biased;
            told = next_change(&mut page, &mut encoder, turns.as_ref()) => told?,
            () = stopped.as_mut() => return None,
        };
        if bytes.1 {
            seats = None;
        }
        Some((bytes.0, (!ended).then_some((page, encoder, turns, stopped, seats))))
    });
    Ok(websocket::answer_watch(&mut request.parts, MediaKind::Json, steps.boxed()))
}

/// The next lines, with two flags: they end a change, and they end the watch.
async fn next_change(
    page: &mut LivePage,
    encoder: &mut EventEncoder,
    turns: Option<&Turns>,
) -> Option<((Bytes, bool), bool)> {
    let deadline = page.deadline();
    let next = match turns {
        Some(turns) => turns.clone().take(page.next()).await?,
        None => page.next().await?,
    };
    match next {
        LiveOutput::Page(change) => Some(((line(&change), true), false)),
        LiveOutput::Objects(outputs) => {
            let (bytes, ended) = match encoder.encode_now(&outputs) {
                Some(told) => told,
                None => tokio::time::timeout_at(deadline, encoder.encode(&outputs)).await.ok()?,
            };
            Some(((bytes, false), ended))
        }
    }
}

/// The state of the page, as a line.
fn line(change: &PageChange) -> Bytes {
    let keys = |keys: &[std::sync::Arc<str>]| Value::Array(keys.iter().map(|key| Value::from(&**key)).collect());
    let mut metadata = Map::new();
    metadata.insert("resourceVersion", Value::from(change.revision.to_string()));
    if change.remaining > 0 {
        metadata.insert("remainingItemCount", Value::from(change.remaining));
    }
    let mut object = Map::new();
    head("Page", metadata, &mut object);
    object.insert("totalCount", Value::from(change.total));
    object.insert("keys", keys(&change.keys));
    object.insert("entered", keys(&change.entered));
    object.insert("left", keys(&change.left));
    object.insert("moved", keys(&change.moved));
    let mut event = Map::new();
    event.insert("type", Value::from(PAGE));
    event.insert("object", Value::Object(object));
    let mut line = BytesMut::from(&*json::to_vec(&Value::Object(event)));
    line.extend_from_slice(b"\n");
    line.freeze()
}
