//! The memory of responses until their clients have read them, with a share for each user.
//!
//! A response that is encoded whole, or that needs an index of a deeply nested object, keeps up to 20 MB. A client that
//! reads nothing could otherwise fill the memory with some hundred requests.

use std::sync::{Arc, LazyLock};

use http::Response;
use keelson_meta::ApiError;

use crate::body::{GuardedBody, ResponseBody, stream};
use crate::negotiation::MediaType;
use crate::respond::{self, KeptBytes};
use crate::shares::{Holder, Level, Share, Shares};

/// The memory of all responses of this process, in bytes.
const MOST: usize = 1 << 30;

static KEPT: LazyLock<Arc<Shares>> = LazyLock::new(|| Shares::new("bytes of unread responses", MOST));

/// The shares of all users.
pub(super) fn shares() -> Arc<Shares> {
    KEPT.clone()
}

/// Takes the memory of a part of a response.
///
/// # Errors
/// 429 when the user has its share.
pub(crate) fn take(holder: Holder, bytes: usize) -> Result<Share, ApiError> {
    // All unauthenticated clients together have no more than one user.
    let level = if holder.level == Level::Anonymous { Level::Users } else { holder.level };
    KEPT.take(Holder { level, ..holder }, bytes)
}

/// Counts the memory of a response until it is sent. A response without room is replaced by an error. `is_read` means
/// that the request changed nothing.
pub(super) fn keeping(
    mut response: Response<ResponseBody>,
    holder: Holder,
    is_read: bool,
    error_form: MediaType,
) -> Response<ResponseBody> {
    let Some(KeptBytes(bytes)) = response.extensions_mut().remove() else { return response };
    match take(holder, bytes) {
        Ok(share) => response.map(|body| stream(GuardedBody::new(body, share))),
        Err(refusal) if is_read || !response.status().is_success() => respond::error(&refusal, error_form),
        // Clients must not repeat it by themselves.
        Err(_) => {
            let why = "the request was carried out, and its response is not sent: the user has too many unread ones";
            respond::error(&ApiError::Timeout(why.to_owned()), error_form)
        }
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;

    #[test]
    fn responses_above_the_share_of_a_user_are_refused() {
        let holder = |flow| Holder { flow, level: Level::Anonymous };
        let answer = |flow, code: StatusCode, is_read| {
            let mut response = respond::bytes(code, "application/json", "{}");
            response.extensions_mut().insert(KeptBytes(Level::Users.most_of(MOST) / 2));
            keeping(response, holder(flow), is_read, MediaType::JSON)
        };
        let kept = [answer(1, StatusCode::OK, true), answer(1, StatusCode::CREATED, false)];
        assert!(kept.iter().all(|response| response.status().is_success()));
        assert_eq!(answer(1, StatusCode::OK, true).status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(answer(1, StatusCode::UNPROCESSABLE_ENTITY, false).status(), StatusCode::TOO_MANY_REQUESTS);
        let done = answer(1, StatusCode::CREATED, false);
        assert_eq!(done.status(), StatusCode::GATEWAY_TIMEOUT);
        assert!(!done.headers().contains_key(http::header::RETRY_AFTER));
        assert_eq!(answer(2, StatusCode::OK, true).status(), StatusCode::OK);
        drop(kept);
        assert_eq!(answer(1, StatusCode::OK, true).status(), StatusCode::OK);
    }
}
