//! Tunnels by the gRPC protocol of konnectivity: one connection and one stream for each tunnel, as upstream.
//!
//! A task carries the bytes of a tunnel. It ends when the tunnel is dropped, when the proxy reports the end, and when
//! the proxy's stream ends. Received bytes that the tunnel does not take for 10 s end it too, as in upstream's client.
//! The proxy's agents share a stream, and one slow reader would hold up all others.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use h2::client::{Builder, ResponseFuture};
use h2::{RecvStream, SendStream};
use http::header::{CONTENT_TYPE, TE, USER_AGENT};
use http::{HeaderMap, HeaderValue, Request};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadHalf, WriteHalf};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::packet::Packet;
use crate::network_stream::NetworkStream;

/// The most bytes of the proxy's header fields.
const HEADER_BYTES: u32 = 16 << 10;
/// The flow control windows of the stream and of its connection, in bytes.
const WINDOW: u32 = 256 << 10;
/// The most bytes of a sent data packet.
const DATA_BYTES: usize = 16 << 10;
/// The bytes that a tunnel buffers in each direction.
const BUFFER_BYTES: usize = 64 << 10;
/// The longest time that received bytes wait for the reader of the tunnel.
const READ_TIME: Duration = Duration::from_secs(10);
/// The longest time that the end of a tunnel waits for the proxy's confirmation.
const CLOSE_TIME: Duration = Duration::from_secs(10);
/// The longest reported error text in bytes.
const ERROR_BYTES: usize = 1 << 10;

const URI: &str = "http://localhost/ProxyService/Proxy";
const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");

/// Requests a tunnel to an address from the proxy behind a stream. The caller limits the time. `random` names the
/// request.
///
/// # Errors
/// The proxy refuses, or speaks another protocol.
pub(super) async fn open(stream: NetworkStream, address: &str, random: i64) -> Result<DuplexStream, String> {
    let builder = Builder::new()
        .initial_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_header_list_size(HEADER_BYTES)
        .enable_push(false)
        .handshake::<_, Bytes>(stream);
    let (client, connection) = builder.await.map_err(|error| unavailable(&error))?;
    let driver = AbortOnDropHandle::new(tokio::spawn(async move {
        // The stream reports the connection's failures.
        let _ = connection.await;
    }));
    let mut client = client.ready().await.map_err(|error| unavailable(&error))?;
    let mut request = Request::post(URI).body(()).map_err(|error| error.to_string())?;
    request.headers_mut().insert(CONTENT_TYPE, GRPC);
    request.headers_mut().insert(TE, HeaderValue::from_static("trailers"));
    request.headers_mut().insert(USER_AGENT, HeaderValue::from_static("keelson"));
    let (response, sending) = client.send_request(request, false).map_err(|error| unavailable(&error))?;
    let mut sender = Sender(sending);
    // ORDER: some servers send their header only after the first packet.
    sender.send(&Packet::DialRequest { address: address.to_owned(), random }).await?;
    let mut receiver = Receiver::Pending(response);
    let id = dialled(&mut receiver, random).await?;
    let (near, far) = tokio::io::duplex(BUFFER_BYTES);
    let (from, to) = tokio::io::split(far);
    let tunnel = Tunnel { id, sender, receiver, _driver: driver };
    tokio::spawn(tunnel.carry(from, to));
    Ok(near)
}

/// Waits for the answer to a request. Returns the id of the connection.
async fn dialled(receiver: &mut Receiver, random: i64) -> Result<i64, String> {
    const CLOSED: &str = "tunnel closed";
    loop {
        match receiver.next().await? {
            Some(Packet::DialResponse { random: answered, error, connection }) if answered == random => {
                return if error.is_empty() { Ok(connection) } else { Err(bounded(error)) };
            }
            Some(Packet::DialClosed { random: closed }) if closed == random => return Err("dial closed".to_owned()),
            // As in upstream's client, an answer to another request ends the tunnel.
            None | Some(Packet::DialResponse { .. } | Packet::DialClosed { .. }) => return Err(CLOSED.to_owned()),
            Some(_) => {}
        }
    }
}

/// An open tunnel. Dropping it ends the connection to the proxy.
struct Tunnel {
    id: i64,
    sender: Sender,
    receiver: Receiver,
    _driver: AbortOnDropHandle<()>,
}

impl Tunnel {
    /// Carries bytes both ways until one side ends.
    async fn carry(self, from: ReadHalf<DuplexStream>, to: WriteHalf<DuplexStream>) {
        let Self { id, mut sender, mut receiver, _driver: driver } = self;
        let mut delivery = Box::pin(deliver(&mut receiver, id, to));
        tokio::select! {
            () = &mut delivery => {}
            () = forward(&mut sender, id, from) => {
                let closed = async {
                    if sender.send(&Packet::CloseRequest { connection: id }).await.is_ok() {
                        delivery.await;
                    }
                };
                // Without a confirmation the end of the connection says the same.
                let _ = timeout(CLOSE_TIME, closed).await;
            }
        }
        drop(driver);
    }
}

/// Sends what is written into the tunnel, until its end.
async fn forward(sender: &mut Sender, connection: i64, mut from: impl AsyncRead + Unpin) {
    let mut buffer = BytesMut::with_capacity(DATA_BYTES);
    loop {
        buffer.reserve(DATA_BYTES);
        match from.read_buf(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let data = buffer.split().freeze();
        if sender.send(&Packet::Data { connection, data }).await.is_err() {
            return;
        }
    }
}

/// Delivers received bytes to the tunnel, until the proxy ends it.
async fn deliver(receiver: &mut Receiver, id: i64, mut to: WriteHalf<DuplexStream>) {
    loop {
        match receiver.next().await {
            Ok(Some(Packet::Data { connection, data })) if connection == id => {
                match timeout(READ_TIME, to.write_all(&data)).await {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) => return,
                    Err(_) => {
                        tracing::warn!("a tunnel of the egress proxy is closed: its reader takes no bytes for 10 s");
                        return;
                    }
                }
            }
            Ok(Some(Packet::CloseResponse { connection })) if connection == id => return,
            Ok(None) | Err(_) => return,
            // Packets of other connections are ignored, as in upstream's client.
            Ok(Some(_)) => {}
        }
    }
}

struct Sender(SendStream<Bytes>);

impl Sender {
    async fn send(&mut self, packet: &Packet) -> Result<(), String> {
        let mut frame = packet.frame();
        while !frame.is_empty() {
            let stream = &mut self.0;
            stream.reserve_capacity(frame.len());
            let available = match stream.capacity() {
                0 => std::future::poll_fn(|context| stream.poll_capacity(context)).await,
                available => Some(Ok(available)),
            };
            let available = available.ok_or("tunnel closed")?.map_err(|error| unavailable(&error))?;
            let part = frame.split_to(available.min(frame.len()));
            self.0.send_data(part, false).map_err(|error| unavailable(&error))?;
        }
        Ok(())
    }
}

/// The packets of the proxy.
enum Receiver {
    Pending(ResponseFuture),
    Open { body: RecvStream, received: BytesMut },
}

impl Receiver {
    /// The next packet; `None` at a regular end. Dropping the future loses nothing.
    async fn next(&mut self) -> Result<Option<Packet>, String> {
        loop {
            match self {
                Self::Pending(response) => {
                    let response = response.await.map_err(|error| unavailable(&error))?;
                    let (head, body) = response.into_parts();
                    if head.status != http::StatusCode::OK {
                        return Err(format!(
                            "rpc error: code = Unavailable desc = unexpected HTTP status {}",
                            head.status
                        ));
                    }
                    ended(&head.headers)?;
                    if !head.headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(GRPC.as_bytes()))
                    {
                        return Err("rpc error: code = Unknown desc = the egress proxy does not speak gRPC".to_owned());
                    }
                    *self = Self::Open { body, received: BytesMut::new() };
                }
                Self::Open { body, received } => {
                    if let Some(packet) = Packet::take(received)? {
                        return Ok(Some(packet));
                    }
                    match body.data().await {
                        Some(Ok(data)) => {
                            received.extend_from_slice(&data);
                            body.flow_control().release_capacity(data.len()).map_err(|error| unavailable(&error))?;
                        }
                        Some(Err(error)) => return Err(unavailable(&error)),
                        None => {
                            let trailers = body.trailers().await.map_err(|error| unavailable(&error))?;
                            ended(&trailers.unwrap_or_default())?;
                            return Ok(None);
                        }
                    }
                }
            }
        }
    }
}

/// Returns an error if header fields or trailers have a status other than OK.
fn ended(fields: &HeaderMap) -> Result<(), String> {
    let code = fields.get("grpc-status").map_or(&b"0"[..], HeaderValue::as_bytes);
    if code == b"0" {
        return Ok(());
    }
    let message = fields.get("grpc-message").map_or(&b""[..], HeaderValue::as_bytes);
    let (code, message) = (String::from_utf8_lossy(code), String::from_utf8_lossy(message));
    Err(bounded(format!("rpc error: code = Code({code}) desc = {message}")))
}

fn unavailable(error: &h2::Error) -> String {
    bounded(format!("rpc error: code = Unavailable desc = {error}"))
}

/// Cuts a text of the proxy to a length for errors and logs.
fn bounded(mut text: String) -> String {
    if text.len() > ERROR_BYTES {
        let end = (0..=ERROR_BYTES).rfind(|end| text.is_char_boundary(*end)).unwrap_or_default();
        text.truncate(end);
    }
    text
}
