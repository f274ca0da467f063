//! `GET` of a collection.
//!
//! The registry plans and selects the page. `list_body` encodes it while it is sent.

use std::sync::Arc;

use http::{Response, StatusCode};
use keelson_meta::{ApiError, ListHead, ListMeta, Revision};
use keelson_query::Mask;
use keelson_registry::{ListItems, ListPage, Registry, Target};
use tracing::debug_span;

use super::list_body::{
    AHEAD_FROM_BYTES, AheadBody, GzipListBody, ListBody, Source, YieldingBody, bytes_of, converted, done, masked,
};
use super::query;
use super::render::{ListWriter, Part, Renderer, RowOrder};
use crate::body::{GuardedBody, ResponseBody, stream};
use crate::negotiation::{MediaKind, Subject, accepts_gzip};
use crate::respond::{self, GZIP_THRESHOLD_BYTES, mark_gzip};
use crate::service::ApiRequest;

/// The maximum size of converted objects that are kept in memory for measuring before they are sent. A longer protobuf
/// list of such objects is served only in chunks.
const MEASURED_BYTES: u64 = 16 << 20;
/// The approximate maximum size of objects outside the cache that are kept in memory for sorting. A longer table is
/// served only in chunks.
const SORTED_BYTES: u64 = 16 << 20;

pub(super) async fn handle(
    registry: &Registry,
    target: &Target,
    request: Box<ApiRequest>,
) -> Result<Response<ResponseBody>, ApiError> {
    if request.query.is_extended() {
        return Box::pin(query::handle(registry, target, request)).await;
    }
    let renderer = Renderer::negotiate(registry, target, &request, Subject::List)?;
    let options = request.query.list_options()?;
    let page = registry.list(target, &request.caller, options).await?;
    let (order, mask) = (renderer.row_order(), query::mask(None, &renderer)?);
    let shard = registry.shard(options)?.map(|shard| shard.to_string());
    let showing = ItemChanges { order, mask, position: None, shard };
    answer(target, renderer, page, showing, accepts_gzip(&request.parts.headers)).await
}

/// Changes to the items before they are encoded.
#[derive(Default)]
pub(super) struct ItemChanges {
    /// The order of the items.
    pub(super) order: Option<RowOrder>,
    /// Selects the fields of each item.
    pub(super) mask: Option<Arc<Mask>>,
    /// The text in place of the list's revision.
    pub(super) position: Option<String>,
    /// The selector of the shard to which the items belong.
    pub(super) shard: Option<String>,
}

/// The response with a page.
pub(super) async fn answer(
    target: &Target,
    renderer: Renderer,
    page: ListPage,
    showing: ItemChanges,
    takes_gzip: bool,
) -> Result<Response<ResponseBody>, ApiError> {
    let (kind, position, shard) = (target.kind(), showing.position.clone(), showing.shard.clone());
    let meta = meta_of(target, page.revision, page.continue_token.as_deref(), page.remaining);
    let head = ListHead {
        kind: &target.resource.list_kind,
        api_version: &kind.group_version().to_string(),
        meta: ListMeta { position: position.as_deref(), shard: shard.as_deref(), ..meta },
    };
    let mut source = source_of(page.items, &renderer, showing).await?;
    let content_type = renderer.media().kind.content_type();
    let (mut writer, mut start) = ListWriter::start(renderer, &head, &mut source).await?;
    let bytes = source.size_hint();
    let mut gzip = takes_gzip && bytes > GZIP_THRESHOLD_BYTES as u64;
    let mut parts = Vec::new();
    // Rows and metadata may be far shorter than the objects, or longer.
    if takes_gzip && !writer.is_canonical() {
        match begin_long(&mut writer, &mut source, &mut start).await? {
            None => {
                writer.finish(&mut start);
                return Ok(respond::bytes(StatusCode::OK, content_type, start));
            }
            Some(begun) => parts = begun,
        }
        gzip = true;
    }
    // Copying items costs less than moving them to other threads, and canonical items are already compressed. Packed
    // objects must be decoded first.
    let is_copied = writer.is_canonical() || (writer.copies() && !gzip);
    let direct = is_copied && (gzip || !source.is_packed());
    let ahead = !direct && (bytes >= AHEAD_FROM_BYTES || source.has_heavy());
    let body = match (ahead, gzip) {
        (true, _) => stream(YieldingBody::new(AheadBody::new(writer, (start, parts), source, gzip))),
        (false, true) => stream(YieldingBody::new(GzipListBody::new(writer, (start, parts), source))),
        (false, false) if direct => stream(ListBody::new(writer, (&start, parts), source)),
        (false, false) => stream(YieldingBody::new(ListBody::new(writer, (&start, parts), source))),
    };
    let span = debug_span!("encoding", media = content_type, bytes, revision = page.revision.get());
    let body = if span.is_disabled() { body } else { stream(GuardedBody::new(body, span)) };
    let mut response = respond::stream(StatusCode::OK, content_type, body);
    if gzip {
        mark_gzip(response.headers_mut());
    }
    Ok(response)
}

/// Writes items after the start of a list, until the list is long enough to be compressed. Returns the parts that are not
/// written, or `None` if these are all items.
///
/// # Errors
/// 500 when an item cannot be converted, read or encoded.
async fn begin_long(
    writer: &mut ListWriter,
    source: &mut Source,
    list: &mut Vec<u8>,
) -> Result<Option<Vec<Part>>, ApiError> {
    while list.len() <= GZIP_THRESHOLD_BYTES {
        let Some(entries) = source.next().await? else { return Ok(None) };
        let mut parts = done(bytes_of(&entries), writer.block(entries)).await?;
        if parts.iter().any(|part| matches!(part, Part::Long(_))) {
            return Ok(Some(parts));
        }
        for part in &mut parts {
            if let Part::Text(text) = part {
                list.append(text);
            }
        }
    }
    Ok(Some(Vec::new()))
}

/// The metadata of a list.
pub(super) fn meta_of<'a>(
    target: &Target,
    revision: Revision,
    continue_token: Option<&'a str>,
    remaining: Option<u64>,
) -> ListMeta<'a> {
    ListMeta {
        revision,
        position: None,
        continue_token: continue_token.or(target.token_at_end()),
        remaining,
        shard: None,
    }
}

/// The items in the requested version and order.
///
/// # Errors
/// 500 when items of the first block cannot be converted. A later failure breaks the body. 413 for a protobuf list of
/// converted objects that is too large to be kept in memory.
pub(super) async fn source_of(items: ListItems, renderer: &Renderer, showing: ItemChanges) -> Result<Source, ApiError> {
    let mut source = match items {
        ListItems::Range { cursor, bytes } => Source::Range(cursor, bytes),
        ListItems::Chosen(entries) => Source::Chosen(entries.into_iter()),
        ListItems::History(items) => Source::History(items),
    };
    // A protobuf list begins with its length.
    let measured = renderer.media().kind == MediaKind::Protobuf;
    if !renderer.view().is_sole() {
        source = converted(source, renderer.view(), measured).await?;
    }
    if let Some(mask) = showing.mask {
        source = masked(source, mask);
    }
    if let Some(order) = showing.order {
        let most = match &source {
            Source::Range(..) | Source::Chosen(_) => u64::MAX,
            Source::History(_) | Source::Converted { .. } => SORTED_BYTES,
        };
        let (entries, renderer) = (source.into_entries_within(most).await?, renderer.clone());
        let bytes = bytes_of(&entries);
        let sorted = move || {
            let entries = entries.into_iter();
            let decoded = entries.map(|entry| {
                let object = renderer.decode(&entry.object(), entry.revision)?;
                Ok((object, entry))
            });
            let mut decoded = decoded.collect::<Result<Vec<_>, ApiError>>()?;
            decoded.sort_by(|(left, _), (right, _)| order(left, right));
            Ok::<Vec<_>, ApiError>(decoded.into_iter().map(|(_, entry)| entry).collect())
        };
        let sorted = done(bytes, sorted).await?;
        return Ok(Source::Chosen(sorted.into_iter()));
    }
    match source {
        Source::Converted { again: None, .. } if measured => {
            Ok(Source::Chosen(source.into_entries_within(MEASURED_BYTES).await?.into_iter()))
        }
        source => Ok(source),
    }
}
