//! `PATCH` of an object, or of its status.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, Response, StatusCode};
use keelson_codec::json;
use keelson_meta::ApiError;
use keelson_meta::options::{self, PatchOptions, Query};
use keelson_registry::{Patch, PatchKind, Registry, Target};

use super::render::Renderer;
use super::resolve;
use crate::body::{MAX_REQUEST_BYTES, RequestBody, ResponseBody};
use crate::negotiation::Subject;
use crate::respond;
use crate::service::ApiRequest;

pub(super) async fn handle(
    registry: &Registry,
    target: &Target,
    request: ApiRequest,
) -> Result<Response<ResponseBody>, ApiError> {
    let form = kind(&request.parts.headers)?;
    let renderer = Renderer::negotiate(registry, target, &request.parts, Subject::Object)?;
    resolve::only_status(target)?;
    let query = Query::parse(request.parts.uri.query().unwrap_or_default());
    let options = PatchOptions::parse(&query, options::PatchKind::Change)?;
    let patch = document(form, request.body).await?;
    let name = resolve::name(target)?;
    let patched = registry.patch(target, name, &patch, &options).await?;
    let mut response = renderer.answer(StatusCode::OK, &patched.object, patched.revision)?;
    respond::add_warnings(response.headers_mut(), &patched.warnings);
    Ok(response)
}

/// Reads a patch document.
///
/// # Errors
/// 413 beyond the size limit, 400 for what is not JSON.
pub(super) async fn document(kind: PatchKind, body: RequestBody) -> Result<Patch, ApiError> {
    let body = body.read(MAX_REQUEST_BYTES).await?;
    let parsed = json::parse(&body).map_err(|error| ApiError::BadRequest(format!("error decoding patch: {error}")))?;
    Ok(Patch { kind, document: parsed.value, duplicates: parsed.duplicates })
}

/// The form of a patch, by its media type.
///
/// # Errors
/// 415 for none that is known.
pub(super) fn kind(headers: &HeaderMap) -> Result<PatchKind, ApiError> {
    let media = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match media.split(';').next().unwrap_or_default().trim() {
        "application/json-patch+json" => Ok(PatchKind::Json),
        "application/merge-patch+json" => Ok(PatchKind::Merge),
        "application/strategic-merge-patch+json" => Ok(PatchKind::Strategic),
        _ => Err(ApiError::UnsupportedPatchType),
    }
}
