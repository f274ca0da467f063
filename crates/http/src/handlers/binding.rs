//! `POST` of a Binding: the subresource of a pod, and the older `bindings` resource of a namespace.
//!
//! The registry's `bind` answers both with a `Status`, not with the pod.

use http::Response;
use keelson_meta::ApiError;
use keelson_registry::{Registry, Target};

use super::create_only::CreateOnly;
use crate::body::ResponseBody;
use crate::service::ApiRequest;

pub(super) async fn handle(
    registry: &Registry,
    target: &Target,
    request: Box<ApiRequest>,
) -> Result<Response<ResponseBody>, ApiError> {
    let binding = CreateOnly::read(registry, target, request).await?;
    if target.name.as_deref().is_some_and(|name| name != binding.object.name()) {
        return Err(ApiError::BadRequest("name in URL does not match name in Binding object".to_owned()));
    }
    registry.bind(target, binding.object, &binding.caller).await?;
    Ok(binding.answer.done())
}
