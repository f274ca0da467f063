//! Logs of containers from their kubelets.
//!
//! Options are validated as upstream does before the kubelet gets them. The log is forwarded as it arrives, and needs
//! no more memory than the buffer of its connection.

use std::sync::atomic::Ordering;
use std::time::Duration;

use form_urlencoded::Serializer;
use http::header::{CONTENT_TYPE, HOST, HeaderValue, USER_AGENT};
use http::{Method, Response};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use keelson_meta::clock::{parse_rfc3339, rfc3339};
use keelson_meta::field_error::FieldError;
use keelson_meta::go_format::quote;
use keelson_meta::options::Query;
use keelson_meta::status::StatusDetails;
use keelson_meta::{ApiError, GroupKind, Status, host_port};
use keelson_outbound::{ForwardedBody, NodeAddress, Security};
use keelson_registry::KubeletEndpoint;
use tokio::time::timeout;

use super::{NodeAccess, refused_or, unwritable};
use crate::body::ResponseBody;
use crate::proxy::{FORWARDED_FOR, keep_fields, pass};
use crate::service::ApiRequest;

/// The number of bytes of a kubelet's error that are forwarded.
const REFUSAL_BYTES: usize = 50_000;
/// The longest time for a kubelet's error to arrive.
const REFUSAL_TIME: Duration = Duration::from_secs(10);

/// The streams of a container that a request can select.
const STREAMS: [&str; 3] = [ALL_STREAMS, "Stdout", "Stderr"];
const ALL_STREAMS: &str = "All";

/// The options of a log request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LogOptions {
    /// The query of the request to the kubelet.
    query: String,
    /// True if the kubelet's certificate is not verified.
    skips_verification: bool,
}

impl LogOptions {
    /// Parses the options for the log of a pod. `splits_streams` is true if one stream can be selected.
    ///
    /// # Errors
    /// 400 for a malformed value, 422 for invalid options.
    pub(super) fn read(query: &Query<'_>, pod: &str, splits_streams: bool) -> Result<Self, ApiError> {
        let is_set = |name: &str| query.flag(name) == Some(true);
        let tail_lines = query.integer("tailLines")?;
        let limit_bytes = query.integer("limitBytes")?;
        let since_seconds = query.integer("sinceSeconds")?;
        let since_time = query.get("sinceTime").filter(|text| !text.is_empty()).map(time).transpose()?;
        let mut errors = Vec::new();
        if let Some(lines) = tail_lines.filter(|lines| *lines < 0) {
            errors.push(FieldError::invalid("tailLines", lines, "must be greater than or equal to 0"));
        }
        if let Some(bytes) = limit_bytes.filter(|bytes| *bytes < 1) {
            errors.push(FieldError::invalid("limitBytes", bytes, "must be greater than 0"));
        }
        match (since_seconds, &since_time) {
            (Some(_), Some(_)) => {
                let why = "at most one of `sinceTime` or `sinceSeconds` may be specified";
                errors.push(FieldError::forbidden("", why));
            }
            (Some(seconds), None) if seconds < 1 => {
                errors.push(FieldError::invalid("sinceSeconds", seconds, "must be greater than 0"));
            }
            _ => {}
        }
        let stream = query.get("stream");
        match stream {
            Some(_) if !splits_streams => errors.push(FieldError::forbidden("stream", "may not be specified")),
            Some(stream) => {
                if !STREAMS.contains(&stream) {
                    errors.push(FieldError::not_supported("stream", stream, &STREAMS));
                }
                if stream != ALL_STREAMS && tail_lines.is_some() {
                    let why = "`tailLines` and specific `stream` are mutually exclusive for now";
                    errors.push(FieldError::forbidden("", why));
                }
            }
            None => {}
        }
        if !errors.is_empty() {
            let kind = GroupKind { group: String::new(), kind: "PodLogOptions".to_owned() };
            return Err(ApiError::Invalid { kind, name: pod.to_owned(), errors });
        }
        let mut written = Serializer::new(String::new());
        let number = |value: Option<i64>| value.map(|value| value.to_string());
        let flag = |name: &str| is_set(name).then(|| "true".to_owned());
        // Sorted by name, as Go writes them.
        for (name, value) in [
            ("follow", flag("follow")),
            ("limitBytes", number(limit_bytes)),
            ("previous", flag("previous")),
            ("sinceSeconds", number(since_seconds)),
            ("sinceTime", since_time),
            ("stream", stream.map(str::to_owned)),
            ("tailLines", number(tail_lines)),
            ("timestamps", flag("timestamps")),
        ] {
            if let Some(value) = value {
                written.append_pair(name, &value);
            }
        }
        Ok(Self { query: written.finish(), skips_verification: is_set("insecureSkipTLSVerifyBackend") })
    }
}

/// A time in UTC, in whole seconds.
fn time(text: &str) -> Result<String, ApiError> {
    let parsed = parse_rfc3339(text).map(rfc3339);
    parsed.ok_or_else(|| {
        const LAYOUT: &str = "2006-01-02T15:04:05Z07:00";
        let text = quote(text);
        ApiError::BadRequest(format!("parsing time {text} as \"{LAYOUT}\": cannot parse {text} as \"{LAYOUT}\""))
    })
}

impl NodeAccess {
    /// The log of a container.
    pub(super) async fn log(
        &self,
        endpoint: KubeletEndpoint,
        options: &LogOptions,
        name: &str,
        request: ApiRequest,
    ) -> Result<Response<ResponseBody>, ApiError> {
        let KubeletEndpoint { host, port, namespace, pod, container, .. } = endpoint;
        let security = if options.skips_verification { Security::UnverifiedKubelet } else { Security::Kubelet };
        let address = NodeAddress { host, port, security, is_confined: false };
        let mark = if options.query.is_empty() { "" } else { "?" };
        let target = format!("/containerLogs/{namespace}/{pod}/{container}{mark}{}", options.query);
        let mut head = self.head(&request.parts, Method::GET, &address, &target).ok_or_else(unwritable)?;
        // The server requests the log itself, so the client's conditions and encodings do not apply.
        keep_fields(&mut head.headers, |name| [HOST, USER_AGENT, FORWARDED_FOR].iter().any(|kept| kept == name));
        self.counts.logs.fetch_add(1, Ordering::Relaxed);
        if options.skips_verification {
            self.counts.insecure_logs.fetch_add(1, Ordering::Relaxed);
        }
        let (response, permit) = self.client.send(&address, head, None).await.map_err(|error| {
            // As upstream, which finds these failures by their text.
            if error.to_string().contains("x509:") {
                self.counts.untrusted_logs.fetch_add(1, Ordering::Relaxed);
            }
            refused_or(error).unwrap_or_else(|why| {
                let host = host_port(&address.host, address.port);
                ApiError::Unclassified(format!("Get {}: {why}", quote(&format!("https://{host}{target}"))))
            })
        })?;
        if !(200..=206).contains(&response.status().as_u16()) {
            return Err(refusal(response, name).await);
        }
        let mut log = pass(response.map(ForwardedBody::from), permit, Some(request.stopping));
        // The log is text, whatever media type the kubelet sends.
        log.headers_mut().clear();
        log.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        *log.status_mut() = http::StatusCode::OK;
        Ok(log)
    }
}

/// Converts a kubelet's error as upstream does.
async fn refusal(response: Response<Incoming>, name: &str) -> ApiError {
    let code = response.status().as_u16();
    if (300..400).contains(&code) {
        return ApiError::Unclassified("redirects forbidden".to_owned());
    }
    let body = timeout(REFUSAL_TIME, Limited::new(response.into_body(), REFUSAL_BYTES).collect()).await;
    let body = body.ok().and_then(Result::ok).map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let text = String::from_utf8_lossy(&body).into_owned();
    let (reason, message) = match code {
        400 => return ApiError::BadRequest(text),
        500 => return ApiError::Internal(text),
        401 => ("Unauthorized", "the server has asked for the client to provide credentials".to_owned()),
        403 => ("Forbidden", text),
        404 => ("NotFound", "the server could not find the requested resource".to_owned()),
        405 => ("MethodNotAllowed", "the server does not allow this method on the requested resource".to_owned()),
        503 => ("ServiceUnavailable", "the server is currently unable to handle the request".to_owned()),
        504 => (
            "Timeout",
            "the server was unable to return a response in the time allotted, but may still be processing the request"
                .to_owned(),
        ),
        501.. => {
            let why = format!("an error on the server ({}) has prevented the request from succeeding", quote(&text));
            ("InternalError", why)
        }
        _ => {
            ("Unknown", format!("the server responded with the status code {code} but did not return more information"))
        }
    };
    let message = format!("{message} ( pods/log {name})");
    let mut status = Status::failure(code, Some(reason), message);
    status.details =
        Some(StatusDetails { name: name.to_owned(), kind: "pods/log".to_owned(), ..StatusDetails::default() });
    ApiError::Answered(Box::new(status))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(query: &str, expected: Result<&str, &str>) {
        check_gated(query, false, expected);
    }

    fn check_gated(query: &str, splits_streams: bool, expected: Result<&str, &str>) {
        let read = LogOptions::read(&Query::parse(query), "p", splits_streams);
        let read = read.map(|options| options.query).map_err(|error| error.to_string());
        assert_eq!(read.as_deref().map_err(String::as_str), expected, "{query}");
    }

    #[test]
    fn valid_options_go_to_the_kubelet() {
        check("", Ok(""));
        check("follow=true&previous=0&timestamps&container=a", Ok("follow=true&timestamps=true"));
        check("tailLines=0&limitBytes=1&sinceSeconds=5", Ok("limitBytes=1&sinceSeconds=5&tailLines=0"));
        check("sinceTime=2020-01-01T02:00:00%2B02:00", Ok("sinceTime=2020-01-01T00%3A00%3A00Z"));
        check_gated("stream=Stderr&timestamps=1", true, Ok("stream=Stderr&timestamps=true"));
        check_gated("stream=All&tailLines=1", true, Ok("stream=All&tailLines=1"));
        check_gated("tailLines=1", true, Ok("tailLines=1"));
        check("pretty=true&insecureSkipTLSVerifyBackend=true&x=%26follow%3Dtrue", Ok(""));
    }

    #[test]
    fn invalid_log_options_get_upstream_errors() {
        let invalid = |why: &str| format!("PodLogOptions \"p\" is invalid: {why}");
        let refused = |query: &str, why: &str| check(query, Err(&invalid(why)));
        refused("tailLines=-1", "tailLines: Invalid value: -1: must be greater than or equal to 0");
        refused("limitBytes=0", "limitBytes: Invalid value: 0: must be greater than 0");
        refused("sinceSeconds=0", "sinceSeconds: Invalid value: 0: must be greater than 0");
        refused("stream=All", "stream: Forbidden: may not be specified");
        let refused_stream = |query: &str, why: &str| check_gated(query, true, Err(&invalid(why)));
        let supported = "supported values: \"All\", \"Stdout\", \"Stderr\"";
        refused_stream("stream=Both", &format!("stream: Unsupported value: \"Both\": {supported}"));
        let exclusive = ": Forbidden: `tailLines` and specific `stream` are mutually exclusive for now";
        refused_stream("stream=Stdout&tailLines=1", exclusive);
        let both = "sinceSeconds=1&sinceTime=2020-01-01T00:00:00Z";
        refused(both, ": Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified");
        check("tailLines=x", Err("strconv.ParseInt: parsing \"x\": invalid syntax"));
        assert_eq!(LogOptions::read(&Query::parse("sinceTime=soon"), "p", false).unwrap_err().code(), 400);
    }
}
