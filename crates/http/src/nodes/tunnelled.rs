//! SPDY in a websocket: each message contains bytes of the SPDY connection between client and kubelet.
//!
//! Clients forward ports over this (`SPDY/3.1+portforward.k8s.io`).

use std::sync::atomic::AtomicU64;

use bytes::Bytes;
use futures::{SinkExt as _, StreamExt as _};
use http::header::{HeaderMap, HeaderValue, SEC_WEBSOCKET_PROTOCOL};
use http::request::Parts;
use http::{Response, StatusCode};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use keelson_meta::ApiError;
use keelson_outbound::NodeAddress;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_tungstenite::tungstenite::Message;

use super::{NodeAccess, spdy, unwritable, websocket};
use crate::body::ResponseBody;
use crate::proxy::{HeldValue, begun_tunnel, counted, idle, list, spawn_session};

/// The prefix of tunnelled protocols.
const PREFIX: &str = "SPDY/3.1+";
/// The suffix of Kubernetes' own protocols.
const SUFFIX: &str = ".k8s.io";
/// The maximum size of a message to the client in bytes.
const MESSAGE_BYTES: usize = 32 << 10;

/// The protocols that a client offers to tunnel.
fn protocols(headers: &HeaderMap) -> Vec<&str> {
    let offered = list(headers, &SEC_WEBSOCKET_PROTOCOL);
    offered.filter(|item| item.ends_with(SUFFIX)).filter_map(|item| item.strip_prefix(PREFIX)).collect()
}

/// Returns true for a websocket request that tunnels SPDY.
pub(super) fn is_wanted(headers: &HeaderMap) -> bool {
    crate::websocket::is_wanted(headers) && !protocols(headers).is_empty()
}

impl NodeAccess {
    /// Forwards ports over the websocket of a client.
    pub(super) async fn tunnel(
        &self,
        (client, held): (OnUpgrade, Option<HeldValue>),
        parts: &Parts,
        address: &NodeAddress,
        target: &str,
    ) -> Result<Response<ResponseBody>, ApiError> {
        let key = websocket::accept_key(&parts.headers)?;
        let head = self.spdy_head(parts, address, target, &protocols(&parts.headers)).ok_or_else(unwritable)?;
        let (mut answer, permit) = self.upgrade(address, head, None).await?;
        if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Ok(begun_tunnel(client, answer, (permit, held), &self.tasks));
        }
        if !spdy::is_chosen(&answer) {
            return Err(ApiError::Unclassified("unable to upgrade: missing upgrade headers in response".to_owned()));
        }
        let chosen = answer.headers().get(spdy::PROTOCOL_VERSION).and_then(|value| value.to_str().ok());
        let chosen = chosen.and_then(|chosen| HeaderValue::try_from(format!("{PREFIX}{}", chosen.trim())).ok());
        let server = hyper::upgrade::on(&mut answer);
        spawn_session(&self.tasks, (client, server), (permit, held), carry);
        Ok(websocket::accepted(key, chosen))
    }
}

/// Copies bytes in both directions until either side ends.
async fn carry(client: Upgraded, server: Upgraded) {
    let (mut sink, mut messages) = websocket::socket(client).await.split();
    let (mut from_server, mut to_server) = tokio::io::split(TokioIo::new(server));
    let passed = AtomicU64::new(0);
    let there = async {
        while let Some(Ok(message)) = messages.next().await {
            let data = match message {
                Message::Binary(data) => data,
                Message::Text(text) => text.into(),
                Message::Close(_) => break,
                _ => continue,
            };
            counted(&passed, data.len());
            if to_server.write_all(&data).await.is_err() || to_server.flush().await.is_err() {
                break;
            }
        }
        // The kubelet completes streams in progress.
        let _ = to_server.shutdown().await;
    };
    let back = async {
        let mut buffer = vec![0; MESSAGE_BYTES];
        while let Ok(bytes) = from_server.read(&mut buffer).await {
            if bytes == 0 {
                break;
            }
            counted(&passed, bytes);
            if sink.send(Message::Binary(Bytes::copy_from_slice(&buffer[..bytes]))).await.is_err() {
                return;
            }
        }
        // Sending fails if the client has closed the websocket.
        let _ = sink.send(websocket::end()).await;
    };
    tokio::select! {
        () = there => {}
        () = back => {}
        () = idle(&passed) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocols_of_kubernetes_are_carried() {
        let check = |offered: &str, expected: &[&str]| {
            let mut headers = HeaderMap::new();
            headers.insert(SEC_WEBSOCKET_PROTOCOL, offered.parse().unwrap());
            assert_eq!(protocols(&headers), expected, "{offered}");
        };
        check("SPDY/3.1+portforward.k8s.io", &["portforward.k8s.io"]);
        check("v4.channel.k8s.io, SPDY/3.1+portforward.k8s.io", &["portforward.k8s.io"]);
        check("SPDY/3.1+other", &[]);
        check("portforward.k8s.io", &[]);
    }
}
