//! `POST` of a Binding: below a pod, and as `bindings` in its namespace, the older form.

use http::Response;
use keelson_meta::ApiError;
use keelson_meta::options::{CreateOptions, Query};
use keelson_registry::{Registry, Target};

use super::decode;
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
    if target.name.as_deref().is_some_and(|name| name != decoded.object.name()) {
        return Err(ApiError::BadRequest("name in URL does not match name in Binding object".to_owned()));
    }
    let namespace = target.namespace.as_deref().unwrap_or_default();
    registry.bind(namespace, &decoded.object, options.dry_run).await?;
    let mut response = respond::done(media);
    respond::add_warnings(response.headers_mut(), &decoded.warnings);
    Ok(response)
}
