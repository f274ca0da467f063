//! `POST` of an Eviction below a pod.

use http::Response;
use keelson_meta::options::{CreateOptions, DeleteOptions, Query};
use keelson_meta::{ApiError, Object};
use keelson_registry::{Registry, Target};

use super::{decode, resolve};
use crate::body::ResponseBody;
use crate::negotiation::{OBJECT_OFFERS, negotiate};
use crate::respond;
use crate::service::ApiRequest;

pub(super) async fn handle(
    registry: &Registry,
    target: &Target,
    request: ApiRequest,
) -> Result<Response<ResponseBody>, ApiError> {
    let media = negotiate(&request.parts, OBJECT_OFFERS)?;
    let options = CreateOptions::parse(&Query::parse(request.parts.uri.query().unwrap_or_default()))?;
    let decoded = decode::below(&request.parts.headers, request.body, target, options.field_validation).await?;
    let name = resolve::name(target)?;
    if decoded.object.name() != name {
        return Err(ApiError::BadRequest("name in URL does not match name in Eviction object".to_owned()));
    }
    let mut deletion = delete_options(&decoded.object)?;
    deletion.dry_run |= options.dry_run;
    registry.evict(target.namespace.as_deref().unwrap_or_default(), name, &deletion).await?;
    let mut response = respond::done(media);
    respond::add_warnings(response.headers_mut(), &decoded.warnings);
    Ok(response)
}

/// How the pod shall be deleted.
fn delete_options(eviction: &Object) -> Result<DeleteOptions, ApiError> {
    let stated = eviction.0.get("deleteOptions").cloned().and_then(Object::from_value);
    DeleteOptions::parse(&Query::parse(""), stated.as_ref())
}
