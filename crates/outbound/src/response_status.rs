//! Interprets status codes and bodies of responses as Kubernetes' own client does.
//!
//! A `Status` in the body takes precedence over the code. If a peer requests a retry, the call is retried within its
//! time limit.

use std::time::Duration;

use keelson_codec::json;
use keelson_meta::go_format::{self, quote};
use keelson_meta::json::Value;
use tokio::time::{Instant, sleep};

use crate::fault::CallError;
use crate::rest_client::{Call, RestClient, RestResponse};

/// The most retries on a peer's request.
const AGAIN: usize = 10;
/// The most bytes of a body that is parsed as a `Status`. It is parsed on the thread that reads it.
const STATUS_BYTES: usize = 256 << 10;
/// The most bytes of a failure's text.
const TEXT_BYTES: usize = 16 << 10;

/// Makes a call, and retries it if the peer responds that it is busy and states a delay. All attempts share the call's
/// time limit.
///
/// # Errors
/// Errors of a call.
pub async fn call_with_retries(client: &RestClient, call: &Call) -> Result<RestResponse, CallError> {
    let until = Instant::now() + call.time;
    let mut again = 0;
    loop {
        let answer = client.call_until(call, until).await?;
        let asks_for_it = answer.status == 429 || answer.status >= 500;
        match answer.retry_after.filter(|_| asks_for_it && again < AGAIN) {
            Some(wait) => {
                again += 1;
                client.note_repeat(&call.method, answer.status);
                drop(answer);
                let left = until.saturating_duration_since(Instant::now());
                sleep(wait.min(left).max(LEAST_WAIT)).await;
            }
            None => return Ok(answer),
        }
    }
}

/// The shortest wait before a retry.
const LEAST_WAIT: Duration = Duration::from_millis(10);

/// The failure in a response, of limited length; `None` for a success.
pub fn failure_text(answer: &RestResponse) -> Option<String> {
    if (200..=206).contains(&answer.status) {
        return answer.body.is_empty().then(|| {
            format!("0-length response with status code: {} and content type: {}", answer.status, answer.content_type)
        });
    }
    stated(&answer.body).or_else(|| Some(generic(answer)))
}

/// The `Status` in a body; `None` for another body, and for one that is too large to be one.
pub fn status_of(body: &[u8]) -> Option<Value> {
    if body.len() > STATUS_BYTES {
        return None;
    }
    let status = json::parse(body).ok()?.value;
    let is = |field: &str, expected: &str| status[field].as_str().unwrap_or(expected) == expected;
    (status.is_object() && is("kind", "Status") && is("apiVersion", "v1")).then_some(status)
}

/// The message of a `Status` that reports a failure.
fn stated(body: &[u8]) -> Option<String> {
    let status = status_of(body).filter(|status| status["status"] == "Failure")?;
    Some(cut(status["message"].as_str().unwrap_or_default(), TEXT_BYTES).to_owned())
}

/// The start of a text of another server, of at most this many bytes.
pub fn cut(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

/// The generic text for a code.
fn generic(answer: &RestResponse) -> String {
    const SHOWN_BYTES: usize = 2048;
    let media = answer.content_type.split(';').next().unwrap_or_default().trim();
    let shown = if media.starts_with("text/") && !answer.body.trim_ascii().is_empty() {
        let text = String::from_utf8_lossy(&answer.body);
        cut(text.trim(), SHOWN_BYTES).to_owned()
    } else {
        "unknown".to_owned()
    };
    match answer.status {
        400 => "the server rejected our request for an unknown reason".to_owned(),
        401 => "the server has asked for the client to provide credentials".to_owned(),
        404 => "the server could not find the requested resource".to_owned(),
        405 => "the server does not allow this method on the requested resource".to_owned(),
        406 if shown == "unknown" => {
            "the server was unable to respond with a content type that the client supports".to_owned()
        }
        403 | 406 | 415 => shown,
        409 => "the server reported a conflict".to_owned(),
        422 => "the server rejected our request due to an error in our request".to_owned(),
        429 => "the server has received too many requests and has asked us to try again later".to_owned(),
        503 => "the server is currently unable to handle the request".to_owned(),
        504 => {
            "the server was unable to return a response in the time allotted, but may still be processing the request"
                .to_owned()
        }
        code if code >= 500 => {
            format!("an error on the server ({}) has prevented the request from succeeding", quote(&shown))
        }
        code => format!("the server responded with the status code {code} but did not return more information"),
    }
}

/// Parses a body as JSON, or as YAML if it is not JSON, as upstream does.
///
/// # Errors
/// When the body is neither JSON nor YAML, or no object. The text is upstream's.
pub fn value_of(body: &[u8]) -> Result<Value, String> {
    let value = match json::parse(body) {
        Ok(parsed) => parsed.value,
        Err(error) => match keelson_codec::yaml::parse(body) {
            Ok(parsed) => parsed.value,
            Err(_) => return Err(format!("couldn't get version/kind; json parse error: {error}")),
        },
    };
    if value.is_object() || value.is_null() {
        return Ok(value);
    }
    let found = go_format::kind(&value);
    const INTO: &str =
        r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
    Err(format!(
        "couldn't get version/kind; json parse error: json: cannot unmarshal {found} into Go value of type {INTO}"
    ))
}
