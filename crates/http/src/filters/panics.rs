//! Catches panics of handlers, so that a fault in one request does not end others.
//!
//! The client gets an internal error, and the log a line. Requests share state behind locks that survive a panic.

use std::any::Any;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;

use futures::FutureExt;
use keelson_meta::ApiError;
use keelson_supervision::error_repeated;

/// Turns a panic into an error, and records its text. Shared state must be consistent after a panic: locks do not
/// poison, and writes are transactions of the store.
pub(super) async fn caught<T>(
    answer: Pin<&mut impl Future<Output = Result<T, ApiError>>>,
    told: impl FnOnce(&str),
) -> Result<T, ApiError> {
    AssertUnwindSafe(answer).catch_unwind().await.unwrap_or_else(|panic| {
        let text = text(panic.as_ref());
        error_repeated!(text; panic = text, "a request panicked");
        told(text);
        Err(ApiError::Internal("this request caused the server to panic; its log has the details".to_owned()))
    })
}

/// Runs the part of a request's work that continues after its response. A panic ends only that work.
pub(crate) async fn logged(work: impl Future<Output = ()>) {
    if let Err(panic) = AssertUnwindSafe(work).catch_unwind().await {
        error_repeated!(text(panic.as_ref()); panic = text(panic.as_ref()), "work after a response panicked");
    }
}

fn text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("not a text")
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use super::*;

    #[tokio::test]
    async fn a_panic_is_an_internal_error() {
        let outcome: Result<(), _> =
            caught(pin!(async { panic!("at work") }), |text| assert_eq!(text, "at work")).await;
        assert_eq!(outcome.unwrap_err().code(), 500);
    }
}
