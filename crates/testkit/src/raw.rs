//! A raw HTTP client: no retries and no decoding, and all headers are visible.
//!
//! The client keeps one connection with one request at a time. A clone opens a new connection, and so does a stream.

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

/// The longest wait for a response, or the next piece of a stream.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The two protocols on the server's port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Http1,
    Http2,
}

/// The address and TLS settings of a connection.
#[derive(Debug)]
struct Target {
    host: String,
    port: u16,
    tls: rustls::ClientConfig,
}

/// A raw client.
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

    /// A client for this address.
    pub(crate) fn to(host: &str, port: u16, tls: rustls::ClientConfig) -> Self {
        let target = Target { host: host.to_owned(), port, tls };
        Self { target: Arc::new(target), protocol: Protocol::Http1, connection: Arc::default() }
    }

    /// A client with another certificate (PEM, with its chain) and key. The certificate is not parsed, so any version
    /// works.
    ///
    /// # Panics
    /// When the text has no certificate or no key.
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

    /// The host and port of the server.
    pub fn address(&self) -> (&str, u16) {
        (&self.target.host, self.target.port)
    }

    /// The client over HTTP/2.
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

    /// Any request. Add headers and body to the returned call.
    pub fn call(&self, method: Method, path: impl Into<String>) -> Call {
        Call { raw: self.shared(), method, path: path.into(), headers: Vec::new(), body: Bytes::new() }
    }

    /// Opens a new HTTP/1.1 connection, for requests that no client library sends.
    ///
    /// # Panics
    /// It can't be opened.
    pub async fn connect(&self) -> TlsStream<TcpStream> {
        connection::secured(&self.target, Protocol::Http1).await.unwrap_or_else(|error| panic!("{error:#}"))
    }

    /// A handle with the same connection.
    fn shared(&self) -> Self {
        Self { target: Arc::clone(&self.target), protocol: self.protocol, connection: Arc::clone(&self.connection) }
    }
}

/// A request that is not sent yet. Await it for the whole response, or call [`Call::stream`].
#[derive(Debug)]
pub struct Call {
    raw: Raw,
    method: Method,
    path: String,
    headers: Vec<(String, String)>,
    body: Bytes,
}

impl Call {
    /// Sets a header, replacing one of the same name.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    /// Adds a header beside those of the same name.
    #[must_use]
    pub fn also_header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    /// Sets a JSON body and its content type.
    #[must_use]
    pub fn json(self, body: &Value) -> Self {
        self.header("content-type", "application/json").body(body.to_string())
    }

    /// Sets any body, without a content type.
    #[must_use]
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// Sends the request and reads the whole response.
    ///
    /// # Errors
    /// The connection can't be opened or breaks. A response with any status is not an error.
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

    /// Sends the request on a new connection and returns after the response header.
    ///
    /// # Panics
    /// The connection can't be opened, or there is no header within a minute.
    pub async fn stream(self) -> Stream {
        self.try_stream().await.unwrap_or_else(|error| panic!("{error:#}"))
    }

    /// Does the same as [`stream`](Self::stream), for servers that may be gone.
    ///
    /// # Errors
    /// The connection can't be opened or breaks, or there is no header within a minute.
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
