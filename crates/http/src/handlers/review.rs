//! `POST` of a review: the response is the posted object with its `status` set.
//!
//! `registry/reviews.rs` implements the reviews. Nothing is stored, even without dry run.

use http::Response;
use keelson_meta::ApiError;
use keelson_registry::{Registry, ServiceAccountTokens, Target};
use keelson_resources::CreateHandler;

use super::create_only::CreateOnly;
use crate::body::ResponseBody;
use crate::service::ApiRequest;

pub(super) async fn handle(
    registry: &Registry,
    tokens: Option<&ServiceAccountTokens>,
    target: &Target,
    request: Box<ApiRequest>,
) -> Result<Response<ResponseBody>, ApiError> {
    let CreateOnly { object: review, caller, answer } = CreateOnly::read(registry, target, request).await?;
    let reviewed = match (target.resource.create_handler, tokens) {
        (Some(CreateHandler::TokenReview), Some(tokens)) => tokens.review(target, review, &caller).await?,
        _ => registry.review(target, review, &caller).await?,
    };
    answer.with(reviewed)
}
