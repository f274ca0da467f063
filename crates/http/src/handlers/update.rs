//! `PUT` of an object, or of its status.

use http::Response;
use keelson_meta::ApiError;
use keelson_meta::options::{Query, UpdateOptions};
use keelson_registry::{Accepted, Registry, SentObject, Target};

use super::decode::Document;
use super::render::Renderer;
use super::{resolve, status_of, writing};
use crate::body::ResponseBody;
use crate::negotiation::Subject;
use crate::respond;
use crate::service::ApiRequest;

pub(super) async fn handle(
    registry: &Registry,
    target: &Target,
    request: ApiRequest,
) -> Result<Response<ResponseBody>, ApiError> {
    let renderer = Renderer::negotiate(registry, target, &request.parts, Subject::Object)?;
    let options = UpdateOptions::parse(&Query::parse(request.parts.uri.query().unwrap_or_default()))?;
    let document = Document::read(&request.parts.headers, request.body).await?;
    let Accepted { object, warnings } = document.object(target, options.field_validation)?;
    let sent = SentObject::new(object, || Ok(document.object(target, options.field_validation)?.object));
    let name = resolve::name(target)?;
    let caller = writing(request.caller, &request.parts, options.field_manager.as_deref(), options.dry_run);
    let updated = registry.update_or_create(target, name, sent, &caller, &options).await?;
    let mut response = renderer.answer(status_of(&updated), &updated.object, updated.revision).await?;
    respond::add_warnings(response.headers_mut(), &warnings);
    Ok(response)
}
