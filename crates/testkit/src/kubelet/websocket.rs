//! Sessions over websockets, for kubelets that declare support for them, and forwarded ports.
//!
//! The protocols are `v5.channel.k8s.io` and `v4.channel.k8s.io`.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::{SinkExt as _, StreamExt as _};
use http::HeaderMap;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::sessions::{OutputChunk, RESIZE, STDIN, SessionRequest, run};

/// The suffix of the client's key (RFC 6455 section 1.3).
const KEY_SUFFIX: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// The channels of a forwarded port.
const DATA: u8 = 0;
const ERRORS: u8 = 1;
/// The supported protocols.
const PROTOCOLS: [&str; 2] = ["v5.channel.k8s.io", "v4.channel.k8s.io"];

/// Accepts a handshake and returns the selected protocol.
pub(super) fn accept(headers: &HeaderMap, fields: &mut HeaderMap) -> Option<String> {
    let offered = headers.get("sec-websocket-protocol")?.to_str().ok()?;
    let protocol = offered.split(',').map(str::trim).find(|item| PROTOCOLS.contains(item))?;
    let key = headers.get("sec-websocket-key")?;
    fields.insert("upgrade", "websocket".parse().ok()?);
    fields.insert("sec-websocket-protocol", protocol.parse().ok()?);
    let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, &[key.as_bytes(), KEY_SUFFIX].concat());
    fields.insert("sec-websocket-accept", STANDARD.encode(hash).parse().ok()?);
    Some(protocol.to_owned())
}

/// Connects a websocket to a port of the loopback address. The port, in two bytes, is the first message of each channel.
async fn forward(port: u16, socket: WebSocketStream<TokioIo<Upgraded>>) {
    let (mut sink, mut messages) = socket.split();
    for channel in [DATA, ERRORS] {
        let _ = sink.send(Message::Binary([&[channel], &port.to_le_bytes()[..]].concat().into())).await;
    }
    let connection = match TcpStream::connect(("127.0.0.1", port)).await {
        Ok(connection) => connection,
        Err(error) => {
            let text = format!("error forwarding port {port}: {error}");
            let _ = sink.send(Message::Binary([&[ERRORS], text.as_bytes()].concat().into())).await;
            let _ = sink.close().await;
            return;
        }
    };
    let (mut from, mut to) = connection.into_split();
    let there = async {
        while let Some(Ok(message)) = messages.next().await {
            let data = message.into_data();
            if let Some((&DATA, bytes)) = data.split_first()
                && to.write_all(bytes).await.is_err()
            {
                return;
            }
        }
    };
    let back = async {
        let mut buffer = vec![0; 16 << 10];
        while let Ok(count @ 1..) = from.read(&mut buffer).await {
            let message = [&[DATA], &buffer[..count]].concat();
            if sink.send(Message::Binary(message.into())).await.is_err() {
                return;
            }
        }
        let _ = sink.close().await;
    };
    tokio::select! {
        () = there => {}
        () = back => {}
    }
}

/// Runs a session.
pub(super) async fn session(request: SessionRequest, protocol: String, connection: TokioIo<Upgraded>) {
    let socket = WebSocketStream::from_raw_socket(connection, Role::Server, None).await;
    if request.path.starts_with("/portForward") {
        forward(request.port, socket).await;
        return;
    }
    let (mut sink, mut messages) = socket.split();
    let (stdin, from_client) = mpsc::unbounded_channel::<Bytes>();
    let (resize, sizes) = mpsc::unbounded_channel::<Bytes>();
    let reading = async move {
        let mut stdin = Some(stdin);
        while let Some(Ok(message)) = messages.next().await {
            let data = message.into_data();
            match data.split_first() {
                Some((&STDIN, _)) => {
                    if let Some(stdin) = &stdin {
                        let _ = stdin.send(data.slice(1..));
                    }
                }
                Some((&RESIZE, _)) => {
                    let _ = resize.send(data.slice(1..));
                }
                Some((255, [STDIN])) if protocol == PROTOCOLS[0] => stdin = None,
                _ => {}
            }
        }
    };
    let (output, mut pieces) = mpsc::channel::<OutputChunk>(16);
    let stdin = request.wants("input").then_some(from_client);
    let running = run(request, stdin, Some(sizes), output);
    let sending = async {
        while let Some(OutputChunk { channel, bytes, .. }) = pieces.recv().await {
            let message = [&[channel], &bytes[..]].concat();
            if !bytes.is_empty() && sink.send(Message::Binary(message.into())).await.is_err() {
                return;
            }
        }
        let _ = sink.close().await;
    };
    tokio::select! {
        _ = async { tokio::join!(running, sending) } => {}
        () = reading => {}
    }
}
