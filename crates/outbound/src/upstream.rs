//! Servers to which requests are passed on: bodies are streams in both directions, of which no more is held than a window.
//!
//! Each server has lanes: pools of connections with a bounded number of requests on each, so that on HTTP/2 neither the streams of a
//! connection nor its window run out while watches hold them. A request without a body that a kept connection has lost is sent again.
//! Upgrades have connections of their own, over HTTP/1.1. What stands in a request, and what becomes of the answer, is not here.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper_util::client::legacy::connect::capture_connection;
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use parking_lot::Mutex;
use thiserror::Error as ThisError;

use crate::begun::Begun;
use crate::dial::{Dialer, HTTP1, HTTP2};
use crate::fault::{DialError, is_broken_connection, text};
use crate::wire::Uses;

/// How many requests to one server are under way on one lane. Servers of HTTP/2 allow at least as many streams on a connection.
const LANE_REQUESTS: usize = 100;
/// How many lanes one server has, which bounds its requests, watches and tunnels.
const LANES: usize = 100;
/// How many connections of a lane are kept that nobody uses.
const IDLE_CONNECTIONS: usize = 32;
/// How long they are kept.
const IDLE_TIME: Duration = Duration::from_secs(90);
/// How many bytes of an answer wait on HTTP/1.1 for whoever reads it, which also bounds the head.
const BUFFER_BYTES: usize = 512 << 10;
/// The same for one stream of HTTP/2. All streams of a lane have room together, so that none waits for another.
const STREAM_WINDOW_BYTES: u32 = 256 << 10;
const CONNECTION_WINDOW_BYTES: u32 = STREAM_WINDOW_BYTES * LANE_REQUESTS as u32;
/// How many bytes of a request wait for the server to take them, for each stream of HTTP/2.
const SEND_BUFFER_BYTES: usize = 256 << 10;
/// How many bytes the head of an answer may have on HTTP/2.
const HEAD_BYTES: u32 = 512 << 10;
/// How often a server that holds a connection of HTTP/2 open is asked whether it is still there.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// How long it may take to answer.
const PING_TIME: Duration = Duration::from_secs(15);
/// How often a request is sent again whose connection turned out to have ended.
const AGAIN: usize = 3;

/// The body of a request that is passed on.
pub type PassedBody = UnsyncBoxBody<Bytes, Box<dyn StdError + Send + Sync>>;

/// Somebody to whom requests are passed on: a service, and how the servers behind it are known.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UpstreamTarget {
    /// The namespace of the service.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its port.
    pub port: u16,
    /// The authorities that may have signed the certificate (PEM); the system's where there is nothing.
    pub ca_bundle: Vec<u8>,
    /// Whether any certificate is believed.
    pub insecure_skip_tls_verify: bool,
}

/// Why a request has no answer that can be passed back.
#[derive(Clone, Debug, ThisError, PartialEq, Eq)]
pub enum PassError {
    /// The service leads nowhere.
    #[error("{0}")]
    Unresolved(String),
    /// As many requests as there may be are under way.
    #[error("too many requests to {0} are under way")]
    Busy(String),
    /// There is no connection, in the words of Go's client.
    #[error("{0}")]
    Dial(String),
    /// It failed on the way, in the same words.
    #[error("{0}")]
    Failed(String),
}

type PassingClient = Client<Dialer, PassedBody>;

/// A server to which requests are passed on.
pub struct Upstream {
    authority: String,
    dialer: Dialer,
    lanes: Mutex<Vec<Arc<Lane>>>,
    upgrading: PassingClient,
    tunnels: Arc<AtomicUsize>,
}

/// Connections that share the bounds of one.
struct Lane {
    client: PassingClient,
    requests: Arc<AtomicUsize>,
}

/// The place of a request that is under way, until this is dropped.
#[derive(Debug)]
pub struct PassPlace(Arc<AtomicUsize>);

impl PassPlace {
    fn take(count: &Arc<AtomicUsize>, most: usize) -> Option<Self> {
        let place = Self(count.clone());
        (count.fetch_add(1, Ordering::Relaxed) < most).then_some(place)
    }
}

impl Drop for PassPlace {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upstream").field("authority", &self.authority).finish_non_exhaustive()
    }
}

impl Upstream {
    pub(crate) fn new(authority: String, dialer: &Dialer) -> Self {
        let upgrading = client(dialer.speaking(&[HTTP1]));
        Self {
            authority,
            dialer: dialer.speaking(&[HTTP2, HTTP1]),
            lanes: Mutex::default(),
            upgrading,
            tunnels: Arc::default(),
        }
    }

    /// The host and the port by which the server is addressed.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Passes a request on, whose URI names a path. The place is to be held until the answer was read. Dropping the future or the
    /// answer breaks the request off.
    ///
    /// # Errors
    /// When there is no head of an answer.
    pub async fn pass(
        &self,
        parts: Parts,
        body: Option<PassedBody>,
    ) -> Result<(Response<Incoming>, PassPlace), PassError> {
        let (lane, place) = self.lane().ok_or_else(|| PassError::Busy(self.authority.clone()))?;
        let answer = match body {
            Some(body) => send_once(&lane.client, Request::from_parts(parts, body)).await.0,
            None => send(&lane.client, &parts).await,
        };
        Ok((answer?, place))
    }

    /// The same for a request that asks for another protocol.
    ///
    /// # Errors
    /// When there is no head of an answer.
    pub async fn upgrade(
        &self,
        parts: Parts,
        body: Option<PassedBody>,
    ) -> Result<(Response<Incoming>, PassPlace), PassError> {
        let place = PassPlace::take(&self.tunnels, LANES * LANE_REQUESTS);
        let place = place.ok_or_else(|| PassError::Busy(self.authority.clone()))?;
        let request = Request::from_parts(parts, body.unwrap_or_else(nothing));
        Ok((send_once(&self.upgrading, request).await.0?, place))
    }

    /// A place on the first lane that has one. Lanes that are no longer needed go with their connections.
    fn lane(&self) -> Option<(Arc<Lane>, PassPlace)> {
        let mut lanes = self.lanes.lock();
        let is_used = |lane: &Arc<Lane>| lane.requests.load(Ordering::Relaxed) > 0;
        while lanes.len() > 1 && lanes.last().is_some_and(|lane| !is_used(lane)) {
            lanes.pop();
        }
        for lane in &*lanes {
            if let Some(place) = PassPlace::take(&lane.requests, LANE_REQUESTS) {
                return Some((lane.clone(), place));
            }
        }
        if lanes.len() == LANES {
            return None;
        }
        let lane = Arc::new(Lane { client: client(self.dialer.clone()), requests: Arc::default() });
        let place = PassPlace::take(&lane.requests, LANE_REQUESTS)?;
        lanes.push(lane.clone());
        Some((lane, place))
    }
}

fn client(dialer: Dialer) -> PassingClient {
    Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_TIME)
        .pool_max_idle_per_host(IDLE_CONNECTIONS)
        .http1_max_buf_size(BUFFER_BYTES)
        .http2_initial_stream_window_size(STREAM_WINDOW_BYTES)
        .http2_initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .http2_max_frame_size(STREAM_WINDOW_BYTES)
        .http2_max_send_buf_size(SEND_BUFFER_BYTES)
        .http2_max_header_list_size(HEAD_BYTES)
        .http2_keep_alive_interval(PING_INTERVAL)
        .http2_keep_alive_timeout(PING_TIME)
        .build(dialer)
}

fn nothing() -> PassedBody {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// Sends a request without a body, again where a connection that was kept turns out to have ended and nothing is done twice by it.
async fn send(client: &PassingClient, parts: &Parts) -> Result<Response<Incoming>, PassError> {
    let can_repeat = matches!(parts.method, Method::GET | Method::HEAD | Method::OPTIONS);
    let mut again = 0;
    loop {
        let mut request = Request::new(nothing());
        request.method_mut().clone_from(&parts.method);
        request.uri_mut().clone_from(&parts.uri);
        request.headers_mut().clone_from(&parts.headers);
        match send_once(client, request).await {
            (Err(_), true) if can_repeat && again < AGAIN => again += 1,
            (sent, _) => return sent,
        }
    }
}

/// Sends a request; also whether it failed because a connection that was kept had ended.
async fn send_once(
    client: &PassingClient,
    mut request: Request<PassedBody>,
) -> (Result<Response<Incoming>, PassError>, bool) {
    let connection = capture_connection(&mut request);
    let sent = client.request(request).await;
    let mut extras = http::Extensions::new();
    if let Some(connected) = connection.connection_metadata().as_ref() {
        connected.get_extras(&mut extras);
    }
    let was_kept = extras.get::<Uses>().is_some_and(Uses::again);
    match sent {
        Ok(answer) => (Ok(answer), false),
        Err(error) => {
            let has_ended = was_kept && is_broken_connection(&error);
            (Err(fault(&error, extras.get::<Begun>())), has_ended)
        }
    }
}

fn fault(error: &Error, begun: Option<&Begun>) -> PassError {
    let causes = || std::iter::successors(Some(error as &(dyn StdError + 'static)), |error| (*error).source());
    match causes().find_map(|cause| cause.downcast_ref::<DialError>()) {
        Some(DialError::Service(why)) => return PassError::Unresolved(why.clone()),
        Some(dial) => return PassError::Dial(dial.to_string()),
        None => {}
    }
    let of_http = causes().find_map(|cause| cause.downcast_ref::<hyper::Error>());
    let quoted = of_http
        .filter(|error| error.is_parse() || error.is_incomplete_message())
        .and_then(|error| begun?.fault(error.is_incomplete_message()));
    PassError::Failed(quoted.unwrap_or_else(|| text(error)))
}

/// What went wrong with an answer that was being read, in the words of Go's client.
pub fn reading_fault(error: &hyper::Error) -> String {
    text(error)
}
