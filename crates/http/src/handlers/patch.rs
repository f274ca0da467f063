//! `PATCH` of an object, or of its status.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, Response, StatusCode};
use keelson_codec::json;
use keelson_meta::ApiError;
use keelson_meta::options::{self, PatchOptions, Query};
use keelson_registry::{Patch, PatchKind, Registry, Target};

use super::render::Renderer;
use super::resolve;
use crate::body::{MAX_REQUEST_BYTES, ResponseBody};
use crate::negotiation::Subject;
use crate::service::ApiRequest;

pub(super) async fn handle(
    registry: &Registry,
    target: &Target,
    request: ApiRequest,
) -> Result<Response<ResponseBody>, ApiError> {
    let kind = kind(&request.parts.headers)?;
    let renderer = Renderer::negotiate(registry, target, &request.parts, Subject::Object)?;
    resolve::only_status(target)?;
    let query = Query::parse(request.parts.uri.query().unwrap_or_default());
    let options = PatchOptions::parse(&query, options::PatchKind::Change)?;
    let body = request.body.read(MAX_REQUEST_BYTES).await?;
    let document =
        json::parse(&body).map_err(|error| ApiError::BadRequest(format!("error decoding patch: {error}")))?.value;
    let name = resolve::name(target)?;
    let patched = registry.patch(target, name, &Patch { kind, document }, &options).await?;
    renderer.answer(StatusCode::OK, &patched.object, patched.revision)
}

fn kind(headers: &HeaderMap) -> Result<PatchKind, ApiError> {
    let media = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match media.split(';').next().unwrap_or_default().trim() {
        "application/json-patch+json" => Ok(PatchKind::Json),
        "application/merge-patch+json" => Ok(PatchKind::Merge),
        _ => Err(ApiError::UnsupportedPatchType),
    }
}
