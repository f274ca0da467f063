//! One connection: TLS, then HTTP/1.1 or HTTP/2, as the client chooses.
//!
//! This module has the limits of a connection: the time of a handshake and of a request head, the idle time, the number
//! of streams and their buffers.

use std::any::Any;
use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt as _};
use http::request::Parts;
use http::{Request, Response};
use hyper::body::{Body as _, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use keelson_access::{ClientCertificates, ClientIdentity, User};
use keelson_meta::ApiError;
use rustls::pki_types::CertificateDer;
use tokio::runtime::Handle;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::Shared;
use super::ahead::{ReadAhead, ReadAheadStream};
use super::connections::Ticket;
use super::idle::{Activity, Busy};
use super::large_headers::{AuthenticationState, HeaderGuard, HeaderLimit};
use super::long_headers::LongHeaders;
use super::port::Socket;
use super::request_head;
use super::sending::{Sending, SentBody, Streams};
use super::stall::{StallGuard, StallTimer};
use super::websocket::Upgrading;
use crate::body::{GuardedBody, RequestBody, ResponseBody, empty, stream};
use crate::filters::{ClientConnection, LentSeats, LongRunning, browsers};
use crate::health;
use crate::negotiation::MediaType;
use crate::proxy::Forwarded;
use crate::respond;
use crate::shares::Holder;
use crate::shutdown;

/// The longest time for a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest time for the head of an HTTP/1.1 request, from the end of the one before it.
const HEADER_READ_TIMEOUT: Duration = Duration::from_secs(32);
/// A connection without requests is closed after this time.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// The time that a connection without progress stays open during a shutdown, or after it was idle. A client that reads
/// nothing, or does not finish its request, must not delay a restart.
const STALL_GRACE: Duration = Duration::from_secs(5);
/// The interval of HTTP/2 pings, which find clients that vanished without closing the connection.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// The longest time for the answer to a ping.
const PING_TIMEOUT: Duration = Duration::from_secs(15);

/// The maximum number of concurrent requests on one HTTP/2 connection, unless configured. Controllers have a watch for each resource on
/// one connection. With the reference's 100, a manager of many custom resources would wait for its own watches.
pub(super) const MAX_STREAMS: u32 = 250;
/// The buffer for response bytes that wait for a slow client, for each HTTP/2 stream. The response may hold as many
/// bytes again that the connection has not taken. This limits the memory of a whole list while a client reads it.
const SEND_BUFFER_BYTES: usize = 128 * 1024;
/// The flow control window of one HTTP/2 stream for request bodies: enough to fill a link of 10 ms at 200 Mbit/s.
const STREAM_WINDOW_BYTES: u32 = 256 * 1024;
/// The flow control window of a whole connection: more than one body of the maximum size.
const CONNECTION_WINDOW_BYTES: u32 = 4 * 1024 * 1024;
/// The maximum size of the decoded header fields of one HTTP/2 request. `long_headers.rs` refuses heads that are too long
/// before they are decoded. The encoded size is at least five eighths of the decoded size.
const MAX_HEADER_BYTES: u32 = 512 * 1024;
/// The largest HTTP/2 frame, large enough for a whole header block from `long_headers.rs`. h2 ends the connection after a
/// few CONTINUATION frames.
pub(super) const MAX_FRAME_BYTES: u32 = 256 * 1024;
/// The buffer for reading and for writing of an HTTP/1.1 connection, which also bounds the head of a request.
const HTTP1_BUFFER_BYTES: usize = 256 * 1024;

/// A connection, decrypted.
type Stream = TlsStream<StallGuard<HeaderGuard<ReadAhead<Socket>>>>;

/// The threads that serve a connection.
#[derive(Clone)]
pub(super) enum Threads {
    /// The threads of the runtime.
    Runtime,
    /// The accepting thread. It answers health requests itself, and this runtime answers all others.
    Door(Handle),
}

/// The client of a connection.
struct Client {
    /// The client's certificates.
    chain: Vec<CertificateDer<'static>>,
    certificates: Arc<dyn ClientCertificates>,
    /// The identity by these certificates, with the generation of the authorities that verified them.
    identity: ArcSwap<(u64, Option<Arc<ClientIdentity>>)>,
    address: Option<IpAddr>,
    standing: AuthenticationState,
    ticket: Arc<Ticket>,
}

impl Client {
    fn new(
        stream: &Stream,
        address: Option<IpAddr>,
        certificates: Arc<dyn ClientCertificates>,
        standing: AuthenticationState,
        ticket: Ticket,
    ) -> Self {
        let chain = stream.get_ref().1.peer_certificates();
        let chain: Vec<_> = chain.into_iter().flatten().map(|it| it.clone().into_owned()).collect();
        let identity = ArcSwap::from_pointee(client_identity(&*certificates, &chain));
        Self { chain, certificates, identity, address, standing, ticket: Arc::new(ticket) }
    }
}

impl Client {
    /// The user of the certificate, if it is trusted. A front proxy's connections carry the requests of other users.
    fn own_holder(&self) -> Option<Holder> {
        let (identity, now) = (self.identity()?, SystemTime::now());
        if identity.asks_for_at(now).is_some() {
            return Some(Holder::front_proxies());
        }
        identity.user_at(now).map(|user| Holder::of_user(user))
    }

    fn counts_for(&self, holder: Holder) -> bool {
        let is_counted = self.ticket.is_of(holder);
        if is_counted {
            self.standing.is_known();
        }
        is_counted
    }
}

/// Verifies a certificate chain. Returns the identity, and the generation of the authorities that verified it.
fn client_identity(
    certificates: &dyn ClientCertificates,
    chain: &[CertificateDer<'static>],
) -> (u64, Option<Arc<ClientIdentity>>) {
    // ORDER: the generation is read first, so that the result is never older than its generation.
    let generation = certificates.generation();
    (generation, certificates.identify(chain).map(Arc::new))
}

impl ClientConnection for Client {
    fn identity(&self) -> Option<Arc<ClientIdentity>> {
        let known = self.identity.load();
        if known.0 == self.certificates.generation() {
            return known.1.clone();
        }
        let verified = client_identity(&*self.certificates, &self.chain);
        let identity = verified.1.clone();
        self.identity.store(Arc::new(verified));
        identity
    }

    fn is_of(&self, user: &User) -> bool {
        // All connections share one lock, and most requests change nothing behind it.
        if !self.standing.is_unauthenticated() {
            return true;
        }
        self.counts_for(self.own_holder().unwrap_or_else(|| Holder::of_user(user)))
    }

    fn address(&self) -> Option<IpAddr> {
        self.address
    }

    fn held(&self) -> Arc<dyn Any + Send + Sync> {
        self.ticket.clone()
    }
}

/// Serves one connection to its end.
pub(super) async fn serve(stream: Socket, shared: Arc<Shared>, ticket: Ticket, place: Threads) {
    stream.send_at_once();
    let (address, local) = (stream.peer(), stream.local());
    let standing = AuthenticationState::default();
    let guarded = HeaderGuard::new(
        ReadAhead::new(stream, ReadAheadStream::default()),
        HeaderLimit::new(shared.heads.clone(), standing.clone()),
    );
    let guarded = StallGuard::new(guarded, StallTimer::new(shared.unread));
    let handshake = tokio::time::timeout(HANDSHAKE_TIMEOUT, shared.tls.acceptor(local).accept(guarded));
    let outcome = tokio::select! {
        outcome = handshake => outcome,
        () = ticket.displaced() => return,
        () = standing.displaced() => return,
        // The client has sent no request yet, and none will be accepted.
        () = shared.pipeline.closing().cancelled() => return,
        () = shared.cut.cancelled() => return,
    };
    match outcome {
        Ok(Ok(stream)) => {
            let client = Client::new(&stream, address, shared.pipeline.certificates().clone(), standing, ticket);
            if let Some(holder) = client.own_holder() {
                client.counts_for(holder);
            }
            serve_http(stream, shared, Arc::new(client), place).await;
        }
        Ok(Err(error)) => {
            shared.metrics.count_handshake_error();
            tracing::debug!(%error, "a TLS handshake failed");
        }
        Err(_) => {
            shared.metrics.count_handshake_error();
            tracing::debug!("a TLS handshake took too long");
        }
    }
}

async fn serve_http(stream: Stream, shared: Arc<Shared>, client: Arc<Client>, place: Threads) {
    // SIZE: the ends of a connection borrow its state, and stand beside the loop that waits for them.
    let activity = Activity::new();
    client.ticket.has_requests(&activity);
    let (closing, stopping) = (shared.pipeline.closing().clone(), shared.pipeline.stopping().clone());
    let goaway = CancellationToken::new();
    let upgrading = Upgrading::default();
    let service = service_fn(|request| {
        client.standing.head_is_whole();
        let (busy, client, shared, place) = (activity.begin(), client.clone(), shared.clone(), place.clone());
        let (upgrading, goaway, version) = (upgrading.clone(), goaway.clone(), request.version());
        async move {
            let sends_goaway = shared.pipeline.sends_goaway(version);
            let mut response = upgrading.keep(answer(&shared, client, place, request, busy).await);
            if shutdown::closes(&mut response, version) || sends_goaway {
                goaway.cancel();
            }
            Ok::<_, Infallible>(response)
        }
    });
    let builder = builder(Streams::new(shared.unread, shared.metrics.clone()), shared.streams);
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(LongHeaders::new(stream)), service);
    let mut connection = pin!(connection);
    // Polled only when one of them wakes, which is rare, while the connection is polled for every request.
    let mut ends: FuturesUnordered<BoxFuture<'_, End>> = FuturesUnordered::new();
    ends.push(Box::pin(async {
        tokio::select! {
            () = closing.cancelled() => {}
            () = goaway.cancelled() => {}
            () = activity.idle_for(IDLE_TIMEOUT) => {}
        }
        End::Graceful
    }));
    ends.push(Box::pin(async {
        let stopped = async {
            stopping.cancelled().await;
            activity.stalled_for(STALL_GRACE, shared.parting).await;
        };
        tokio::select! {
            () = stopped => {}
            // A client that does not read the end of its last response keeps the connection from ending by itself.
            () = activity.idle_for(IDLE_TIMEOUT + STALL_GRACE) => {}
            () = client.ticket.displaced() => {}
            () = client.standing.displaced() => {}
            () = shared.cut.cancelled() => {}
        }
        End::Cut
    }));
    loop {
        // On HTTP/1.1 the connection's poll runs the request. On HTTP/2 each request has a task of its own.
        let polled = std::future::poll_fn(|context| shared.metrics.polls.timed(|| connection.as_mut().poll(context)));
        tokio::select! {
            result = polled => match result {
                Ok(()) => break,
                Err(error) => {
                    tracing::debug!(error, "a connection ended early");
                    return;
                }
            },
            Some(end) = ends.next() => match end {
                End::Graceful => connection.as_mut().graceful_shutdown(),
                End::Cut => {
                    tracing::debug!("a connection was cut");
                    return;
                }
            }
        }
    }
    let mut websocket = pin!(upgrading.serve(shared.answers.least_bytes_per_second()));
    loop {
        tokio::select! {
            () = &mut websocket => return,
            // The watch ends by itself during a shutdown.
            Some(end) = ends.next() => if matches!(end, End::Cut) {
                tracing::debug!("a websocket was cut");
                return;
            }
        }
    }
}

/// The ways to end a connection.
enum End {
    /// After the responses of all requests received so far.
    Graceful,
    /// At once.
    Cut,
}

async fn answer(
    shared: &Arc<Shared>,
    client: Arc<Client>,
    place: Threads,
    request: Request<Incoming>,
    mut busy: Busy,
) -> Response<ResponseBody> {
    let sending = Sending::current(&client.ticket);
    let (parts, body) = request.into_parts();
    let body = RequestBody::new(busy.intake(body), &parts.headers);
    let mut response = match (request_head::refusal(&parts), place) {
        (Some(refusal), _) => browsers::confined(refusal),
        (None, Threads::Door(runtime)) if !health::is_health_path(parts.uri.path()) => {
            hand_over(&runtime, shared.clone(), client.clone(), parts, body).await
        }
        (None, Threads::Runtime | Threads::Door(_)) => shared.pipeline.answer(&*client, parts, body).await,
    };
    if client.standing.is_unauthenticated() {
        return answer_unauthenticated(shared, response, sending, busy);
    }
    let is_long_running = response.extensions().get::<LongRunning>().is_some();
    if is_long_running {
        busy.is_long_running();
    }
    // A streamed response of this server is a list, which reads a snapshot.
    let is_ours = response.extensions().get::<Forwarded>().is_none();
    let is_made = is_ours && !is_long_running && response.body().size_hint().exact().is_none();
    let seats = response.extensions_mut().remove::<LentSeats>();
    let watched = (is_made || seats.is_some()).then(|| shared.answers.begin(sending.clone(), seats, is_made));
    response.map(|body| stream(SentBody::new(body, sending, busy, watched)))
}

/// Limits a response to an unauthenticated client. It has no body if too many such responses are unread.
fn answer_unauthenticated(
    shared: &Shared,
    response: Response<ResponseBody>,
    sending: Sending,
    busy: Busy,
) -> Response<ResponseBody> {
    match shared.unread_of_strangers.clone().try_acquire_owned() {
        Ok(place) => response.map(|body| {
            let body = stream(GuardedBody::new(body, place));
            stream(SentBody::new(body, sending, busy, None))
        }),
        Err(_) => response.map(|_| empty()),
    }
}

/// Lets the main runtime answer a request of a connection that the accepting thread serves.
async fn hand_over(
    runtime: &Handle,
    shared: Arc<Shared>,
    client: Arc<Client>,
    parts: Parts,
    body: RequestBody,
) -> Response<ResponseBody> {
    let answered = runtime.spawn(async move { shared.pipeline.answer(&*client, parts, body).await });
    AbortOnDropHandle::new(answered).await.unwrap_or_else(|error| {
        let error = ApiError::Internal(error.to_string());
        browsers::confined(respond::error(&error, MediaType::JSON))
    })
}

fn builder(streams: Streams, most_requests: u32) -> Builder<Streams> {
    let mut builder = Builder::new(streams);
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_READ_TIMEOUT).max_buf_size(HTTP1_BUFFER_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(most_requests)
        .max_send_buf_size(SEND_BUFFER_BYTES)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_header_list_size(MAX_HEADER_BYTES)
        .max_frame_size(MAX_FRAME_BYTES)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT);
    builder
}
