//! A TLS connection to the server, over HTTP/1.1 or HTTP/2.
//!
//! The client reuses it for further requests, for tests of several requests on one connection.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::{Protocol, Target};

/// The sending half. Dropping it ends the task that drives the connection.
#[derive(Debug)]
pub(super) enum Connection {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

impl Connection {
    pub(super) async fn open(target: &Target, protocol: Protocol) -> Result<Self> {
        let io = TokioIo::new(secured(target, protocol).await?);
        Ok(match protocol {
            Protocol::Http1 => {
                let (sender, connection) = http1::handshake(io).await?;
                tokio::spawn(connection);
                Self::Http1(sender)
            }
            Protocol::Http2 => {
                let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await?;
                tokio::spawn(connection);
                Self::Http2(sender)
            }
        })
    }

    pub(super) fn usable(&self) -> bool {
        match self {
            Self::Http1(sender) => !sender.is_closed(),
            Self::Http2(sender) => !sender.is_closed(),
        }
    }

    pub(super) async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>> {
        match self {
            Self::Http1(sender) => {
                sender.ready().await.context("the connection was closed")?;
                sender.send_request(request).await
            }
            Self::Http2(sender) => {
                sender.ready().await.context("the connection was closed")?;
                sender.send_request(request).await
            }
        }
        .context("the connection broke before an answer")
    }
}

/// A new TLS connection.
pub(super) async fn secured(target: &Target, protocol: Protocol) -> Result<TlsStream<TcpStream>> {
    let tcp = TcpStream::connect((target.host.as_str(), target.port)).await.context("cannot connect")?;
    tcp.set_nodelay(true)?;
    let alpn: &[u8] = match protocol {
        Protocol::Http1 => b"http/1.1",
        Protocol::Http2 => b"h2",
    };
    let mut tls = target.tls.clone();
    tls.alpn_protocols = vec![alpn.to_vec()];
    let name = ServerName::try_from(target.host.clone()).context("the host is not a server name")?;
    let stream = TlsConnector::from(Arc::new(tls)).connect(name, tcp).await.context("TLS handshake failed")?;
    let chosen = stream.get_ref().1.alpn_protocol().unwrap_or(b"http/1.1");
    ensure!(chosen == alpn, "the server chose protocol {}", String::from_utf8_lossy(chosen));
    Ok(stream)
}
