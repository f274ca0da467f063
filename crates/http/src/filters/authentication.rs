//! The user of a request, from its certificate or its bearer token.
//!
//! A certificate was verified in the handshake. A token that is wrong is refused rather than ignored, and a client without
//! either is anonymous.

use std::sync::Arc;
use std::time::SystemTime;

use futures::future::BoxFuture;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use keelson_access::{ClientIdentity, User};
use keelson_meta::ApiError;
use keelson_registry::{ServiceAccountTokens, TokenFault};

/// Who knows the users of bearer tokens.
pub trait TokenAuthenticator: Send + Sync {
    /// The user of a token.
    ///
    /// # Errors
    /// [`ApiError::Unauthorized`] for a token that proves nothing.
    fn user<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<User, ApiError>>;
}

impl TokenAuthenticator for ServiceAccountTokens {
    fn user<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<User, ApiError>> {
        Box::pin(async move {
            self.authenticate(token, &[]).await.map(|(user, _)| user).map_err(|fault| match fault {
                TokenFault::Refused(why) => {
                    tracing::debug!(why, "a bearer token is refused");
                    ApiError::Unauthorized
                }
                TokenFault::Unknown(error) => error,
            })
        })
    }
}

/// The user of a client certificate that is still valid, or else of a bearer token. A client with neither is anonymous.
///
/// # Errors
/// [`ApiError::Unauthorized`] for credentials that prove nothing: a certificate outside its validity, or a token that
/// nobody knows.
pub(super) async fn user(
    identity: Option<&ClientIdentity>,
    tokens: Option<&dyn TokenAuthenticator>,
    headers: &HeaderMap,
    now: SystemTime,
) -> Result<Arc<User>, ApiError> {
    match (identity, bearer_token(headers), tokens) {
        (Some(identity), ..) => identity.user_at(now).cloned().ok_or(ApiError::Unauthorized),
        (None, Some(token), Some(tokens)) => tokens.user(token).await.map(Arc::new),
        (None, Some(_), None) => Err(ApiError::Unauthorized),
        (None, None, _) => Ok(Arc::new(User::anonymous())),
    }
}

/// The token of the first header that has one (RFC 6750, section 2.1). One that is empty is none.
fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let tokens = headers.get_all(AUTHORIZATION).iter().filter_map(|value| {
        let (scheme, token) = value.to_str().ok()?.trim().split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
    });
    tokens.into_iter().find(|token| !token.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_client_without_credentials_is_anonymous_and_one_with_a_wrong_token_is_refused() {
        let now = SystemTime::UNIX_EPOCH;
        let mut headers = HeaderMap::new();
        assert_eq!(*user(None, None, &headers, now).await.unwrap(), User::anonymous());
        headers.insert(AUTHORIZATION, "Bearer x".parse().unwrap());
        assert_eq!(user(None, None, &headers, now).await.unwrap_err(), ApiError::Unauthorized);
    }

    #[test]
    fn tokens_stand_behind_their_scheme() {
        let check = |value: &str, expected: Option<&str>| {
            let headers = HeaderMap::from_iter([(AUTHORIZATION, value.parse().unwrap())]);
            assert_eq!(bearer_token(&headers), expected, "{value}");
        };
        check("Bearer a.b.c", Some("a.b.c"));
        check("bearer  a", Some("a"));
        check("Bearer", None);
        check("Bearer ", None);
        check("Basic a", None);
    }
}
