//! Servers for forwarded requests. Bodies are streamed in both directions, with at most one window of each in memory.
//!
//! A request with a finite response gets a connection of its own, as long as these last (`exclusive.rs`). Other
//! requests share connections, over HTTP/2 if the server supports it. Each pool has a limited number of requests, so
//! that watches exhaust neither the streams of a connection nor its window. `repeat.rs` decides about repeats. Upgrades
//! have connections of their own too. This module does not handle the content of requests and responses.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::request::Parts;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::capture_connection;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use parking_lot::Mutex;
use thiserror::Error as ThisError;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument as _;

use crate::connection::UsedConnection;
use crate::dialer::{Dialer, HTTP1, HTTP2};
use crate::exclusive::{
    ALL_EXCLUSIVE_REQUESTS, EXCLUSIVE_REQUESTS, ExclusiveConnections, ExclusiveError, ForwardedBody,
};
use crate::fault::{DialError, text};
use crate::repeat::{Effect, Failure, Repeats};
use crate::response_start::ResponseStart;
use crate::spans::{call_span, note_answer};

/// The most concurrent requests of a pool. HTTP/2 servers allow at least as many streams on a connection.
const POOL_REQUESTS: usize = 100;
/// The most pools of a server, which limits its requests, watches and tunnels.
const POOLS: usize = 100;
/// The most idle connections of a pool.
const IDLE_CONNECTIONS: usize = 32;
/// The time for which idle connections are kept.
const IDLE_TIME: Duration = Duration::from_secs(90);
/// The most concurrent requests to all servers.
const ALL_REQUESTS: usize = POOLS * POOL_REQUESTS;
/// The most pools with large buffers, of all servers together.
const LARGE_POOLS: usize = 4;
/// The buffers of these pools, large enough for full speed.
const LARGE: Buffers = Buffers { http1: 512 << 10, window: 256 << 10, sending: 256 << 10 };
/// The buffers of all other pools. At the limit of requests, they hold at most a gigabyte even if no client reads.
const SMALL: Buffers = Buffers { http1: 64 << 10, window: 32 << 10, sending: 32 << 10 };
/// The most bytes of an HTTP/2 response header.
const HEAD_BYTES: u32 = 512 << 10;
/// The interval of pings on an open HTTP/2 connection.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// The time limit for the answer to a ping.
const PING_TIME: Duration = Duration::from_secs(15);

/// The body of a forwarded request.
pub type ForwardBody = UnsyncBoxBody<Bytes, Box<dyn StdError + Send + Sync>>;

/// The reason why a request has no response.
#[derive(Clone, Debug, ThisError, PartialEq, Eq)]
pub enum ForwardError {
    /// The service has no usable address.
    #[error("{0}")]
    Unresolved(String),
    /// The limit of concurrent requests is reached.
    #[error("too many requests to {0} are under way")]
    Busy(String),
    /// There is no connection; the text is that of Go's client.
    #[error("{0}")]
    Dial(String),
    /// The request failed after that; the text is that of Go's client.
    #[error("{0}")]
    Failed(String),
}

type ForwardClient = Client<Dialer, ForwardBody>;

/// A server for forwarded requests.
pub struct Upstream {
    authority: String,
    dialer: Dialer,
    exclusive: Arc<ExclusiveConnections>,
    exclusive_requests: Arc<AtomicUsize>,
    pools: Mutex<Vec<Arc<ConnectionPool>>>,
    upgrading: ForwardClient,
    tunnels: Arc<AtomicUsize>,
    limits: ForwardLimits,
}

/// Connections with the limits of one pool.
struct ConnectionPool {
    client: ForwardClient,
    requests: Arc<AtomicUsize>,
    _large: Option<UseGuard>,
}

/// The buffer sizes of a request, in bytes.
#[derive(Clone, Copy)]
struct Buffers {
    /// Received bytes of an HTTP/1.1 response. Also limits its header.
    http1: usize,
    /// Received bytes of an HTTP/2 response. All streams of a connection fit at once, so that none waits for another.
    window: u32,
    /// Bytes of an HTTP/2 request that the server has not accepted yet.
    sending: usize,
}

/// The counts that all servers share: concurrent requests, requests with connections of their own, and pools with large
/// buffers.
#[derive(Clone, Debug, Default)]
pub(crate) struct ForwardLimits {
    requests: Arc<AtomicUsize>,
    exclusive: Arc<AtomicUsize>,
    large_pools: Arc<AtomicUsize>,
}

/// The permit of a running request. Ends when it is dropped.
#[derive(Debug)]
pub struct ForwardPermit {
    _of_server: UseGuard,
    _of_all: UseGuard,
    _exclusive: Option<UseGuard>,
    _connection: Option<AbortOnDropHandle<()>>,
}

impl ForwardPermit {
    /// The permit for a request to a node. The connection is closed when the permit is dropped.
    pub(crate) fn of_connection(of_host: UseGuard, of_all: UseGuard, connection: AbortOnDropHandle<()>) -> Self {
        Self { _of_server: of_host, _of_all: of_all, _exclusive: None, _connection: Some(connection) }
    }
}

/// One use of a limited number, until dropped.
#[derive(Debug)]
pub(crate) struct UseGuard(Arc<AtomicUsize>);

impl UseGuard {
    pub(crate) fn take(count: &Arc<AtomicUsize>, most: usize) -> Option<Self> {
        let counted = Self(count.clone());
        (count.fetch_add(1, Ordering::Relaxed) < most).then_some(counted)
    }
}

impl Drop for UseGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upstream").field("authority", &self.authority).finish_non_exhaustive()
    }
}

/// The response to a forwarded request. Boxed, so that the HTTP clients are compiled only into this crate.
type Forwarding<'u> = BoxFuture<'u, Result<(Response<ForwardedBody>, ForwardPermit), ForwardError>>;

impl Upstream {
    pub(crate) fn new(authority: String, dialer: &Dialer, limits: ForwardLimits) -> Self {
        let upgrading = client(dialer.with_protocols(&[HTTP1]), SMALL);
        Self {
            authority,
            dialer: dialer.with_protocols(&[HTTP2, HTTP1]),
            exclusive: ExclusiveConnections::new(dialer),
            exclusive_requests: Arc::default(),
            pools: Mutex::default(),
            upgrading,
            tunnels: Arc::default(),
            limits,
        }
    }

    /// Host and port of the server.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Forwards a request whose URI has this server and a path. Hold the permit until the response was read. Dropping
    /// the future or the response aborts the request.
    ///
    /// # Errors
    /// There is no response header.
    pub fn forward(&self, parts: Parts, body: Option<ForwardBody>) -> Forwarding<'_> {
        Box::pin(self.traced(parts, |parts| self.forward_exclusive(parts, body)))
    }

    async fn forward_exclusive(
        &self,
        parts: Parts,
        body: Option<ForwardBody>,
    ) -> Result<(Response<ForwardedBody>, ForwardPermit), ForwardError> {
        let Some(permit) = self.exclusive_permit() else { return self.forward_shared(parts, body).await };
        let has_body = body.is_some();
        let effect = Effect::from_method(&parts.method);
        let again = (!has_body && effect == Effect::Idempotent).then(|| parts.clone());
        let mut repeats = Repeats::new(effect);
        let mut request = Request::from_parts(parts, body.unwrap_or_else(nothing));
        loop {
            let ExclusiveError { error, unsent, failure } = match self.exclusive.send(request).await {
                Ok(answer) => return Ok((answer, permit)),
                Err(failed) => failed,
            };
            if !self.exclusive.are_spoken()
                && let Some(unsent) = unsent
            {
                let (parts, body) = unsent.into_parts();
                return self.forward_shared(parts, has_body.then_some(body)).await;
            }
            let next = match (unsent, &again) {
                (Some(unsent), _) => Some(*unsent),
                (None, Some(parts)) => Some(Request::from_parts(parts.clone(), nothing())),
                // The body of the forwarded request was consumed and can't be sent again.
                (None, None) => None,
            };
            let Some((next, wait)) = next.zip(repeats.wait(failure)) else { return Err(error) };
            tokio::time::sleep(wait).await;
            request = next;
        }
    }

    /// Forwards a request with an endless response, such as a watch.
    ///
    /// # Errors
    /// There is no response header.
    pub fn forward_shared(&self, parts: Parts, body: Option<ForwardBody>) -> Forwarding<'_> {
        Box::pin(self.traced(parts, |parts| self.forward_pooled(parts, body)))
    }

    /// Sends a request within a span, whose position the server gets.
    async fn traced<B, F>(
        &self,
        mut parts: Parts,
        send: impl FnOnce(Parts) -> F,
    ) -> Result<(Response<B>, ForwardPermit), ForwardError>
    where
        F: Future<Output = Result<(Response<B>, ForwardPermit), ForwardError>>,
    {
        let span = call_span(&parts.method, &self.authority, parts.uri.path());
        span.in_scope(|| keelson_telemetry::inject(&mut parts.headers));
        let answered = send(parts).instrument(span.clone()).await;
        note_answer(&span, answered.as_ref().map(|(answer, _)| answer.status()));
        answered
    }

    async fn forward_pooled(
        &self,
        parts: Parts,
        body: Option<ForwardBody>,
    ) -> Result<(Response<ForwardedBody>, ForwardPermit), ForwardError> {
        let (pool, permit) = self.pool().ok_or_else(|| ForwardError::Busy(self.authority.clone()))?;
        let answer = match body {
            Some(body) => send_once(&pool.client, Request::from_parts(parts, body)).await.map_err(|(_, error)| error),
            None => send(&pool.client, &parts).await,
        };
        Ok((answer?.map(ForwardedBody::from), permit))
    }

    /// Sends a request of this server and returns the response as a stream.
    ///
    /// # Errors
    /// There is no response header.
    pub async fn open(&self, parts: Parts) -> Result<(u16, AnswerStream), ForwardError> {
        let (answer, permit) = self.forward_shared(parts, None).await?;
        Ok((answer.status().as_u16(), AnswerStream { body: answer.into_body(), _permit: permit }))
    }

    /// Forwards a request for a protocol upgrade.
    ///
    /// # Errors
    /// There is no response header.
    pub async fn upgrade(
        &self,
        parts: Parts,
        body: Option<ForwardBody>,
    ) -> Result<(Response<Incoming>, ForwardPermit), ForwardError> {
        let permit = UseGuard::take(&self.tunnels, POOLS * POOL_REQUESTS).and_then(|tunnel| self.permit(tunnel));
        let permit = permit.ok_or_else(|| ForwardError::Busy(self.authority.clone()))?;
        let send = |parts| async {
            let request = Request::from_parts(parts, body.unwrap_or_else(nothing));
            Ok((send_once(&self.upgrading, request).await.map_err(|(_, error)| error)?, permit))
        };
        self.traced(parts, send).await
    }

    /// Returns a permit for a request, if the limit of all servers allows one more too.
    fn permit(&self, of_server: UseGuard) -> Option<ForwardPermit> {
        let of_all = UseGuard::take(&self.limits.requests, ALL_REQUESTS)?;
        Some(ForwardPermit { _of_server: of_server, _of_all: of_all, _exclusive: None, _connection: None })
    }

    /// Returns a permit for a request with a connection of its own.
    fn exclusive_permit(&self) -> Option<ForwardPermit> {
        if !self.exclusive.are_spoken() {
            return None;
        }
        let of_server = UseGuard::take(&self.exclusive_requests, EXCLUSIVE_REQUESTS)?;
        let exclusive = UseGuard::take(&self.limits.exclusive, ALL_EXCLUSIVE_REQUESTS)?;
        Some(ForwardPermit { _exclusive: Some(exclusive), ..self.permit(of_server)? })
    }

    /// Returns a permit of the first pool with a free one. Drops unneeded pools and their connections.
    fn pool(&self) -> Option<(Arc<ConnectionPool>, ForwardPermit)> {
        let mut pools = self.pools.lock();
        let is_used = |pool: &Arc<ConnectionPool>| pool.requests.load(Ordering::Relaxed) > 0;
        while pools.len() > 1 && pools.last().is_some_and(|pool| !is_used(pool)) {
            pools.pop();
        }
        for pool in &*pools {
            if let Some(counted) = UseGuard::take(&pool.requests, POOL_REQUESTS) {
                return Some((pool.clone(), self.permit(counted)?));
            }
        }
        if pools.len() == POOLS {
            return None;
        }
        let large = UseGuard::take(&self.limits.large_pools, LARGE_POOLS);
        let buffers = if large.is_some() { LARGE } else { SMALL };
        let client = client(self.dialer.clone(), buffers);
        let pool = Arc::new(ConnectionPool { client, requests: Arc::default(), _large: large });
        let permit = self.permit(UseGuard::take(&pool.requests, POOL_REQUESTS)?)?;
        pools.push(pool.clone());
        Some((pool, permit))
    }
}

/// A streamed response. Dropping it aborts the request.
pub struct AnswerStream {
    body: ForwardedBody,
    _permit: ForwardPermit,
}

impl fmt::Debug for AnswerStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnswerStream").finish_non_exhaustive()
    }
}

impl AnswerStream {
    /// Waits for the next bytes; `None` at the end.
    ///
    /// # Errors
    /// The response ended prematurely, in the words of Go's client.
    pub async fn data(&mut self) -> Result<Option<Bytes>, String> {
        while let Some(frame) = self.body.frame().await {
            if let Ok(data) = frame.map_err(|error| reading_fault(&error))?.into_data() {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }
}

fn client(dialer: Dialer, buffers: Buffers) -> ForwardClient {
    Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_TIME)
        .pool_max_idle_per_host(IDLE_CONNECTIONS)
        .http1_max_buf_size(buffers.http1)
        .http2_initial_stream_window_size(buffers.window)
        .http2_initial_connection_window_size(buffers.window * POOL_REQUESTS as u32)
        .http2_max_frame_size(buffers.window)
        .http2_max_send_buf_size(buffers.sending)
        .http2_max_header_list_size(HEAD_BYTES)
        .http2_keep_alive_interval(PING_INTERVAL)
        .http2_keep_alive_timeout(PING_TIME)
        .build(dialer)
}

pub(crate) fn nothing() -> ForwardBody {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// Sends a request without a body. Repeats it as the rule in `repeat.rs` allows.
async fn send(client: &ForwardClient, parts: &Parts) -> Result<Response<Incoming>, ForwardError> {
    let mut repeats = Repeats::new(Effect::from_method(&parts.method));
    loop {
        let mut request = Request::new(nothing());
        request.method_mut().clone_from(&parts.method);
        request.uri_mut().clone_from(&parts.uri);
        request.headers_mut().clone_from(&parts.headers);
        let (failure, error) = match send_once(client, request).await {
            Ok(response) => return Ok(response),
            Err(failed) => failed,
        };
        let Some(wait) = repeats.wait(failure) else { return Err(error) };
        tokio::time::sleep(wait).await;
    }
}

/// Sends a request once. An error has the point at which the request failed.
async fn send_once(
    client: &ForwardClient,
    mut request: Request<ForwardBody>,
) -> Result<Response<Incoming>, (Failure, ForwardError)> {
    let connection = capture_connection(&mut request);
    let sent = client.request(request).await;
    let used = UsedConnection::new(&connection);
    sent.map_err(|error| (Failure::from_error(&error, used.was_kept), fault(&error, used.response_start.as_ref())))
}

/// The error for a failed request. The recorded start of its response may explain it.
pub(crate) fn fault(error: &(dyn StdError + 'static), response_start: Option<&ResponseStart>) -> ForwardError {
    let causes = || std::iter::successors(Some(error), |error| (*error).source());
    match causes().find_map(|cause| cause.downcast_ref::<DialError>()) {
        Some(DialError::Service(why)) => return ForwardError::Unresolved(why.clone()),
        Some(dial) => return ForwardError::Dial(dial.to_string()),
        None => {}
    }
    let of_http = causes().find_map(|cause| cause.downcast_ref::<hyper::Error>());
    let quoted = of_http
        .filter(|error| error.is_parse() || error.is_incomplete_message())
        .and_then(|error| response_start?.fault(error.is_incomplete_message()));
    ForwardError::Failed(quoted.unwrap_or_else(|| text(error)))
}

/// The error of a response that failed while it was read, in the words of Go's client.
pub fn reading_fault(error: &hyper::Error) -> String {
    text(error)
}
