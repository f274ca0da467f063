//! Retries of a change that lost to a write of somebody else.
//!
//! A change of an object is made of what was read: when somebody else was faster it is read and made again, a few times at once. Whoever
//! loses that often tries again later, in the pace of its queue.

use keelson_meta::ApiError;

/// Makes a change until nobody else was faster, so often at the most. An attempt reads what it changes; that an object was made or went
/// away meanwhile is a conflict, too.
///
/// # Errors
/// The last conflict, or what else an attempt says.
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
