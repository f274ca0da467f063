//! `PUT` of an object, or of its status.
//!
//! The object replaces the stored one if that has the `resourceVersion` in the body. Objects of a few kinds are created
//! if they do not exist.

use http::Response;
use keelson_meta::ApiError;
use keelson_meta::options::UpdateOptions;
use keelson_registry::{Registry, SentObject, Target};

use super::decode::Document;
use super::render::Renderer;
use super::{resolve, status_of, writing};
use crate::body::ResponseBody;
use crate::negotiation::Subject;
use crate::service::ApiRequest;

pub(super) async fn handle(
    registry: &Registry,
    target: &Target,
    request: Box<ApiRequest>,
) -> Result<Response<ResponseBody>, ApiError> {
    let renderer = Renderer::negotiate(registry, target, &request, Subject::Object)?;
    let options = UpdateOptions::parse(request.query.pairs())?;
    let document = Document::read(&request.parts.headers, request.body).await?;
    let caller = writing(request.caller, &request.parts, options.field_manager.as_deref(), options.dry_run);
    let take_in = || document.object(target, options.field_validation, caller.warnings());
    let object = take_in()?;
    document.note(target, &object, caller.audit());
    let sent = SentObject::new(object, take_in);
    let name = resolve::name(target)?;
    let updated = registry.update_or_create(target, name, sent, &caller, &options).await?;
    renderer.answer(status_of(&updated), &updated.object, updated.revision).await
}
