//! Requests as they are on the wire: no retries, no decoding, every header visible.
//!
//! One connection is kept and used by one request at a time; a clone opens its own. A stream has a connection to itself.

mod answer;
mod connection;
mod websocket;

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http::{Method, Request, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use keelson_meta::host_port;
use kube::client::ConfigExt as _;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio_rustls::client::TlsStream;

pub use answer::{Answer, Stream};
use connection::Connection;
pub use websocket::{BINARY_FRAME, CLOSE_FRAME, HANDSHAKE, PING_FRAME, PONG_FRAME, TEXT_FRAME, Websocket};

/// Longest time that an answer, or the next piece of a stream, is waited for.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The two protocols on the server's one port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Http1,
    Http2,
}

/// Where a connection goes and how it is secured.
#[derive(Debug)]
struct Target {
    host: String,
    port: u16,
    tls: rustls::ClientConfig,
}

/// A client that hides nothing.
#[derive(Debug)]
pub struct Raw {
    target: Arc<Target>,
    protocol: Protocol,
    connection: Arc<Mutex<Option<Connection>>>,
}

impl Clone for Raw {
    fn clone(&self) -> Self {
        Self { target: Arc::clone(&self.target), protocol: self.protocol, connection: Arc::default() }
    }
}

impl Raw {
    pub(crate) fn new(config: &kube::Config) -> Self {
        let tls = config.rustls_client_config().expect("the kubeconfig of a server has usable credentials");
        let host = config.cluster_url.host().expect("a server's URL has a host");
        Self::to(host.trim_matches(['[', ']']), config.cluster_url.port_u16().unwrap_or(443), tls)
    }

    /// A client of whoever is there.
    pub(crate) fn to(host: &str, port: u16, tls: rustls::ClientConfig) -> Self {
        let target = Target { host: host.to_owned(), port, tls };
        Self { target: Arc::new(target), protocol: Protocol::Http1, connection: Arc::default() }
    }

    /// Presents another certificate (PEM, with its path) and key instead. The certificate is not read, so that it may be of any version.
    ///
    /// # Panics
    /// When the texts hold no certificate and key.
    #[must_use]
    pub fn presenting(&self, pem: &str) -> Self {
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
        let key = PrivateKeyDer::from_pem_slice(pem.as_bytes()).expect("there is a key");
        let key = rustls::crypto::aws_lc_rs::sign::any_supported_type(&key).expect("it signs");
        let own = CertifiedKey::new(chain.expect("there are certificates"), key);
        let Target { host, port, tls } = &*self.target;
        let mut tls = tls.clone();
        tls.client_auth_cert_resolver = Arc::new(SingleCertAndKey::from(own));
        Self::to(host, *port, tls)
    }

    /// The same client over HTTP/2.
    #[must_use]
    pub fn http2(&self) -> Self {
        Self { target: Arc::clone(&self.target), protocol: Protocol::Http2, connection: Arc::default() }
    }

    /// `GET path`; await it to send it.
    pub fn get(&self, path: impl Into<String>) -> Call {
        self.call(Method::GET, path)
    }

    /// `DELETE path`, without a body.
    pub fn delete(&self, path: impl Into<String>) -> Call {
        self.call(Method::DELETE, path)
    }

    /// `POST path` with a JSON body.
    pub fn post(&self, path: impl Into<String>, body: &Value) -> Call {
        self.call(Method::POST, path).json(body)
    }

    /// `PUT path` with a JSON body.
    pub fn put(&self, path: impl Into<String>, body: &Value) -> Call {
        self.call(Method::PUT, path).json(body)
    }

    /// `PATCH path` with a body of the given patch type (`application/merge-patch+json`).
    pub fn patch(&self, path: impl Into<String>, content_type: &str, body: &Value) -> Call {
        self.call(Method::PATCH, path).json(body).header("content-type", content_type)
    }

    /// Any request; headers and body are added to what is returned.
    pub fn call(&self, method: Method, path: impl Into<String>) -> Call {
        Call { raw: self.shared(), method, path: path.into(), headers: Vec::new(), body: Bytes::new() }
    }

    /// A connection of its own for HTTP/1.1, to say on it what no client says.
    ///
    /// # Panics
    /// When it cannot be made.
    pub async fn connect(&self) -> TlsStream<TcpStream> {
        connection::secured(&self.target, Protocol::Http1).await.unwrap_or_else(|error| panic!("{error:#}"))
    }

    /// The same client with the same connection.
    fn shared(&self) -> Self {
        Self { target: Arc::clone(&self.target), protocol: self.protocol, connection: Arc::clone(&self.connection) }
    }
}

/// A request that is not sent yet. Await it for the whole answer, or [`Call::stream`] it.
#[derive(Debug)]
pub struct Call {
    raw: Raw,
    method: Method,
    path: String,
    headers: Vec<(String, String)>,
    body: Bytes,
}

impl Call {
    /// Sets a header; a second one of the same name replaces the first.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    /// One header more, beside those of the same name.
    #[must_use]
    pub fn also_header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    /// A JSON body and its content type.
    #[must_use]
    pub fn json(self, body: &Value) -> Self {
        self.header("content-type", "application/json").body(body.to_string())
    }

    /// Any body; its content type is the caller's to set.
    #[must_use]
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// Sends it and reads the whole answer.
    ///
    /// # Errors
    /// When the connection cannot be made or breaks; an answer with any status is not an error.
    pub async fn try_send(self) -> Result<Answer> {
        let what = format!("{} {}", self.method, self.path);
        let whole = async {
            let mut kept = self.raw.connection.lock().await;
            let mut connection = match kept.take() {
                Some(connection) if connection.usable() => connection,
                _ => Connection::open(&self.raw.target, self.raw.protocol).await?,
            };
            let response = connection.send(self.request()?).await?;
            let (head, body) = response.into_parts();
            let body = body.collect().await.context("the answer ends early")?.to_bytes();
            *kept = Some(connection);
            Ok(Answer { what: what.clone(), status: head.status.as_u16(), headers: head.headers, body })
        };
        tokio::time::timeout(PATIENCE, whole)
            .await
            .with_context(|| format!("no answer within {PATIENCE:?}"))
            .flatten()
            .with_context(|| format!("{what} failed"))
    }

    /// Sends it on a connection of its own and returns as soon as the head of the answer is there.
    ///
    /// # Panics
    /// When the connection cannot be made, or no head comes within a minute.
    pub async fn stream(self) -> Stream {
        self.try_stream().await.unwrap_or_else(|error| panic!("{error:#}"))
    }

    /// As [`stream`](Self::stream), for servers that may be gone.
    ///
    /// # Errors
    /// When the connection cannot be made or breaks, or no head comes within a minute.
    pub async fn try_stream(self) -> Result<Stream> {
        let what = format!("{} {}", self.method, self.path);
        let head = async {
            let mut connection = Connection::open(&self.raw.target, self.raw.protocol).await?;
            let response = connection.send(self.request()?).await?;
            Ok::<(Connection, http::Response<Incoming>), anyhow::Error>((connection, response))
        };
        let (connection, response) = tokio::time::timeout(PATIENCE, head)
            .await
            .with_context(|| format!("no answer within {PATIENCE:?}"))
            .flatten()
            .with_context(|| format!("{what} failed"))?;
        Ok(Stream::new(what, connection, response))
    }

    fn request(&self) -> Result<Request<Full<Bytes>>> {
        let Target { host, port, .. } = &*self.raw.target;
        let authority = host_port(host, port);
        let mut request = match self.raw.protocol {
            Protocol::Http1 => Request::builder().uri(&self.path).header(header::HOST, authority),
            Protocol::Http2 => Request::builder().uri(format!("https://{authority}{}", self.path)),
        };
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        request.method(&self.method).body(Full::new(self.body.clone())).context("not a request")
    }
}

impl IntoFuture for Call {
    type Output = Answer;
    type IntoFuture = Pin<Box<dyn Future<Output = Answer> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async { self.try_send().await.unwrap_or_else(|error| panic!("{error:#}")) })
    }
}
