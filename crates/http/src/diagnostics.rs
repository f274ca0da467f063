//! Pages for operators who diagnose the server: `/debug/pprof`, `/debug/flags`, and the sources of `/statusz` and
//! `/flagz`.
//!
//! Profiles and the verbosity come through traits, since only a program can have a profiler and a log of its own.
//! Authorization by path comes before all of them. A profile has a limited time.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures::future::BoxFuture;
use http::header::{CONTENT_DISPOSITION, HeaderName, HeaderValue, LOCATION, X_CONTENT_TYPE_OPTIONS};
use http::{Method, Response, StatusCode};

use crate::body::ResponseBody;
use crate::respond;
use crate::service::ApiRequest;

/// The length of a CPU profile without the parameter `seconds`, as Go's servers.
const PROFILE_TIME: Duration = Duration::from_secs(30);
/// The largest length of a CPU profile.
const LONGEST_PROFILE: Duration = Duration::from_mins(5);
/// The largest body with a verbosity, in bytes.
const VERBOSITY_BYTES: usize = 64;
/// Marks an error text in the place of a profile for `go tool pprof`.
const PPROF_ERROR: HeaderName = HeaderName::from_static("x-go-pprof");

/// The index of profiles.
const PROFILES: &str = "<html>\n<head>\n<title>/debug/pprof/</title>\n</head>\n<body>\n/debug/pprof/\n<ul>\n\
    <li><a href=\"profile?seconds=30\">profile</a>: the CPU time of the next <code>seconds</code>, at most 300</li>\n\
    <li><a href=\"heap\">heap</a>: the memory in use</li>\n</ul>\n</body>\n</html>\n";
/// The index of flags that can be changed.
const FLAGS: &str = "<html>\n<head>\n<title>/debug/flags/</title>\n</head>\n<body>\n/debug/flags/<br>\n<br>\nflags:<br>\n\
    <table>\n<tr>v<br>\n</table>\n<br>\nfull flags configurable<br>\n</body>\n</html>\n";

/// The verbosity of the log.
pub trait LogVerbosity: Send + Sync + 'static {
    /// The current verbosity.
    fn get(&self) -> u32;

    /// Changes the verbosity.
    ///
    /// # Errors
    /// The log cannot be changed.
    fn set(&self, verbosity: u32) -> Result<(), String>;
}

/// Makes profiles of the process in pprof's format, compressed by gzip.
pub trait Profiler: Send + Sync + 'static {
    /// Samples the stacks of running threads until `until` is ready. Dropping the future ends the sampling.
    ///
    /// # Errors
    /// The process cannot be sampled, or is being sampled already.
    fn cpu<'p>(&'p self, until: BoxFuture<'p, ()>) -> BoxFuture<'p, Result<Vec<u8>, String>>;

    /// The memory in use.
    ///
    /// # Errors
    /// The allocator does not tell it.
    fn heap(&self) -> BoxFuture<'_, Result<Vec<u8>, String>>;
}

/// The sources of the pages.
#[derive(Clone, Default)]
pub struct Diagnostics {
    /// The flags at `/flagz`, without secrets. `None` if the page is off.
    pub flags: Option<Arc<BTreeMap<String, String>>>,
    /// The start of the process, for `/statusz`. `None` if the page is off.
    pub started: Option<SystemTime>,
    /// The verbosity at `/debug/flags/v`. `None` if profiling is off.
    pub verbosity: Option<Arc<dyn LogVerbosity>>,
    /// The profiles below `/debug/pprof`. `None` if profiling is off.
    pub profiler: Option<Arc<dyn Profiler>>,
}

impl fmt::Debug for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Diagnostics").field("started", &self.started).finish_non_exhaustive()
    }
}

impl Diagnostics {
    /// Returns true for a path that [`answer`](Self::answer) may serve.
    pub(crate) fn may_serve(path: &str) -> bool {
        path.starts_with("/debug/")
    }

    /// Answers a request for a page below `/debug`.
    pub(crate) async fn answer(&self, request: ApiRequest) -> Response<ResponseBody> {
        let path = request.info.path.clone();
        match (path.as_str(), &self.profiler, &self.verbosity) {
            ("/debug/pprof", Some(_), _) => moved("/debug/pprof/"),
            ("/debug/pprof/", Some(_), _) => html(PROFILES),
            ("/debug/pprof/profile", Some(profiler), _) => cpu_profile(&**profiler, request).await,
            ("/debug/pprof/heap", Some(profiler), _) => profile("heap", profiler.heap().await),
            ("/debug/flags" | "/debug/flags/", _, Some(_)) => html(FLAGS),
            ("/debug/flags/v", _, Some(verbosity)) => change_verbosity(&**verbosity, request).await,
            _ => respond::no_such_page(),
        }
    }
}

/// Samples the process for the requested time, or until the server stops.
async fn cpu_profile(profiler: &dyn Profiler, request: ApiRequest) -> Response<ResponseBody> {
    let ApiRequest { parts, caller, stopping, .. } = request;
    let time = match profile_time(parts.uri.query().unwrap_or_default()) {
        Ok(time) => time,
        Err(why) => return failed(StatusCode::BAD_REQUEST, why),
    };
    tracing::info!(user = caller.user().name, ?time, "a CPU profile is requested");
    let until = async move {
        let _: Option<()> = stopping.run_until_cancelled_owned(tokio::time::sleep(time)).await;
    };
    profile("profile", profiler.cpu(Box::pin(until)).await)
}

/// The time in the parameter `seconds`. As in Go, an unusable value counts as absent.
fn profile_time(query: &str) -> Result<Duration, String> {
    let stated = form_urlencoded::parse(query.as_bytes()).find(|(key, _)| key == "seconds");
    let stated = stated.map(|(_, value)| value.into_owned()).unwrap_or_default();
    let digits = stated.strip_prefix('+').unwrap_or(&stated);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(PROFILE_TIME);
    }
    match digits.parse().map(Duration::from_secs) {
        Ok(Duration::ZERO) => Ok(PROFILE_TIME),
        Ok(time) if time <= LONGEST_PROFILE => Ok(time),
        Ok(_) | Err(_) => Err(format!("a profile lasts at most {} seconds", LONGEST_PROFILE.as_secs())),
    }
}

/// Shows or changes the verbosity.
async fn change_verbosity(verbosity: &dyn LogVerbosity, request: ApiRequest) -> Response<ResponseBody> {
    match request.parts.method {
        // Upstream has no way to read the verbosity.
        Method::GET | Method::HEAD => respond::plain_text(StatusCode::OK, format!("{}\n", verbosity.get())),
        Method::PUT => {
            let body = match request.body.read(VERBOSITY_BYTES).await {
                Ok(body) => String::from_utf8_lossy(&body).into_owned(),
                Err(error) => {
                    return respond::plain_text(
                        StatusCode::BAD_REQUEST,
                        format!("error reading request body: {error}"),
                    );
                }
            };
            let changed = parse_verbosity(&body).and_then(|level| verbosity.set(level).map(|()| level));
            match changed {
                Ok(level) => {
                    tracing::info!(
                        user = request.caller.user().name,
                        verbosity = level,
                        "the log's verbosity was changed"
                    );
                    let done = format!("successfully set klog.logging.verbosity to {body}");
                    respond::plain_text(StatusCode::OK, done)
                }
                Err(why) => respond::plain_text(StatusCode::BAD_REQUEST, why),
            }
        }
        _ => respond::plain_text(StatusCode::NOT_ACCEPTABLE, "unsupported http method"),
    }
}

/// Parses a verbosity with the errors of Go.
fn parse_verbosity(text: &str) -> Result<u32, String> {
    let refused = |why: &str| format!("strconv.ParseUint: parsing {}: {why}", keelson_meta::go_format::quote(text));
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let level = if is_number {
        text.parse::<u32>().map_err(|_| refused("value out of range"))?
    } else {
        return Err(refused("invalid syntax"));
    };
    // klog's levels are signed.
    i32::try_from(level).map(|_| level).map_err(|_| refused("value out of range"))
}

/// A profile as a file.
fn profile(name: &'static str, made: Result<Vec<u8>, String>) -> Response<ResponseBody> {
    let bytes = match made {
        Ok(bytes) => bytes,
        Err(why) => return failed(StatusCode::INTERNAL_SERVER_ERROR, why),
    };
    let mut response = respond::bytes(StatusCode::OK, "application/octet-stream", bytes);
    let file = HeaderValue::try_from(format!("attachment; filename=\"{name}\""));
    let headers = response.headers_mut();
    headers.extend(file.ok().map(|file| (CONTENT_DISPOSITION, file)));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

fn failed(code: StatusCode, why: String) -> Response<ResponseBody> {
    let mut response = respond::plain_text(code, why + "\n");
    response.headers_mut().insert(PPROF_ERROR, HeaderValue::from_static("1"));
    response
}

fn html(page: &'static str) -> Response<ResponseBody> {
    respond::bytes(StatusCode::OK, "text/html; charset=utf-8", page)
}

fn moved(to: &'static str) -> Response<ResponseBody> {
    let mut response = respond::plain_text(StatusCode::FOUND, "");
    response.headers_mut().insert(LOCATION, HeaderValue::from_static(to));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_have_a_bounded_time() {
        let seconds = |query: &str| profile_time(query).map(|time| time.as_secs());
        for absent in ["", "seconds=", "seconds=x", "seconds=0", "seconds=-5", "seconds=1.5", "other=7"] {
            assert_eq!(seconds(absent), Ok(30), "{absent}");
        }
        assert_eq!((seconds("seconds=1"), seconds("a=b&seconds=300")), (Ok(1), Ok(300)));
        for long in ["seconds=301", "seconds=1000000000", "seconds=99999999999999999999999999"] {
            assert_eq!(seconds(long), Err("a profile lasts at most 300 seconds".to_owned()));
        }
    }

    #[test]
    fn verbosities_are_small_numbers() {
        assert_eq!(parse_verbosity("4"), Ok(4));
        for (text, why) in [
            ("", "invalid syntax"),
            ("-1", "invalid syntax"),
            ("4\n", "invalid syntax"),
            ("4294967296", "value out of range"),
            ("4294967295", "value out of range"),
        ] {
            assert!(parse_verbosity(text).unwrap_err().ends_with(why), "{text}");
        }
    }
}
