//! `GET` of a collection.

use http::{Response, StatusCode};
use keelson_codec::ListHead;
use keelson_meta::ApiError;
use keelson_meta::options::{ListOptions, Query};
use keelson_registry::{ListItems, Registry, Target};

use super::list_body::{GzipListBody, ListBody, Source};
use crate::body::{ResponseBody, stream};
use crate::negotiation::{OBJECT_OFFERS, accepts_gzip, negotiate};
use crate::respond::{self, GZIP_THRESHOLD_BYTES, mark_gzip};
use crate::service::ApiRequest;

pub(super) async fn handle(
    registry: &Registry,
    target: &Target,
    request: ApiRequest,
) -> Result<Response<ResponseBody>, ApiError> {
    let media = negotiate(&request.parts, OBJECT_OFFERS)?;
    let options = ListOptions::parse(&Query::parse(request.parts.uri.query().unwrap_or_default()), false)?;
    let page = registry.list(target, &options).await?;
    let kind = target.kind();
    let head = ListHead {
        kind: &target.resource.list_kind(),
        api_version: &kind.group_version().to_string(),
        revision: page.revision,
        continue_token: page.continue_token.as_deref(),
        remaining: page.remaining,
    };
    let source = match page.items {
        ListItems::Range { cursor, bytes } => Source::Range(cursor, bytes),
        ListItems::Chosen(entries) => Source::Chosen(entries.into_iter()),
    };
    let content_type = media.kind.content_type();
    if accepts_gzip(&request.parts.headers) && source.size_hint() > GZIP_THRESHOLD_BYTES as u64 {
        let body = stream(GzipListBody::new(&head, source, media));
        let mut response = respond::stream(StatusCode::OK, content_type, body);
        mark_gzip(response.headers_mut());
        return Ok(response);
    }
    Ok(respond::stream(StatusCode::OK, content_type, stream(ListBody::new(&head, source, media))))
}
