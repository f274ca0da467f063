//! Bearer tokens of clients that connect directly: the main server authenticates them (`TokenReview`).
//!
//! Clients that come through the main server are authenticated by its front proxy
//! (`keelson_access::PublishedAuthorities`).

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use keelson_access::User;
use keelson_http::filters::TokenAuthenticator;
use keelson_meta::ApiError;
use keelson_supervision::warn_repeated;
use kube::Client;
use kube::api::{Api, PostParams};

use crate::answers::Answers;

/// The time limit of a review, as upstream.
const ANSWER_TIME: Duration = Duration::from_secs(10);

/// Authenticates tokens by reviews at the main server.
pub(crate) struct TokenReviews {
    api: Api<TokenReview>,
    answers: Answers<Option<Arc<User>>>,
}

impl TokenReviews {
    pub(crate) fn new(client: Client) -> Self {
        Self { api: Api::all(client), answers: Answers::default() }
    }

    async fn review(&self, token: &str) -> Result<Option<Arc<User>>, ApiError> {
        let spec = TokenReviewSpec { token: token.to_owned(), ..TokenReviewSpec::default() };
        let review = TokenReview { metadata: ObjectMeta::default(), spec, status: None };
        let params = PostParams::default();
        let asked = tokio::time::timeout(ANSWER_TIME, self.api.create(&params, &review)).await;
        let failed = |cause: String| {
            warn_repeated!(""; cause, "a token review at the main server failed");
            ApiError::Internal("the token review at the main server failed".to_owned())
        };
        let answer = asked.map_err(|_| failed(format!("no answer in {ANSWER_TIME:?}")))?;
        let status = answer.map_err(|error| failed(error.to_string()))?.status.unwrap_or_default();
        Ok(status.user.filter(|_| status.authenticated == Some(true)).map(|user| Arc::new(known(user))))
    }
}

fn known(user: UserInfo) -> User {
    User {
        name: user.username.unwrap_or_default(),
        uid: user.uid.filter(|uid| !uid.is_empty()),
        groups: user.groups.unwrap_or_default(),
        extra: user.extra.unwrap_or_default(),
    }
}

impl TokenAuthenticator for TokenReviews {
    fn user<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<(User, Option<&'static str>), ApiError>> {
        Box::pin(async move {
            let known = match self.answers.get(token) {
                Some(known) => known,
                None => {
                    let known = self.review(token).await?;
                    self.answers.keep(token.to_owned(), known.clone());
                    known
                }
            };
            known.map(|user| (User::clone(&user), None)).ok_or(ApiError::Unauthorized)
        })
    }
}
