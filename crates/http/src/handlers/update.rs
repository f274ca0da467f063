//! `PUT` of an object, or of its status.

use http::{Response, StatusCode};
use keelson_meta::ApiError;
use keelson_meta::options::{Query, UpdateOptions};
use keelson_registry::{Accepted, Registry, Target};

use super::decode::Sent;
use super::render::Renderer;
use super::{resolve, writer};
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
    let sent = Sent::read(&request.parts.headers, request.body).await?;
    let Accepted { object, warnings } = sent.object(target, options.field_validation)?;
    let name = resolve::name(target)?;
    let writer = writer(&request.parts, &request.user, options.field_manager.as_deref());
    let mut first = Some(object);
    let each = || match first.take() {
        Some(object) => Ok(object),
        None => sent.object(target, options.field_validation).map(|again| again.object),
    };
    let updated = registry.update_or_create(target, name, each, &writer, &options).await?;
    let code = if updated.created { StatusCode::CREATED } else { StatusCode::OK };
    let mut response = renderer.answer(code, &updated.written.object, updated.written.revision)?;
    respond::add_warnings(response.headers_mut(), &warnings);
    Ok(response)
}
