//! `POST` of a TokenRequest below a service account.
//!
//! The registry determines the object that the token is bound to, and its lifetime. The signing key is a setting of the
//! server.

use http::Response;
use keelson_meta::ApiError;
use keelson_registry::{Registry, ServiceAccountTokens, Target};

use super::create_only::CreateOnly;
use super::resolve;
use crate::body::ResponseBody;
use crate::service::ApiRequest;

pub(super) async fn create(
    registry: &Registry,
    tokens: Option<&ServiceAccountTokens>,
    target: &Target,
    request: Box<ApiRequest>,
) -> Result<Response<ResponseBody>, ApiError> {
    let tokens = tokens.ok_or(ApiError::MethodNotAllowed)?;
    let CreateOnly { object: wanted, caller, answer } = CreateOnly::read(registry, target, request).await?;
    let issued = tokens.issue(target, resolve::name(target)?, wanted, &caller).await?;
    answer.with(issued)
}
