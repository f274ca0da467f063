//! Retries of a change after write conflicts.
//!
//! A change is computed from the object that was read. After a conflict, the object is read and the change computed
//! again, a few times without a pause. After the last attempt the key goes back to its queue, which applies its
//! backoff.

use keelson_meta::ApiError;

/// Runs a change until an attempt meets no conflict, at most `attempts` times. Each attempt reads the object again. An
/// object that was created or deleted meanwhile counts as a conflict too.
///
/// # Errors
/// The last conflict, or any other error of an attempt.
pub async fn retry_conflicts<T, F>(attempts: usize, mut attempt: impl FnMut() -> F) -> Result<T, ApiError>
where
    F: Future<Output = Result<T, ApiError>>,
{
    let mut last = attempt().await;
    for _ in 1..attempts {
        match last {
            Err(ApiError::Conflict { .. } | ApiError::AlreadyExists { .. } | ApiError::NotFound { .. }) => {
                last = attempt().await;
            }
            settled => return settled,
        }
    }
    last
}
