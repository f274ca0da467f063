//! One connection: TLS, then HTTP/1.1 or HTTP/2, whichever the client begins.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt as _};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use keelson_access::ClientIdentity;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::ahead::ReadAhead;
use super::idle::{Activity, Busy};
use super::stall::StallGuard;
use crate::body::{Guarded, RequestBody, ResponseBody, stream};
use crate::filters::{LongRunning, Pipeline};

/// The longest time for a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest time for the head of an HTTP/1.1 request, from the end of the one before it.
const HEADER_READ_TIMEOUT: Duration = Duration::from_secs(32);
/// A connection without requests is closed after this time.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// How long the ends of watches may take when the server stops. A client that reads nothing must not hold up a restart.
const LONG_RUNNING_GRACE: Duration = Duration::from_secs(5);
/// A connection that takes none of the bytes we have for it is cut after this time.
const WRITE_STALL_TIMEOUT: Duration = Duration::from_secs(60);
/// Clients that vanished without a word are found by asking at this interval, on HTTP/2.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// The longest time for the answer to a ping.
const PING_TIMEOUT: Duration = Duration::from_secs(15);

/// Requests at once on one HTTP/2 connection. Controllers hold one watch for each resource they know on one connection:
/// with the reference's 100 a manager of many custom resources would wait for its own watches.
const MAX_STREAMS: u32 = 250;
/// Bytes of an answer that wait for a slow client, for each HTTP/2 stream (and as much again that was made but not
/// taken yet). Bounds what a whole list costs while a client reads it.
const SEND_BUFFER_BYTES: usize = 128 * 1024;
/// Bytes of a request body that may be under way on one HTTP/2 stream: enough to keep a link of 10 ms full at 200 Mbit/s.
const STREAM_WINDOW_BYTES: u32 = 256 * 1024;
/// The same for all streams of a connection: one body of the largest size, and some.
const CONNECTION_WINDOW_BYTES: u32 = 4 * 1024 * 1024;
/// Bytes of all header fields of one HTTP/2 request. Long selectors and continue tokens stand in the path.
const MAX_HEADER_BYTES: u32 = 256 * 1024;
/// The buffer for reading and for writing of an HTTP/1.1 connection, which also bounds the head of a request.
const HTTP1_BUFFER_BYTES: usize = 256 * 1024;

/// A connection, decrypted.
type Stream = TlsStream<StallGuard<ReadAhead<TcpStream>>>;

/// Serves one connection to its end.
pub(super) async fn serve(stream: TcpStream, acceptor: TlsAcceptor, pipeline: Arc<Pipeline>) {
    // Answers are written in large pieces, and a watch event must not wait for the next one.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY could not be set");
    }
    let guarded = StallGuard::new(ReadAhead::new(stream), WRITE_STALL_TIMEOUT);
    match tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(guarded)).await {
        Ok(Ok(stream)) => serve_http(stream, pipeline).await,
        Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
        Err(_) => tracing::debug!("a TLS handshake took too long"),
    }
}

async fn serve_http(stream: Stream, pipeline: Arc<Pipeline>) {
    let identity = Arc::new(identity(&stream));
    let activity = Activity::new();
    let stopping = pipeline.stopping().clone();
    let service = service_fn(|request| {
        let (busy, identity, pipeline) = (activity.begin(), identity.clone(), pipeline.clone());
        async move { Ok::<_, Infallible>(answer(&pipeline, identity.as_ref().as_ref(), request, busy).await) }
    });
    let builder = builder();
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    // Only looked at when one of them is woken, which is seldom, while the connection is at every request.
    let mut ends: FuturesUnordered<BoxFuture<'_, End>> = FuturesUnordered::new();
    ends.push(Box::pin(async {
        tokio::select! {
            () = stopping.cancelled() => {}
            () = activity.idle_for(IDLE_TIMEOUT) => {}
        }
        End::Graceful
    }));
    ends.push(Box::pin(async {
        stopping.cancelled().await;
        activity.only_long_running_for(LONG_RUNNING_GRACE).await;
        End::Cut
    }));
    loop {
        tokio::select! {
            result = connection.as_mut() => {
                if let Err(error) = result {
                    tracing::debug!(error, "a connection ended early");
                }
                return;
            }
            Some(end) = ends.next() => match end {
                End::Graceful => connection.as_mut().graceful_shutdown(),
                End::Cut => {
                    tracing::debug!("a connection was cut, for its client did not take the end of a watch");
                    return;
                }
            }
        }
    }
}

/// How the server ends a connection.
enum End {
    /// When what is asked was answered.
    Graceful,
    /// At once.
    Cut,
}

async fn answer(
    pipeline: &Pipeline,
    identity: Option<&ClientIdentity>,
    request: Request<Incoming>,
    mut busy: Busy,
) -> Response<ResponseBody> {
    let (parts, body) = request.into_parts();
    let body = RequestBody::new(body, &parts.headers);
    let response = pipeline.answer(identity, parts, body).await;
    if response.extensions().get::<LongRunning>().is_some() {
        busy.is_long_running();
    }
    response.map(|body| stream(Guarded::new(body, busy)))
}

/// Who the client is by its certificate, which the handshake has verified.
fn identity(stream: &Stream) -> Option<ClientIdentity> {
    let certificate = stream.get_ref().1.peer_certificates()?.first()?;
    ClientIdentity::from_certificate(certificate)
        .inspect_err(|error| tracing::debug!(%error, "a client certificate names nobody"))
        .ok()
}

fn builder() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_READ_TIMEOUT).max_buf_size(HTTP1_BUFFER_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_send_buf_size(SEND_BUFFER_BYTES)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_header_list_size(MAX_HEADER_BYTES)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT);
    builder
}
