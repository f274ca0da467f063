//! The time limit of a request.
//!
//! The limit covers the time until the response's status and headers. After that, a response may take any time while it
//! makes progress, so that a long list is not aborted for its length. Watches end by themselves.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use http::Response;
use http::request::Parts;
use hyper::body::Body as _;
use keelson_meta::ApiError;
use tokio::time::{Instant, timeout_at};

use crate::body::{Progress, ResponseBody, stream};
use crate::proxy::Forwarded;
use crate::request_info::RequestInfo;

/// The longest time until the response's status and headers unless configured, and between two frames of its body.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// The limit of a request: none for watches, otherwise the parameter `timeout`, at most `longest`.
///
/// # Errors
/// [`ApiError::BadRequest`] when the parameter is not a duration.
pub(super) fn request_timeout(
    info: &RequestInfo,
    parts: &Parts,
    longest: Duration,
) -> Result<Option<Duration>, ApiError> {
    if info.is_long_running() {
        return Ok(None);
    }
    let Some(query) = parts.uri.query() else { return Ok(Some(longest)) };
    let asked = form_urlencoded::parse(query.as_bytes()).find(|(key, value)| key == "timeout" && !value.is_empty());
    let Some((_, asked)) = asked else { return Ok(Some(longest)) };
    let asked = go_duration(&asked).ok_or_else(|| {
        let why = format!("time: invalid duration {asked:?}");
        ApiError::BadRequest(format!("invalid timeout specified in the request URL - {why}"))
    })?;
    Ok(Some(if asked.is_zero() { longest } else { asked.min(longest) }))
}

/// Waits for a response, which is borrowed as in [`super::panics::caught`].
///
/// # Errors
/// [`ApiError::Timeout`] when the time is over.
pub(super) async fn within<T>(
    deadline: Option<Instant>,
    answer: Pin<&mut impl Future<Output = T>>,
) -> Result<T, ApiError> {
    let Some(deadline) = deadline else { return Ok(answer.await) };
    let over = |_| ApiError::Timeout("request did not complete within the allotted timeout".to_owned());
    timeout_at(deadline, answer).await.map_err(over)
}

/// Limits the time between frames of a streamed response whose request has a time limit.
pub(super) fn watched(limit: Option<Duration>, response: Response<ResponseBody>) -> Response<ResponseBody> {
    // A body of known length is in memory, except that of another server.
    let is_there = response.body().size_hint().exact().is_some() && response.extensions().get::<Forwarded>().is_none();
    if limit.is_none() || is_there {
        return response;
    }
    response.map(|body| stream(Progress::new(body, REQUEST_TIMEOUT)))
}

/// Parses a duration in Go's format: `1m30s`, `1.5h`, `300ms`, `0`. Negative durations are invalid here.
fn go_duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|character: char| !character.is_ascii_digit() && character != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let unit = rest.find(|character: char| character.is_ascii_digit() || character == '.').unwrap_or(rest.len());
        let seconds = match &rest[..unit] {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" => 1e-6,
            "ns" => 1e-9,
            _ => return None,
        };
        total = total.checked_add(Duration::try_from_secs_f64(number * seconds).ok()?)?;
        rest = &rest[unit..];
    }
    (!text.is_empty()).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{Method, Request};
    use std::pin::pin;

    fn check(target: &str, expect: Option<Option<u64>>) {
        let parts = Request::get(target).body(()).unwrap().into_parts().0;
        let info = RequestInfo::parse(&Method::GET, &parts.uri);
        let limit =
            request_timeout(&info, &parts, REQUEST_TIMEOUT).ok().map(|limit| limit.map(|limit| limit.as_secs()));
        assert_eq!(limit, expect, "{target}");
    }

    #[test]
    fn request_timeouts_are_limited() {
        check("/api/v1/pods", Some(Some(60)));
        check("/api/v1/pods?timeout=30s", Some(Some(30)));
        check("/api/v1/pods?timeout=1m30s", Some(Some(60)));
        check("/api/v1/pods?timeout=0", Some(Some(60)));
        check("/api/v1/pods?timeout=soon", None);
        check("/api/v1/pods?timeout=5", None);
        check("/api/v1/pods?watch=1&timeout=soon", Some(None));
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_that_does_not_begin_times_out() {
        let deadline = Some(Instant::now() + REQUEST_TIMEOUT);
        let outcome = within(deadline, pin!(std::future::pending::<()>())).await;
        assert_eq!(outcome.unwrap_err().code(), 504);
    }
}
