//! Calls to one host, with limits on concurrency, time and response size.
//!
//! Connections are reused. A connection that the peer closed meanwhile is noticed only at its next use. `repeat.rs`
//! decides which calls are then repeated, and which have an unknown outcome. Dropping a call's future aborts the call.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, HOST, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body as _, Incoming};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::capture_connection;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use keelson_meta::go_format::quote;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};
use tracing::Instrument as _;

use crate::budget::{ByteBudget, ByteReservation};
use crate::connection::UsedConnection;
use crate::dialer::{Dialer, HTTP1, HTTP2};
use crate::fault::{CallError, NO_END, NO_HEAD, seconds, text};
use crate::host_meter::{HostMeter, NO_RESPONSE};
use crate::repeat::{Effect, Failure, Repeats};
use crate::spans::{call_span, note_answer};

/// The most concurrent calls to one host. Together with waiting calls they are fewer than the requests of any priority
/// level. So even if every request waits for one peer, that peer can still call this server back.
const CALLS: usize = 64;
/// The most waiting calls to one host.
const WAITING: usize = 128;
/// The most idle connections to one host: as many as may be in use. A call without an idle connection opens a new one,
/// and its handshake costs both sides more than the call.
const IDLE_CONNECTIONS: usize = CALLS;
/// The time for which idle connections are kept.
const IDLE_TIME: Duration = Duration::from_secs(90);
/// The most bytes of a response header.
const HEAD_BYTES: usize = 64 << 10;
/// The interval of pings on an HTTP/2 connection, and the time limit for their answers, as upstream.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIME: Duration = Duration::from_secs(15);
/// The most bytes of all responses held at once.
pub(crate) const READING_BYTES: usize = 256 << 20;

/// A client of a host, with a base path.
#[derive(Clone, Debug)]
pub struct RestClient {
    host: Arc<Host>,
    path: String,
    /// Header fields of each request: credentials for this host.
    headers: Option<Arc<HeaderMap>>,
}

/// A call.
#[derive(Clone, Debug)]
pub struct Call {
    /// The method.
    pub method: Method,
    /// The JSON body.
    pub body: Bytes,
    /// The effect of processing the call twice.
    pub effect: Effect,
    /// The time limit of the whole call, including repeats. The URL states it to the peer.
    pub time: Duration,
    /// The most bytes of the response.
    pub response_bytes: usize,
}

/// A request with header fields of its own.
#[derive(Clone, Debug)]
pub struct RestRequest {
    /// The method.
    pub method: Method,
    /// The path, and the query if there is one.
    pub path: String,
    /// The header fields, in addition to those of every request.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
    /// The effect of processing the request twice.
    pub effect: Effect,
    /// The total time limit.
    pub time: Duration,
    /// The most bytes of the response.
    pub response_bytes: usize,
}

/// A complete response.
#[derive(Debug)]
pub struct RestResponse {
    /// The code.
    pub status: u16,
    /// The header fields.
    pub headers: HeaderMap,
    /// The media type; that of the request if the peer states none.
    pub content_type: String,
    /// The delay that the peer requests before a retry.
    pub retry_after: Option<Duration>,
    /// The body.
    pub body: Bytes,
    _reservation: ByteReservation,
}

/// A host with its connections, shared by its clients.
pub(crate) struct Host {
    authority: String,
    /// True if calls may share an HTTP/2 connection.
    is_multiplexed: bool,
    client: Client<Dialer, Full<Bytes>>,
    permits: Semaphore,
    waiting: AtomicUsize,
    read_budget: ByteBudget,
    meter: Arc<HostMeter>,
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host").field("authority", &self.authority).finish_non_exhaustive()
    }
}

impl Host {
    /// Creates a host that is called over HTTP/2 if it supports that.
    pub(crate) fn multiplexed(
        authority: String,
        dialer: &Dialer,
        read_budget: ByteBudget,
        meter: Arc<HostMeter>,
    ) -> Self {
        let host = Self::new(authority, dialer.with_protocols(&[HTTP2, HTTP1]), read_budget, meter);
        Self { is_multiplexed: true, ..host }
    }

    pub(crate) fn new(authority: String, dialer: Dialer, read_budget: ByteBudget, meter: Arc<HostMeter>) -> Self {
        let client = Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIME)
            .pool_max_idle_per_host(IDLE_CONNECTIONS)
            .http1_max_buf_size(HEAD_BYTES)
            .http2_max_header_list_size(HEAD_BYTES as u32)
            .http2_keep_alive_interval(PING_INTERVAL)
            .http2_keep_alive_timeout(PING_TIME)
            .build(dialer);
        let (permits, waiting) = (Semaphore::new(CALLS), AtomicUsize::new(0));
        Self { authority, is_multiplexed: false, client, permits, waiting, read_budget, meter }
    }

    /// Waits for a permit for a call until this time; `None` if none becomes available.
    async fn permit(&self, until: Instant) -> Result<Option<SemaphorePermit<'_>>, CallError> {
        if let Ok(permit) = self.permits.try_acquire() {
            return Ok(Some(permit));
        }
        struct Waits<'w>(&'w AtomicUsize);
        impl Drop for Waits<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        let before = self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waits = Waits(&self.waiting);
        if before >= WAITING {
            return Err(CallError::Busy { host: self.authority.clone() });
        }
        Ok(timeout_at(until, self.permits.acquire()).await.ok().and_then(Result::ok))
    }

    /// Sends a request and returns the response header. Repeats the request as the rule in `repeat.rs` allows. An error
    /// has its text.
    async fn send(
        &self,
        request: &Request<Full<Bytes>>,
        effect: Effect,
    ) -> Result<Response<Incoming>, (Failure, String)> {
        let mut repeats = Repeats::new(effect);
        loop {
            let mut sent = request.clone();
            keelson_telemetry::inject(sent.headers_mut());
            let connection = capture_connection(&mut sent);
            let sent = self.client.request(sent).await;
            let used = UsedConnection::new(&connection);
            let error = match sent {
                Ok(response) => return Ok(response),
                Err(error) => error,
            };
            let failure = Failure::from_error(&error, used.was_kept);
            match repeats.wait(failure) {
                Some(wait) => {
                    self.meter.for_method(request.method()).repeated(NO_RESPONSE);
                    tokio::time::sleep(wait).await;
                }
                None => return Err((failure, text(&error))),
            }
        }
    }
}

impl RestClient {
    pub(crate) fn new(host: Arc<Host>, path: String) -> Self {
        Self { host, path, headers: None }
    }

    /// Sends these header fields with each request.
    pub(crate) fn with_headers(self, headers: HeaderMap) -> Self {
        let headers = (!headers.is_empty()).then(|| Arc::new(headers));
        Self { headers, ..self }
    }

    /// The URL of a call with this timeout, for errors.
    fn url(&self, time: Duration) -> String {
        format!("https://{}{}?timeout={}", self.host.authority, self.path, seconds(time))
    }

    /// Makes a call. Dropping the future aborts it.
    ///
    /// # Errors
    /// No complete response in time.
    pub async fn call(&self, call: &Call) -> Result<RestResponse, CallError> {
        self.call_until(call, Instant::now() + call.time).await
    }

    /// Counts a repeat after a response with this code.
    pub(crate) fn note_repeat(&self, method: &Method, code: u16) {
        self.host.meter.for_method(method).repeated(code);
    }

    /// Makes a call within the remaining time.
    pub(crate) async fn call_until(&self, call: &Call, until: Instant) -> Result<RestResponse, CallError> {
        let url = self.url(call.time);
        let headers = [(ACCEPT, "application/json, */*"), (CONTENT_TYPE, JSON)];
        let headers = headers.map(|(name, value)| (name, HeaderValue::from_static(value))).into_iter().collect();
        let request = self.request(&call.method, &url, headers, &call.body)?;
        self.exchange(&request, &url, (call.effect, call.response_bytes), until).await
    }

    /// The URL of a path, for errors.
    pub fn at(&self, path: &str) -> String {
        format!("https://{}{path}", self.host.authority)
    }

    /// Sends a request. Dropping the future aborts it.
    ///
    /// # Errors
    /// No complete response in time.
    pub async fn send(&self, request: RestRequest) -> Result<RestResponse, CallError> {
        let until = Instant::now() + request.time;
        let url = self.at(&request.path);
        let sent = self.request(&request.method, &url, request.headers, &request.body)?;
        self.exchange(&sent, &url, (request.effect, request.response_bytes), until).await
    }

    /// Builds a request with the header fields of every request and its own.
    fn request(
        &self,
        method: &Method,
        url: &str,
        headers: HeaderMap,
        body: &Bytes,
    ) -> Result<Request<Full<Bytes>>, CallError> {
        let built = Request::builder()
            .method(method)
            .uri(url)
            .header(USER_AGENT, concat!("keelson/", env!("CARGO_PKG_VERSION")))
            .body(Full::new(body.clone()));
        let mut built = built.map_err(|error| CallError::Failed(failure(method, url, &error.to_string())))?;
        built.headers_mut().extend(headers);
        built.headers_mut().extend(self.headers.as_deref().cloned().into_iter().flatten());
        // In HTTP/2 the URL contains the host, and some servers refuse a `Host` field in addition.
        if !self.host.is_multiplexed {
            let host = HeaderValue::from_str(&self.host.authority);
            let host = host.map_err(|error| CallError::Failed(failure(method, url, &error.to_string())))?;
            built.headers_mut().insert(HOST, host);
        }
        Ok(built)
    }

    /// Sends a request once a permit is available, and reads a response of limited size.
    fn exchange<'r>(
        &'r self,
        request: &'r Request<Full<Bytes>>,
        url: &'r str,
        limits: (Effect, usize),
        until: Instant,
    ) -> BoxFuture<'r, Result<RestResponse, CallError>> {
        // Boxed, so that the HTTP clients are compiled only into this crate.
        Box::pin(self.exchange_until(request, url, limits, until))
    }

    async fn exchange_until(
        &self,
        request: &Request<Full<Bytes>>,
        url: &str,
        limits: (Effect, usize),
        until: Instant,
    ) -> Result<RestResponse, CallError> {
        let begun = Instant::now();
        let span = call_span(request.method(), &self.host.authority, request.uri().path());
        let answered = self.exchanged(request, url, limits, until).instrument(span.clone()).await;
        let code = |answer: &RestResponse| StatusCode::from_u16(answer.status).unwrap_or_default();
        note_answer(&span, answered.as_ref().map(code));
        let sent = usize::try_from(request.body().size_hint().lower()).unwrap_or(usize::MAX);
        let response = answered.as_ref().ok().map(|answer| (answer.status, answer.body.len()));
        self.host.meter.for_method(request.method()).note(sent, response, begun.elapsed());
        answered
    }

    async fn exchanged(
        &self,
        request: &Request<Full<Bytes>>,
        url: &str,
        (effect, most): (Effect, usize),
        until: Instant,
    ) -> Result<RestResponse, CallError> {
        let failure = |why: &str| failure(request.method(), url, why);
        let late = || CallError::Late(failure(NO_HEAD));
        let _permit = self.host.permit(until).await?.ok_or_else(late)?;
        let response = timeout_at(until, self.host.send(request, effect)).await.map_err(|_| late())?;
        let response = response.map_err(|(ended, why)| failed(failure(&why), effect, ended))?;
        self.read(response, (effect, most), until).await
    }

    async fn read(
        &self,
        answer: Response<Incoming>,
        (effect, most): (Effect, usize),
        until: Instant,
    ) -> Result<RestResponse, CallError> {
        let (head, body) = answer.into_parts();
        let unread =
            |why: &str| format!("unexpected error when reading response body. Please retry. Original error: {why}");
        let mut reservation = self.host.read_budget.reserve();
        let body = timeout_at(until, read(body, &head.headers, most, &mut reservation)).await;
        let body = body.map_err(|_| CallError::Late(unread(NO_END)))?;
        let body = body.map_err(|why| failed(unread(&why), effect, Failure::Other))?;
        let text = |name| head.headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        Ok(RestResponse {
            status: head.status.as_u16(),
            content_type: text(CONTENT_TYPE).unwrap_or(JSON).to_owned(),
            retry_after: text(RETRY_AFTER).and_then(|value| value.parse().ok()).map(Duration::from_secs),
            body,
            headers: head.headers,
            _reservation: reservation,
        })
    }
}

const JSON: &str = "application/json";

/// Reads a whole body of limited size.
async fn read(
    mut body: Incoming,
    headers: &HeaderMap,
    most: usize,
    reservation: &mut ByteReservation,
) -> Result<Bytes, String> {
    let too_long = || format!("the answer is longer than {most} bytes");
    let stated = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if stated.is_some_and(|stated| stated > most) {
        return Err(too_long());
    }
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| match text(&error) {
            ended if ended == "EOF" => "unexpected EOF".to_owned(),
            other => other,
        })?;
        let Ok(data) = frame.into_data() else { continue };
        reservation.grow(data.len())?;
        if bytes.len() + data.len() > most {
            return Err(too_long());
        }
        bytes.extend_from_slice(&data);
    }
    Ok(bytes.freeze())
}

/// The error of a call that is not repeated.
fn failed(why: String, effect: Effect, failure: Failure) -> CallError {
    match effect {
        Effect::Once if failure.is_outcome_unknown() => CallError::Unknown(why),
        Effect::Once | Effect::Idempotent => CallError::Failed(why),
    }
}

/// The text of a failed request.
fn failure(method: &Method, url: &str, why: &str) -> String {
    format!("{} {}: {why}", title(method), quote(url))
}

/// A method as Go's client names it: `Post`.
fn title(method: &Method) -> String {
    let mut title = method.as_str().to_ascii_lowercase();
    title[..1].make_ascii_uppercase();
    title
}
