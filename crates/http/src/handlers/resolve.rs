//! The object name of a request.
//!
//! A request for a collection has no name. A handler for a single object refuses it here.

use keelson_meta::ApiError;
use keelson_registry::Target;

/// The name in the URL.
///
/// # Errors
/// 405 when the request is for a collection.
pub(super) fn name(target: &Target) -> Result<&str, ApiError> {
    target.name.as_deref().ok_or(ApiError::MethodNotAllowed)
}
