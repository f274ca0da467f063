//! Sends a watch over a websocket, on an upgraded connection.
//!
//! The body of the watch is the same as for a chunked one. It holds seats and shares, and `stall.rs` finds a client
//! that reads nothing. Each frame of the body becomes one message. Messages of the client are read and dropped, within
//! limits. Pings find clients that are gone, and keep proxies from closing an idle connection.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, SplitSink, SplitStream};
use futures::{SinkExt as _, Stream, StreamExt as _};
use http::Response;
use http_body_util::BodyExt as _;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message, Utf8Bytes};

use crate::body::{ResponseBody, empty};
use crate::websocket::Websocket;

/// The longest time from the 101 response to the upgraded connection.
const BEGIN_TIME: Duration = Duration::from_secs(10);
/// The interval of pings.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// The time without a message from the client after which it counts as gone. The time that it may take to read up to
/// the last ping is added.
const SILENCE: Duration = Duration::from_secs(100);
/// The longest time for the client to read the end of the watch and to close the connection.
const END_TIME: Duration = Duration::from_secs(5);
/// The longest message of a client, in bytes.
const MESSAGE_BYTES: usize = 64 * 1024;
/// The maximum number of client messages between two pings.
const MESSAGES: u32 = 1000;
/// The buffer for client messages, in bytes. Clients send little.
const READ_BUFFER_BYTES: usize = 4 * 1024;
/// Events that are available at once are collected up to this many bytes and sent together.
const WRITE_BUFFER_BYTES: usize = 64 * 1024;

/// A watch that waits for the upgrade of its connection. Clones share one state.
#[derive(Clone, Default)]
pub(super) struct Upgrading(Arc<Mutex<Option<(Websocket, ResponseBody)>>>);

impl Upgrading {
    /// Takes the body from a watch over a websocket, and returns the response without it. Other responses pass
    /// unchanged.
    pub(super) fn keep(&self, mut response: Response<ResponseBody>) -> Response<ResponseBody> {
        let Some(websocket) = response.extensions_mut().remove::<Websocket>() else { return response };
        let (head, body) = response.into_parts();
        *self.0.lock() = Some((websocket, body));
        Response::from_parts(head, empty())
    }

    /// Sends the watch, once HTTP has released the connection.
    pub(super) async fn serve(&self, least_bytes_per_second: u64) {
        let Some((websocket, body)) = self.0.lock().take() else { return };
        match timeout(BEGIN_TIME, websocket.upgrade).await {
            Ok(Ok(connection)) => {
                let heard = TrafficCounts::new(least_bytes_per_second);
                send(TokioIo::new(connection), body, websocket.is_text, heard).await;
            }
            Ok(Err(error)) => tracing::debug!(%error, "a connection was not upgraded to a websocket"),
            Err(_) => tracing::debug!("an upgrade to a websocket took too long"),
        }
    }
}

/// The reason why a websocket ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The watch is over.
    Watch,
    /// The watch was aborted.
    Aborted,
    /// The client closed the websocket, or violated the protocol.
    Client,
    /// The client sent a message that is too long.
    TooLong,
    /// The client sent too many messages.
    TooMany,
    /// The client is gone.
    Gone,
}

impl End {
    /// The code of the close frame.
    const fn code(self) -> CloseCode {
        match self {
            Self::Watch | Self::Client | Self::Gone => CloseCode::Normal,
            Self::Aborted => CloseCode::Error,
            Self::TooLong => CloseCode::Size,
            Self::TooMany => CloseCode::Policy,
        }
    }
}

/// Sends a body over an upgraded connection. Closes the connection when the body ends or the client closes it.
async fn send<S: AsyncRead + AsyncWrite + Unpin>(
    connection: S,
    body: ResponseBody,
    is_text: bool,
    heard: TrafficCounts,
) {
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER_BYTES)
        .write_buffer_size(WRITE_BUFFER_BYTES)
        .max_message_size(Some(MESSAGE_BYTES))
        .max_frame_size(Some(MESSAGE_BYTES));
    let socket = WebSocketStream::from_raw_socket(connection, Role::Server, Some(config)).await;
    let (mut sink, mut received) = socket.split();
    let end = {
        // The body is dropped, with its seats and its share, before the wait for the client's close frame.
        let mut messages = pin!(messages(body, is_text, &heard));
        tokio::select! {
            end = receive(&mut received, &heard) => end,
            sent = sink.send_all(&mut messages) => match sent {
                Ok(()) => End::Watch,
                Err(Error::Io(error)) if matches!(error.get_ref(), Some(inner) if inner.is::<Aborted>()) => End::Aborted,
                Err(_) => End::Gone,
            },
            () = heard.silence() => End::Gone,
        }
    };
    tracing::debug!(?end, "a watch over a websocket ends");
    if end != End::Gone {
        // Limits the time for a client that does not read the close frame.
        let _ = timeout(END_TIME, close(sink, received, end.code())).await;
    }
}

/// Sends a close frame, and waits for the client's.
async fn close<S: AsyncRead + AsyncWrite + Unpin>(
    mut sink: SplitSink<WebSocketStream<S>, Message>,
    mut received: SplitStream<WebSocketStream<S>>,
    code: CloseCode,
) {
    // Sending fails if the client sent its close frame first. The reply to that is sent below.
    let _ = sink.send(Message::Close(Some(CloseFrame { code, reason: Utf8Bytes::default() }))).await;
    while let Some(Ok(_)) = received.next().await {}
    if let Ok(socket) = received.reunite(sink) {
        let _ = socket.into_inner().shutdown().await;
    }
}

/// The body was aborted. The error type of the message stream.
#[derive(Debug, thiserror::Error)]
#[error("the watch was aborted")]
struct Aborted;

/// The messages of a body, and a ping at each interval.
fn messages<'h>(
    body: ResponseBody,
    is_text: bool,
    heard: &'h TrafficCounts,
) -> impl Stream<Item = Result<Message, Error>> + Send + 'h {
    let mut pings = interval_at(Instant::now() + PING_INTERVAL, PING_INTERVAL);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    stream::unfold(Some((body, pings)), move |state| async move {
        let (mut body, mut pings) = state?;
        loop {
            let frame = tokio::select! {
                frame = body.frame() => frame?,
                _ = pings.tick() => {
                    heard.asks();
                    return Some((Ok(Message::Ping(bytes::Bytes::new())), Some((body, pings))));
                }
            };
            let Ok(frame) = frame else { return Some((Err(aborted()), None)) };
            // A websocket has no trailers.
            let Ok(data) = frame.into_data() else { continue };
            heard.sends(data.len());
            let message = match is_text {
                true => Utf8Bytes::try_from(data).map(Message::Text).map_err(|_| aborted()),
                false => Ok(Message::Binary(data)),
            };
            return Some((message, Some((body, pings))));
        }
    })
}

fn aborted() -> Error {
    Error::Io(std::io::Error::other(Aborted))
}

/// Reads the client's messages until it closes the connection or exceeds a limit.
async fn receive<S: AsyncRead + AsyncWrite + Unpin>(
    received: &mut SplitStream<WebSocketStream<S>>,
    heard: &TrafficCounts,
) -> End {
    loop {
        match received.next().await {
            Some(Ok(Message::Close(_)) | Err(Error::ConnectionClosed | Error::Protocol(_))) | None => {
                return End::Client;
            }
            Some(Err(Error::Capacity(_))) => return End::TooLong,
            Some(Err(_)) => return End::Gone,
            Some(Ok(_)) if heard.message() > MESSAGES => return End::TooMany,
            Some(Ok(_)) => {}
        }
    }
}

/// The counts of client messages and sent bytes that the limits need.
struct TrafficCounts {
    last: Mutex<Last>,
    /// The least read rate of a client in bytes per second.
    least_bytes_per_second: u64,
}

struct Last {
    at: Instant,
    /// The bytes sent since then, which the client must read before it can reply.
    sent: u64,
    /// The messages since the last ping.
    messages: u32,
}

impl TrafficCounts {
    fn new(least_bytes_per_second: u64) -> Self {
        let last = Last { at: Instant::now(), sent: 0, messages: 0 };
        Self { last: Mutex::new(last), least_bytes_per_second }
    }

    /// Counts a client message. Returns the number since the last ping.
    fn message(&self) -> u32 {
        let mut last = self.last.lock();
        (last.at, last.sent) = (Instant::now(), 0);
        last.messages += 1;
        last.messages
    }

    /// Counts an event of this many bytes.
    fn sends(&self, bytes: usize) {
        self.last.lock().sent += bytes as u64;
    }

    /// Resets the count of messages for a new ping.
    fn asks(&self) {
        self.last.lock().messages = 0;
    }

    /// Waits until the client has sent nothing for too long.
    async fn silence(&self) {
        loop {
            let end = {
                let last = self.last.lock();
                last.at + SILENCE + Duration::from_secs(last.sent / self.least_bytes_per_second)
            };
            if Instant::now() >= end {
                return;
            }
            sleep_until(end).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures::channel::mpsc;
    use http_body_util::StreamBody;
    use hyper::body::Frame;
    use tokio::io::DuplexStream;
    use tokio::task::JoinHandle;

    use super::*;
    use crate::body::{self, BodyError};

    /// The least read rate of the client in bytes per second.
    const LEAST: u64 = 100;

    type Client = WebSocketStream<DuplexStream>;
    type Events = mpsc::UnboundedSender<Result<Frame<Bytes>, BodyError>>;

    /// A client of a watch, a sender for the watch's events, and the task that sends them.
    async fn watch(is_text: bool) -> (Client, Events, JoinHandle<()>) {
        let (near, far) = tokio::io::duplex(1024);
        let (events, body) = mpsc::unbounded();
        let body = body::stream(StreamBody::new(body));
        let serving = tokio::spawn(send(near, body, is_text, TrafficCounts::new(LEAST)));
        (WebSocketStream::from_raw_socket(far, Role::Client, None).await, events, serving)
    }

    fn event(events: &Events, text: &'static str) {
        events.unbounded_send(Ok(Frame::data(Bytes::from_static(text.as_bytes())))).unwrap();
    }

    fn closed(code: CloseCode) -> Message {
        Message::Close(Some(CloseFrame { code, reason: Utf8Bytes::default() }))
    }

    #[tokio::test(start_paused = true)]
    async fn each_event_is_a_message_and_the_end_is_a_close_frame() {
        let (mut client, events, serving) = watch(true).await;
        event(&events, "a\n");
        event(&events, "b\n");
        drop(events);
        assert_eq!(client.next().await.unwrap().unwrap(), Message::text("a\n"));
        assert_eq!(client.next().await.unwrap().unwrap(), Message::text("b\n"));
        assert_eq!(client.next().await.unwrap().unwrap(), closed(CloseCode::Normal));
        assert!(client.next().await.is_none());
        serving.await.unwrap();
        let (mut client, events, _serving) = watch(false).await;
        event(&events, "a");
        assert_eq!(client.next().await.unwrap().unwrap(), Message::binary("a".as_bytes()));
    }

    #[tokio::test(start_paused = true)]
    async fn clients_without_pong_are_disconnected() {
        let (mut client, events, mut serving) = watch(true).await;
        let begun = Instant::now();
        while begun.elapsed() < 4 * SILENCE {
            // Reading the ping sends the reply.
            assert!(matches!(client.next().await.unwrap().unwrap(), Message::Ping(_)));
            client.flush().await.unwrap();
        }
        let silent_since = Instant::now();
        (&mut serving).await.unwrap();
        assert!(silent_since.elapsed() <= SILENCE);
        assert!(events.is_closed(), "the watch is given up");
    }

    #[tokio::test(start_paused = true)]
    async fn sent_bytes_extend_the_time_before_a_client_is_dropped() {
        let heard = TrafficCounts::new(LEAST);
        let begun = Instant::now();
        heard.sends(1000);
        heard.silence().await;
        assert_eq!(begun.elapsed(), SILENCE + Duration::from_secs(10));
        heard.message();
        let begun = Instant::now();
        heard.silence().await;
        assert_eq!(begun.elapsed(), SILENCE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_ends_is_answered() {
        let (mut client, events, serving) = watch(true).await;
        client.close(Some(CloseFrame { code: CloseCode::Away, reason: Utf8Bytes::default() })).await.unwrap();
        assert_eq!(client.next().await.unwrap().unwrap(), closed(CloseCode::Away));
        serving.await.unwrap();
        assert!(events.is_closed());
    }

    #[tokio::test(start_paused = true)]
    async fn messages_of_clients_are_dropped_within_bounds() {
        let check = async |messages: Vec<Message>, expected: Message| {
            let (mut client, events, serving) = watch(true).await;
            for message in messages {
                // The server may close the websocket before all messages are sent.
                if client.send(message).await.is_err() {
                    break;
                }
            }
            // The watch may have ended already.
            let _ = events.unbounded_send(Ok(Frame::data(Bytes::from_static(b"a\n"))));
            // The event may arrive before the close frame.
            let is_last = |message: &Message| match message {
                Message::Text(_) => !expected.is_close(),
                other => other.is_close(),
            };
            let last = loop {
                match client.next().await {
                    Some(Ok(message)) if is_last(&message) => break message,
                    Some(Ok(_)) => {}
                    other => panic!("{other:?}"),
                }
            };
            assert_eq!(last, expected);
            drop((client, events));
            serving.await.unwrap();
        };
        let ping = || Message::Ping(Bytes::from_static(b"x"));
        check(vec![Message::text("hello"), ping(), Message::Pong(Bytes::new())], Message::text("a\n")).await;
        check(vec![Message::text("x".repeat(MESSAGE_BYTES))], Message::text("a\n")).await;
        check(vec![Message::text("x".repeat(MESSAGE_BYTES + 1))], closed(CloseCode::Size)).await;
        check(vec![Message::text("x"); MESSAGES as usize + 1], closed(CloseCode::Policy)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_is_aborted_is_no_normal_end() {
        let (mut client, events, serving) = watch(true).await;
        events.unbounded_send(Err(BodyError::Aborted("too slow".to_owned()))).unwrap();
        assert_eq!(client.next().await.unwrap().unwrap(), closed(CloseCode::Error));
        drop(client);
        serving.await.unwrap();
    }
}
