//! Sessions over websockets, for kubelets that declare support for them.
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
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::sessions::{OutputChunk, RESIZE, STDIN, SessionRequest, run};

/// The suffix of the client's key (RFC 6455 section 1.3).
const KEY_SUFFIX: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
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

/// Runs a session.
pub(super) async fn session(request: SessionRequest, protocol: String, connection: TokioIo<Upgraded>) {
    let socket = WebSocketStream::from_raw_socket(connection, Role::Server, None).await;
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
