//! Requests that a kubelet, a pod or a service would answer: logs, commands, forwarded ports, proxied requests.
//!
//! This server reaches none of them, and says so in the words of the reference server, once it has looked for the object.

use http::{Response, StatusCode};
use keelson_meta::ApiError;
use keelson_registry::{Registry, Remote, Target};

use super::resolve;
use crate::body::{ResponseBody, empty};
use crate::service::ApiRequest;

pub(super) async fn handle(
    registry: &Registry,
    target: &Target,
    request: Box<ApiRequest>,
) -> Result<Response<ResponseBody>, ApiError> {
    let container = request.query.pairs().get("container").unwrap_or_default();
    match registry.remote(target, resolve::name(target)?, container, &request.caller).await? {
        Remote::Nothing => {
            let mut response = Response::new(empty());
            *response.status_mut() = StatusCode::NO_CONTENT;
            Ok(response)
        }
    }
}
