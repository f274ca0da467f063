//! `POST` of a TokenRequest below a service account, and of a TokenReview.

use http::{Response, StatusCode};
use keelson_meta::ApiError;
use keelson_meta::options::{CreateOptions, Query};
use keelson_registry::{ServiceAccountTokens, Target};

use super::{decode, resolve};
use crate::body::ResponseBody;
use crate::negotiation::{OBJECT_OFFERS, negotiate};
use crate::respond;
use crate::service::ApiRequest;

pub(super) async fn create(
    tokens: &ServiceAccountTokens,
    target: &Target,
    request: ApiRequest,
) -> Result<Response<ResponseBody>, ApiError> {
    let media = negotiate(&request.parts, OBJECT_OFFERS)?;
    let options = CreateOptions::parse(&Query::parse(request.parts.uri.query().unwrap_or_default()))?;
    let decoded = decode::below(&request.parts.headers, request.body, target, options.field_validation).await?;
    let namespace = target.namespace.as_deref().unwrap_or_default();
    let issued = tokens.issue(namespace, resolve::name(target)?, decoded.object).await?;
    let mut response = respond::value(StatusCode::CREATED, &issued.into_value(), media);
    respond::add_warnings(response.headers_mut(), &decoded.warnings);
    Ok(response)
}

pub(super) async fn review(
    tokens: &ServiceAccountTokens,
    target: &Target,
    request: ApiRequest,
) -> Result<Response<ResponseBody>, ApiError> {
    let media = negotiate(&request.parts, OBJECT_OFFERS)?;
    let options = CreateOptions::parse(&Query::parse(request.parts.uri.query().unwrap_or_default()))?;
    let decoded = decode::object(&request.parts.headers, request.body, target, options.field_validation).await?;
    let reviewed = tokens.review(decoded.object).await?;
    let mut response = respond::value(StatusCode::CREATED, &reviewed.into_value(), media);
    respond::add_warnings(response.headers_mut(), &decoded.warnings);
    Ok(response)
}
