//! `POST` of an object.

use http::{Response, StatusCode};
use keelson_meta::ApiError;
use keelson_meta::options::{CreateOptions, Query};
use keelson_registry::{Registry, Target};

use super::render::Renderer;
use super::{decode, writing};
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
    let options = CreateOptions::parse(&Query::parse(request.parts.uri.query().unwrap_or_default()))?;
    let decoded = decode::object(&request.parts.headers, request.body, target, options.field_validation).await?;
    let caller = writing(request.caller, &request.parts, options.field_manager.as_deref(), options.dry_run);
    let created = registry.create(target, decoded.object, &caller, &options).await?;
    let mut response = renderer.answer(StatusCode::CREATED, &created.object, created.revision).await?;
    respond::add_warnings(response.headers_mut(), &decoded.warnings);
    Ok(response)
}
