//! `PATCH` of an object, or of its status: a patch, or server-side apply.
//!
//! The content type selects the form of the patch. The body is parsed once, for all attempts of the write.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, Response};
use keelson_access::audit::{AuditRecord, Body};
use keelson_codec::json::{self, Parsed};
use keelson_codec::yaml;
use keelson_meta::error::MediaTypes;
use keelson_meta::json::{Value, ValueKind};
use keelson_meta::options::{self, FieldValidation, PatchOptions, Query};
use keelson_meta::{ApiError, go_format};
use keelson_registry::{Patch, PatchKind, Registry, Target};

use super::render::Renderer;
use super::{decode, resolve, status_of, writing};
use crate::audited;
use crate::body::{MAX_REQUEST_BYTES, RequestBody, ResponseBody};
use crate::negotiation::Subject;
use crate::service::ApiRequest;

pub(super) async fn handle(
    registry: &Registry,
    target: &Target,
    request: Box<ApiRequest>,
) -> Result<Response<ResponseBody>, ApiError> {
    let kind = kind(&request.parts.headers, target)?;
    let renderer = Renderer::negotiate(registry, target, &request, Subject::Object)?;
    let options = options(request.query.pairs(), kind)?;
    let patch = document(kind, request.body, options.field_validation, request.caller.audit()).await?;
    let name = resolve::name(target)?;
    let caller = writing(request.caller, &request.parts, options.field_manager.as_deref(), options.dry_run);
    let written = match kind {
        PatchKind::Apply => registry.apply(target, name, &patch, &caller, &options).await?,
        PatchKind::Json | PatchKind::Merge | PatchKind::Strategic => {
            registry.patch(target, name, &patch, &caller, &options).await?
        }
    };
    renderer.answer(status_of(&written), &written.object, written.revision).await
}

/// Parses the options of a patch of this form.
///
/// # Errors
/// 422 for invalid values.
pub(super) fn options(query: &Query<'_>, kind: PatchKind) -> Result<PatchOptions, ApiError> {
    let rules = match kind {
        PatchKind::Apply => options::PatchMode::Apply,
        PatchKind::Json | PatchKind::Merge | PatchKind::Strategic => options::PatchMode::Change,
    };
    PatchOptions::parse(query, rules)
}

/// Parses a patch document, and records it for audit as the client sent it.
///
/// # Errors
/// 413 above the size limit. 400 for a body that is not JSON, or for apply not YAML.
pub(super) async fn document(
    kind: PatchKind,
    body: RequestBody,
    validation: FieldValidation,
    audit: &AuditRecord,
) -> Result<Patch, ApiError> {
    let body = body.read(MAX_REQUEST_BYTES).await?;
    // An applied configuration is YAML, even if it is also JSON.
    let form = if kind == PatchKind::Apply { audited::of_yaml } else { audited::of_json };
    audit.sent(|| Body::new(body.clone(), form));
    let parsed = json::parse(&body);
    if kind == PatchKind::Apply {
        return match parsed {
            // Most applied configurations are JSON, which is YAML as well. Duplicate keys are reported by the YAML
            // parser alone.
            Ok(Parsed { value: mut document, duplicates }) if duplicates.is_empty() => {
                document.make_floats_whole();
                Ok(Patch { kind, document, faults: Vec::new() })
            }
            Ok(_) | Err(_) => applied(&body, validation),
        };
    }
    match parsed {
        Ok(Parsed { value: mut document, duplicates: faults }) => {
            refuse_other_forms(kind, &document, validation)?;
            if kind == PatchKind::Strategic {
                // Upstream decodes the patch without a schema, so that a whole number in any notation is an integer.
                document.make_floats_whole();
            }
            Ok(Patch { kind, document, faults })
        }
        Err(error) => Err(ApiError::BadRequest(match (kind, validation) {
            (PatchKind::Merge, FieldValidation::Ignore) => BAD_MERGE_PATCH.to_owned(),
            (PatchKind::Json, FieldValidation::Ignore) => error.to_string(),
            _ => format!("error decoding patch: {error}"),
        })),
    }
}

/// The error of upstream's library for an invalid merge patch.
const BAD_MERGE_PATCH: &str = "Invalid JSON Patch";

/// Without strict field validation, upstream passes a patch directly to its library. The library has another error for
/// a patch that is not an object or array.
fn refuse_other_forms(kind: PatchKind, document: &Value, validation: FieldValidation) -> Result<(), ApiError> {
    let refused = |message: String| Err(ApiError::BadRequest(message));
    match (kind, validation, document) {
        (PatchKind::Merge, FieldValidation::Ignore, document) if !document.is_object() => {
            refused(BAD_MERGE_PATCH.to_owned())
        }
        (PatchKind::Json, FieldValidation::Ignore, document) if !document.is_array() && !document.is_null() => {
            let found = go_format::found(&ValueKind::from_value(document), "jsonpatch.Patch");
            refused(format!("json: cannot unmarshal {found} into Go value of type jsonpatch.Patch"))
        }
        _ => Ok(()),
    }
}

/// Parses an applied configuration.
fn applied(body: &[u8], validation: FieldValidation) -> Result<Patch, ApiError> {
    let parsed = yaml::parse(body).map_err(|error| ApiError::BadRequest(format!("error decoding YAML: {error}")))?;
    let faults = decode::yaml_faults(parsed.duplicates, validation);
    let faults = match validation {
        FieldValidation::Strict => {
            faults.iter().map(|fault| format!("error converting YAML to JSON: {fault}")).collect()
        }
        FieldValidation::Ignore | FieldValidation::Warn => faults,
    };
    Ok(Patch { kind: PatchKind::Apply, document: parsed.value, faults })
}

/// The patch forms of custom resources. Their schemas do not define how strategic merge patches merge lists.
const CUSTOM_PATCHES: MediaTypes =
    &["application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"];

/// The form of a patch of the target, by its media type.
///
/// # Errors
/// 415 for an unknown form, or one that the target does not support.
pub(super) fn kind(headers: &HeaderMap, target: &Target) -> Result<PatchKind, ApiError> {
    let is_custom = !target.resource.is_builtin();
    let media = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match media.split(';').next().unwrap_or_default().trim() {
        "application/json-patch+json" => Ok(PatchKind::Json),
        "application/merge-patch+json" => Ok(PatchKind::Merge),
        "application/strategic-merge-patch+json" if !is_custom => Ok(PatchKind::Strategic),
        "application/apply-patch+yaml" => Ok(PatchKind::Apply),
        _ if is_custom => Err(ApiError::UnsupportedMediaType { accepted: CUSTOM_PATCHES }),
        _ => Err(ApiError::UnsupportedPatchType),
    }
}
