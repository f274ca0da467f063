//! `POST` of an Eviction below a pod.

use http::Response;
use keelson_meta::options::{DeleteOptions, Query};
use keelson_meta::{ApiError, Object};
use keelson_registry::{Registry, Target};

use super::posted::Posted;
use super::resolve;
use crate::body::ResponseBody;
use crate::service::ApiRequest;

pub(super) async fn handle(
    registry: &Registry,
    target: &Target,
    request: ApiRequest,
) -> Result<Response<ResponseBody>, ApiError> {
    let eviction = Posted::read(target, request).await?;
    let name = resolve::name(target)?;
    if eviction.object.name() != name {
        return Err(ApiError::BadRequest("name in URL does not match name in Eviction object".to_owned()));
    }
    let mut deletion = delete_options(&eviction.object)?;
    deletion.dry_run |= eviction.options.dry_run;
    registry.evict(target.namespace.as_deref().unwrap_or_default(), name, &deletion).await?;
    Ok(eviction.answer.done())
}

/// How the pod shall be deleted.
fn delete_options(eviction: &Object) -> Result<DeleteOptions, ApiError> {
    let stated = eviction.0.get("deleteOptions").cloned().and_then(Object::from_value);
    DeleteOptions::parse(&Query::parse(""), stated.as_ref())
}
