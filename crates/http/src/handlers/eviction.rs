//! `POST` of an Eviction below a pod.
//!
//! The registry checks the disruption budgets of the pod. If they forbid the eviction, it returns the time to retry.

use http::Response;
use keelson_meta::ApiError;
use keelson_registry::{Registry, Target};

use super::create_only::CreateOnly;
use super::resolve;
use crate::body::ResponseBody;
use crate::service::ApiRequest;

pub(super) async fn handle(
    registry: &Registry,
    target: &Target,
    request: Box<ApiRequest>,
) -> Result<Response<ResponseBody>, ApiError> {
    let eviction = CreateOnly::read(registry, target, request).await?;
    let name = resolve::name(target)?;
    if eviction.object.name() != name {
        return Err(ApiError::BadRequest("name in URL does not match name in Eviction object".to_owned()));
    }
    registry.evict(target, name, eviction.object, &eviction.caller).await?;
    Ok(eviction.answer.done())
}
