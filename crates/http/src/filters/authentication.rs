//! Who makes a request.

use std::time::SystemTime;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use keelson_access::{ClientIdentity, User};
use keelson_meta::ApiError;

/// The user of a client certificate that is still valid. A client with neither certificate nor token is anonymous.
///
/// # Errors
/// [`ApiError::Unauthorized`] for credentials that prove nothing: a certificate outside its validity, or any bearer token,
/// as none are issued yet.
pub(super) fn user(identity: Option<&ClientIdentity>, headers: &HeaderMap, now: SystemTime) -> Result<User, ApiError> {
    match identity {
        Some(identity) => identity.user_at(now).cloned().ok_or(ApiError::Unauthorized),
        None if has_bearer_token(headers) => Err(ApiError::Unauthorized),
        None => Ok(User::anonymous()),
    }
}

fn has_bearer_token(headers: &HeaderMap) -> bool {
    let scheme = |value: &[u8]| value.get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"bearer"));
    headers.get_all(AUTHORIZATION).iter().any(|value| scheme(value.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_without_credentials_is_anonymous_and_one_with_a_wrong_token_is_refused() {
        let now = SystemTime::UNIX_EPOCH;
        let mut headers = HeaderMap::new();
        assert_eq!(user(None, &headers, now).unwrap(), User::anonymous());
        headers.insert(AUTHORIZATION, "Bearer x".parse().unwrap());
        assert_eq!(user(None, &headers, now).unwrap_err(), ApiError::Unauthorized);
    }
}
