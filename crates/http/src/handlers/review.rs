//! `POST` of a review: the response is the posted object with its `status` set.
//!
//! `registry/reviews.rs` implements the reviews. Nothing is stored, even without dry run.

use http::Response;
use keelson_meta::ApiError;
use keelson_registry::{Registry, ServiceAccountTokens, Target};
use keelson_resources::CreateHandler;

use super::posted::Posted;
use crate::body::ResponseBody;
use crate::service::ApiRequest;

pub(super) async fn handle(
    registry: &Registry,
    tokens: Option<&ServiceAccountTokens>,
    target: &Target,
    request: Box<ApiRequest>,
) -> Result<Response<ResponseBody>, ApiError> {
    let Posted { object: review, caller, answer } = Posted::read(registry, target, request).await?;
    let reviewed = match (target.resource.create_handler, tokens) {
        (Some(CreateHandler::TokenReview), Some(tokens)) => tokens.review(target, review, &caller).await?,
        _ => registry.review(target, review, &caller).await?,
    };
    answer.with(reviewed)
}
