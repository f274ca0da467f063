//! `POST` of a review: a question, which is answered by what was sent with its `status` filled in.
//!
//! The reviews themselves are in `registry/reviews.rs`; nothing is stored, also where the client does not ask for a dry run.

use http::Response;
use keelson_meta::ApiError;
use keelson_registry::{Registry, ServiceAccountTokens, Target};
use keelson_resources::Question;

use super::posted::Posted;
use crate::body::ResponseBody;
use crate::service::ApiRequest;

pub(super) async fn handle(
    registry: &Registry,
    tokens: &ServiceAccountTokens,
    target: &Target,
    request: ApiRequest,
) -> Result<Response<ResponseBody>, ApiError> {
    let Posted { object: question, caller, answer } = Posted::read(target, request).await?;
    let reviewed = match target.resource.question {
        Some(Question::TokenReview) => tokens.review(target, question, &caller).await?,
        _ => registry.review(target, question, &caller).await?,
    };
    Ok(answer.with(reviewed))
}
