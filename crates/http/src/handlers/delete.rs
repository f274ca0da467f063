//! `DELETE` of one object, or of a collection.
//!
//! The options are in the body or in the query. The response contains the object if it still has finalizers, and
//! otherwise a `Status`.

use http::{Response, StatusCode};
use keelson_meta::options::DeleteOptions;
use keelson_meta::status::StatusDetails;
use keelson_meta::{ApiError, ListHead, Status};
use keelson_registry::{Deleted, ListItems, Registry, Target, not_for_collections};

use super::list::{ItemChanges, source_of};
use super::list_body::{ListBody, YieldingBody};
use super::render::{ListWriter, Renderer};
use super::{decode, resolve};
use crate::body::{ResponseBody, stream};
use crate::negotiation::Subject;
use crate::respond;
use crate::router::NO_NAMESPACE;
use crate::service::ApiRequest;

pub(super) async fn one(
    registry: &Registry,
    target: &Target,
    request: Box<ApiRequest>,
) -> Result<Response<ResponseBody>, ApiError> {
    let renderer = Renderer::negotiate(registry, target, &request, Subject::Object)?;
    let body = decode::optional(&request.parts.headers, request.body, request.caller.audit()).await?;
    let options = DeleteOptions::parse(request.query.pairs(), body.as_ref())?;
    let caller = request.caller.rehearsing_if(options.dry_run);
    let name = resolve::name(target)?;
    if options.ignore_store_read_error {
        registry.delete_unreadable(target, name, &caller, &options).await?;
        let details = StatusDetails {
            name: name.to_owned(),
            group: target.resource.group.to_string(),
            kind: target.resource.plural.to_string(),
            ..StatusDetails::default()
        };
        return Ok(respond::status(Status::success(details), renderer.media()));
    }
    let deleted = registry.delete(target, name, &caller, &options).await?;
    Ok(match &deleted {
        Deleted::Pending(marked) => {
            // As upstream, 202 is returned only for the old option `orphanDependents=false`.
            let code = if options.orphan_dependents == Some(false) { StatusCode::ACCEPTED } else { StatusCode::OK };
            renderer.answer(code, &marked.object, marked.revision).await?
        }
        Deleted::Gone(last) if registry.returns_deleted(target) => {
            renderer.answer(StatusCode::OK, &last.object, last.revision).await?
        }
        Deleted::Gone(last) => {
            let details = StatusDetails {
                name: name.to_owned(),
                group: target.resource.group.to_string(),
                kind: target.resource.plural.to_string(),
                uid: last.object.uid().into_owned(),
                ..StatusDetails::default()
            };
            respond::status(Status::success(details), renderer.media())
        }
    })
}

pub(super) async fn collection(
    registry: &Registry,
    target: &Target,
    request: Box<ApiRequest>,
) -> Result<Response<ResponseBody>, ApiError> {
    let renderer = Renderer::negotiate(registry, target, &request, Subject::List)?;
    let selected = request.query.list_options()?;
    let body = decode::optional(&request.parts.headers, request.body, request.caller.audit()).await?;
    let options = DeleteOptions::parse(request.query.pairs(), body.as_ref())?;
    if options.ignore_store_read_error {
        return Err(not_for_collections());
    }
    let caller = request.caller.rehearsing_if(options.dry_run);
    if request.info.namespace_is_empty {
        // The list covers all namespaces, but an object cannot be deleted without its namespace.
        let page = registry.list(target, &caller, selected).await?;
        let is_empty = match &page.items {
            ListItems::Range { bytes, .. } => *bytes == 0,
            ListItems::Chosen(entries) => entries.is_empty(),
            ListItems::History(items) => items.least_bytes == 0,
        };
        if !is_empty {
            return Err(ApiError::BadRequest(NO_NAMESPACE.to_owned()));
        }
        return super::list::answer(target, renderer, page, ItemChanges::default(), false).await;
    }
    let page = registry.delete_collection(target, &caller, selected, &options).await?;
    let kind = target.kind();
    let head = ListHead {
        kind: &target.resource.list_kind,
        api_version: &kind.group_version().to_string(),
        meta: super::list::meta_of(target, page.revision, page.continue_token.as_deref(), page.remaining),
    };
    let content_type = renderer.media().kind.content_type();
    let showing = ItemChanges { order: renderer.row_order(), ..ItemChanges::default() };
    let mut source = source_of(ListItems::Chosen(page.deleted), &renderer, showing).await?;
    let (writer, start) = ListWriter::start(renderer, &head, &mut source).await?;
    let body = YieldingBody::new(ListBody::new(writer, (&start, Vec::new()), source));
    Ok(respond::stream(StatusCode::OK, content_type, stream(body)))
}
