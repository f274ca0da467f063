//! HTTP/1.1 connections that carry one request at a time. The task that waits for the response also drives the
//! connection.
//!
//! A forwarded request therefore needs no further task. Its task sends the request, reads the response and takes the
//! body in the same poll, so the body needs no copies beyond the connection's own. A few idle connections are kept. No
//! task reads from them, so a connection that the server closed meanwhile is noticed at its next use, or at its
//! timeout.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::HOST;
use http::uri::PathAndQuery;
use http::{HeaderValue, Request, Response, Uri};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http1::{self, SendRequest};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::connection::SecureConnection;
use crate::dialer::{Dialer, HTTP1};
use crate::fault::DialError;
use crate::repeat::Failure;
use crate::response_start::ResponseStart;
use crate::upstream::{ForwardBody, ForwardError, fault};

/// The most concurrent requests to one server on such connections, and the most idle connections kept for it.
pub(crate) const EXCLUSIVE_REQUESTS: usize = 32;
/// The most concurrent requests to all servers on such connections.
pub(crate) const ALL_EXCLUSIVE_REQUESTS: usize = 400;
/// The most buffered bytes of a response. Also limits its header.
const BUFFER_BYTES: usize = 256 << 10;
/// The time for which an idle connection is kept.
const IDLE_TIME: Duration = Duration::from_secs(90);

/// The idle connections to one server.
pub(crate) struct ExclusiveConnections {
    dialer: Dialer,
    idle: Mutex<Idle>,
    /// True once the server refused HTTP/1.1.
    is_refused: AtomicBool,
}

#[derive(Default)]
struct Idle {
    /// The most recently used one is last.
    connections: Vec<ExclusiveConnection>,
    /// True if a task is closing expired connections.
    is_watched: bool,
}

/// A connection, and the time since when it is idle.
struct ExclusiveConnection {
    sender: SendRequest<ForwardBody>,
    driver: http1::Connection<SecureConnection, ForwardBody>,
    response_start: ResponseStart,
    /// The end of its last request; `None` before the first.
    idle_since: Option<Instant>,
}

/// The failure of a request on such a connection.
pub(crate) struct ExclusiveError {
    pub(crate) error: ForwardError,
    /// The request, if no part of it was sent.
    pub(crate) unsent: Option<Box<Request<ForwardBody>>>,
    /// The point at which the request failed.
    pub(crate) failure: Failure,
}

impl ExclusiveConnections {
    pub(crate) fn new(dialer: &Dialer) -> Arc<Self> {
        let dialer = dialer.with_protocols(&[HTTP1]);
        Arc::new(Self { dialer, idle: Mutex::default(), is_refused: AtomicBool::new(false) })
    }

    /// Returns false once the server is known to refuse HTTP/1.1.
    pub(crate) fn are_spoken(&self) -> bool {
        !self.is_refused.load(Ordering::Relaxed)
    }

    /// Sends a request whose URI names the server. Dropping the future or the response closes the connection.
    pub(crate) async fn send(
        self: &Arc<Self>,
        mut request: Request<ForwardBody>,
    ) -> Result<Response<ForwardedBody>, ExclusiveError> {
        let as_asked = request.uri().clone();
        let ExclusiveConnection { mut sender, driver, response_start, idle_since } = match self.take().await {
            Ok(connection) => connection,
            Err(error) => {
                if error.is_refused_protocol() {
                    self.is_refused.store(true, Ordering::Relaxed);
                }
                let (error, failure) = (fault(&error, None), Failure::NotSent { was_kept: false });
                return Err(ExclusiveError { error, unsent: Some(Box::new(request)), failure });
            }
        };
        to_origin_form(&mut request);
        let mut sent = pin!(sender.try_send_request(request));
        let mut driver = Some(driver);
        let outcome = std::future::poll_fn(|context| {
            if let Some(running) = &mut driver
                && Pin::new(running).poll(context).is_ready()
            {
                // The driver has ended. The response future reports the error of the connection.
                driver = None;
            }
            sent.as_mut().poll(context)
        });
        match outcome.await {
            Ok(answer) => {
                let connection =
                    driver.map(|driver| ExclusiveConnection { sender, driver, response_start, idle_since: None });
                let using = connection.map(|connection| Box::new((connection, self.clone())));
                Ok(answer.map(|incoming| ForwardedBody { incoming, using }))
            }
            Err(mut error) => {
                let unsent = error.take_message().map(|mut request| {
                    *request.uri_mut() = as_asked;
                    Box::new(request)
                });
                let (error, was_kept) = (error.into_error(), idle_since.is_some());
                let failure = match unsent {
                    Some(_) => Failure::NotSent { was_kept },
                    None => Failure::from_error(&error, was_kept),
                };
                Err(ExclusiveError { error: fault(&error, Some(&response_start)), unsent, failure })
            }
        }
    }

    /// Returns a connection that is ready for a request: an idle one, or else a new one.
    async fn take(&self) -> Result<ExclusiveConnection, DialError> {
        loop {
            let Some(mut kept) = self.idle.lock().connections.pop() else { break };
            let is_open = std::future::poll_fn(|context| Poll::Ready(kept.is_ready(context))).await;
            if is_open && kept.is_young() {
                return Ok(kept);
            }
        }
        let stream = self.dialer.clone().dial().await?;
        let response_start = stream.response_start();
        let built = http1::Builder::new().max_buf_size(BUFFER_BYTES).handshake(stream).await;
        let (sender, driver) = built.map_err(|error| DialError::Setup(error.to_string()))?;
        Ok(ExclusiveConnection { sender, driver, response_start, idle_since: None })
    }

    /// Returns a connection to the idle ones, after its response was read.
    fn keep(self: &Arc<Self>, mut connection: ExclusiveConnection) {
        connection.idle_since = Some(Instant::now());
        let mut idle = self.idle.lock();
        if idle.connections.len() == EXCLUSIVE_REQUESTS {
            return;
        }
        idle.connections.push(connection);
        if !std::mem::replace(&mut idle.is_watched, true) {
            let all = Arc::downgrade(self);
            tokio::spawn(async move {
                loop {
                    tokio::time::sleep(IDLE_TIME).await;
                    let Some(all) = all.upgrade() else { return };
                    let mut idle = all.idle.lock();
                    idle.connections.retain(ExclusiveConnection::is_young);
                    if idle.connections.is_empty() {
                        idle.is_watched = false;
                        return;
                    }
                }
            });
        }
    }
}

impl ExclusiveConnection {
    fn is_young(&self) -> bool {
        self.idle_since.is_none_or(|since| since.elapsed() < IDLE_TIME)
    }

    /// Returns true if the connection accepts a request, after reading everything received meanwhile.
    fn is_ready(&mut self, context: &mut Context<'_>) -> bool {
        Pin::new(&mut self.driver).poll(context).is_pending()
            && matches!(self.sender.poll_ready(context), Poll::Ready(Ok(())))
    }
}

/// Rewrites a request for HTTP/1.1: the request target becomes the path, and the host becomes a header field.
fn to_origin_form(request: &mut Request<ForwardBody>) {
    let uri = request.uri();
    let host = uri.authority().and_then(|authority| HeaderValue::from_str(authority.as_str()).ok());
    let path = uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    *request.uri_mut() = Uri::from(path);
    if let Some(host) = host {
        request.headers_mut().entry(HOST).or_insert(host);
    }
}

/// The body of a forwarded response. Dropping it early aborts the request.
pub struct ForwardedBody {
    incoming: Incoming,
    /// The connection that the body drives; `None` if a task drives it, and at the end of the body.
    using: Option<Box<(ExclusiveConnection, Arc<ExclusiveConnections>)>>,
}

impl ForwardedBody {
    /// Returns the connection to the idle ones once there is nothing more to read.
    fn give_back(&mut self, context: &mut Context<'_>) {
        let Some(using) = self.using.take() else { return };
        let (mut connection, all) = *using;
        if connection.is_ready(context) {
            all.keep(connection);
        }
    }
}

impl From<Incoming> for ForwardedBody {
    fn from(incoming: Incoming) -> Self {
        Self { incoming, using: None }
    }
}

impl Body for ForwardedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        let mut frame = Pin::new(&mut this.incoming).poll_frame(context);
        if frame.is_pending()
            && let Some(using) = &mut this.using
        {
            // Polls the connection too, since the body reports its end or failure.
            if Pin::new(&mut using.0.driver).poll(context).is_ready() {
                this.using = None;
            }
            frame = Pin::new(&mut this.incoming).poll_frame(context);
        }
        let frame = ready!(frame);
        match &frame {
            Some(Ok(_)) if this.incoming.is_end_stream() => this.give_back(context),
            Some(Ok(_)) => {}
            None => this.give_back(context),
            Some(Err(_)) => this.using = None,
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}
