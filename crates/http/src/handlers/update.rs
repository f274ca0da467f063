//! `PUT` of an object, or of its status.

use http::{Response, StatusCode};
use keelson_meta::ApiError;
use keelson_meta::options::{Query, UpdateOptions};
use keelson_registry::{Registry, Target};

use super::render::Renderer;
use super::{decode, resolve};
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
    resolve::only_status(target)?;
    let options = UpdateOptions::parse(&Query::parse(request.parts.uri.query().unwrap_or_default()))?;
    let decoded = decode::object(&request.parts.headers, request.body, target, options.field_validation).await?;
    let name = resolve::name(target)?;
    let updated = registry.update(target, name, &decoded.object, &options).await?;
    let mut response = renderer.answer(StatusCode::OK, &updated.object, updated.revision)?;
    respond::add_warnings(response.headers_mut(), &decoded.warnings);
    Ok(response)
}
