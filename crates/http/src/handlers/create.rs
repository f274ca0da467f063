//! `POST` of an object.
//!
//! The handler decodes and validates the body, and the registry creates the object. The response contains the object in
//! the version of the request.

use http::{Response, StatusCode};
use keelson_meta::ApiError;
use keelson_meta::field_error::FieldError;
use keelson_meta::options::CreateOptions;
use keelson_registry::{Registry, Target};

use super::render::Renderer;
use super::{decode, writing};
use crate::body::ResponseBody;
use crate::negotiation::Subject;
use crate::service::ApiRequest;

pub(super) async fn handle(
    registry: &Registry,
    target: &Target,
    request: Box<ApiRequest>,
) -> Result<Response<ResponseBody>, ApiError> {
    let renderer = Renderer::negotiate(registry, target, &request, Subject::Object)?;
    let options = CreateOptions::parse(request.query.pairs())?;
    let caller = writing(request.caller, &request.parts, options.field_manager.as_deref(), options.dry_run);
    let (headers, strictness) = (&request.parts.headers, options.field_validation);
    let object = decode::object(headers, request.body, target, strictness, &caller).await?;
    let sent = object.resource_version().to_owned();
    if request.info.namespace_is_empty {
        let errors = vec![FieldError::required("metadata.namespace", "")];
        return Err(ApiError::Invalid { kind: target.group_kind(), name: object.name().to_owned(), errors });
    }
    let created = registry.create(target, object, &caller, &options).await?;
    renderer.answer_create(StatusCode::CREATED, &created.object, created.revision, &sent).await
}
