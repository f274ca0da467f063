//! The server's side of a websocket whose messages are the streams of a session.
//!
//! Unlike a watch, a session needs no `Origin`, as in kube-apiserver: its clients are programs.

use http::Response;
use http::header::{HeaderMap, HeaderValue, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use keelson_meta::ApiError;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

use crate::body::{ResponseBody, empty};
use crate::proxy::Forwarded;
use crate::websocket as handshake;

/// The longest message of a client, in bytes.
const MESSAGE_BYTES: usize = 512 << 10;
/// The buffers of a websocket for each direction, in bytes.
const BUFFER_BYTES: usize = 32 << 10;

/// The `Sec-WebSocket-Accept` value for a valid handshake.
pub(super) fn accept_key(headers: &HeaderMap) -> Result<HeaderValue, ApiError> {
    let key = headers.get(SEC_WEBSOCKET_KEY).map(HeaderValue::as_bytes).filter(|key| !key.is_empty());
    let key = key.ok_or_else(|| ApiError::BadRequest("mismatch challenge/response".to_owned()))?;
    if headers.get(SEC_WEBSOCKET_VERSION).map(HeaderValue::as_bytes) != Some(b"13") {
        return Err(ApiError::BadRequest("missing or bad WebSocket Version".to_owned()));
    }
    Ok(handshake::accept_key(key))
}

/// The response that accepts a handshake with this protocol.
pub(super) fn accepted(key: HeaderValue, protocol: Option<HeaderValue>) -> Response<ResponseBody> {
    let mut response = handshake::accepted(key, protocol).map(|()| empty());
    response.extensions_mut().insert(Forwarded { as_it_is: true });
    response
}

/// The close frame for a normal end. Clients treat a close frame without a code as a failure.
pub(super) fn end() -> Message {
    Message::Close(Some(CloseFrame { code: CloseCode::Normal, reason: Utf8Bytes::default() }))
}

/// The websocket on an upgraded connection.
pub(super) async fn socket(connection: Upgraded) -> WebSocketStream<TokioIo<Upgraded>> {
    let config = WebSocketConfig::default()
        .read_buffer_size(BUFFER_BYTES)
        .write_buffer_size(0)
        .max_write_buffer_size(2 * MESSAGE_BYTES)
        .max_message_size(Some(MESSAGE_BYTES))
        .max_frame_size(Some(MESSAGE_BYTES));
    WebSocketStream::from_raw_socket(TokioIo::new(connection), Role::Server, Some(config)).await
}
