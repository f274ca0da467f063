//! What a handler needs of the target that the router has found.

use keelson_meta::ApiError;
use keelson_registry::Target;

/// The name in the URL.
///
/// # Errors
/// 405 when the request is for a collection.
pub(super) fn name(target: &Target) -> Result<&str, ApiError> {
    target.name.as_deref().ok_or(ApiError::MethodNotAllowed)
}
