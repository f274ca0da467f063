//! The name of a request's object, as handlers need it.
//!
//! A request for a collection has none, and is refused here where a handler is for one object.

use keelson_meta::ApiError;
use keelson_registry::Target;

/// The name in the URL.
///
/// # Errors
/// 405 when the request is for a collection.
pub(super) fn name(target: &Target) -> Result<&str, ApiError> {
    target.name.as_deref().ok_or(ApiError::MethodNotAllowed)
}
