//! `PATCH` of an object, or of its status: a change of what is there, or server-side apply.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, Response, StatusCode};
use keelson_codec::{json, yaml};
use keelson_meta::ApiError;
use keelson_meta::options::{self, PatchOptions, Query};
use keelson_registry::{Applied, Patch, PatchKind, Registry, Target};

use super::render::Renderer;
use super::{resolve, writer};
use crate::body::{MAX_REQUEST_BYTES, RequestBody, ResponseBody};
use crate::negotiation::Subject;
use crate::respond;
use crate::service::ApiRequest;

pub(super) async fn handle(
    registry: &Registry,
    target: &Target,
    request: ApiRequest,
) -> Result<Response<ResponseBody>, ApiError> {
    let kind = kind(&request.parts.headers)?;
    let renderer = Renderer::negotiate(registry, target, &request.parts, Subject::Object)?;
    let options = options(&Query::parse(request.parts.uri.query().unwrap_or_default()), kind)?;
    let patch = document(kind, request.body).await?;
    let name = resolve::name(target)?;
    let writer = writer(&request.parts, &request.user, options.field_manager.as_deref());
    let Applied { written, created } = match kind {
        PatchKind::Apply => registry.apply(target, name, &patch, &writer, &options).await?,
        PatchKind::Json | PatchKind::Merge | PatchKind::Strategic => {
            let written = registry.patch(target, name, &patch, &writer, &options).await?;
            Applied { written, created: false }
        }
    };
    let status = if created { StatusCode::CREATED } else { StatusCode::OK };
    let mut response = renderer.answer(status, &written.object, written.revision)?;
    respond::add_warnings(response.headers_mut(), &written.warnings);
    Ok(response)
}

/// Reads the options of a patch of this form.
///
/// # Errors
/// 422 for values that are not allowed.
pub(super) fn options(query: &Query<'_>, kind: PatchKind) -> Result<PatchOptions, ApiError> {
    let rules = match kind {
        PatchKind::Apply => options::PatchKind::Apply,
        PatchKind::Json | PatchKind::Merge | PatchKind::Strategic => options::PatchKind::Change,
    };
    PatchOptions::parse(query, rules)
}

/// Reads a patch document.
///
/// # Errors
/// 413 beyond the size limit, 400 for what is not JSON, or not YAML where that may be sent.
pub(super) async fn document(kind: PatchKind, body: RequestBody) -> Result<Patch, ApiError> {
    let body = body.read(MAX_REQUEST_BYTES).await?;
    let parsed = match (kind, json::parse(&body)) {
        (_, Ok(parsed)) => parsed,
        (PatchKind::Apply, Err(_)) => {
            yaml::parse(&body).map_err(|error| ApiError::BadRequest(format!("error decoding YAML: {error}")))?
        }
        (PatchKind::Json | PatchKind::Merge | PatchKind::Strategic, Err(error)) => {
            return Err(ApiError::BadRequest(format!("error decoding patch: {error}")));
        }
    };
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
        "application/apply-patch+yaml" => Ok(PatchKind::Apply),
        _ => Err(ApiError::UnsupportedPatchType),
    }
}
