//! One connection with one request at a time.
//!
//! The client reads only the status, the length and the beginning of the body of a response.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use http::{HeaderMap, Method, Response, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::Credentials;

/// The number of bytes that are kept from the start of a body. They contain the metadata of a list.
const KEPT: usize = 4096;
/// The shown length of an error response.
const SHOWN: usize = 1024;

/// Opens connections to one server.
#[derive(Clone)]
pub(crate) struct Client {
    authority: Arc<str>,
    name: ServerName<'static>,
    tls: TlsConnector,
    /// The value of `Authorization`, if the certificate is not the credential.
    authorization: Option<Arc<str>>,
}

impl Client {
    pub(crate) fn new(credentials: Credentials) -> Result<Self> {
        let Credentials { authority, tls } = credentials;
        let host = authority.rsplit_once(':').context("the server's address has no port")?.0.to_owned();
        let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned()).context("odd host")?;
        Ok(Self { authority: authority.into(), name, tls: TlsConnector::from(Arc::new(tls)), authorization: None })
    }

    /// Sends this value of `Authorization` with each request.
    #[must_use]
    pub(crate) fn authorized(self, authorization: Option<String>) -> Self {
        Self { authorization: authorization.map(Into::into), ..self }
    }

    pub(crate) async fn connect(&self) -> Result<Connection> {
        let tcp = TcpStream::connect(&*self.authority).await.context("cannot connect")?;
        tcp.set_nodelay(true)?;
        let stream = self.tls.connect(self.name.clone(), tcp).await.context("TLS handshake failed")?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Connection { authority: Arc::clone(&self.authority), authorization: self.authorization.clone(), sender })
    }
}

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    method: Method,
    path: String,
    headers: Vec<(&'static str, &'static str)>,
    body: Bytes,
}

impl Request {
    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self { method: Method::GET, path: path.into(), headers: Vec::new(), body: Bytes::new() }
    }

    pub(crate) fn head(path: impl Into<String>) -> Self {
        Self { method: Method::HEAD, ..Self::get(path) }
    }

    pub(crate) fn post(path: impl Into<String>, body: impl Into<Bytes>) -> Self {
        let headers = vec![("content-type", "application/json")];
        Self { method: Method::POST, path: path.into(), headers, body: body.into() }
    }

    pub(crate) fn put(path: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self { method: Method::PUT, ..Self::post(path, body) }
    }

    pub(crate) fn patch(path: impl Into<String>, form: &'static str, body: impl Into<Bytes>) -> Self {
        let headers = vec![("content-type", form)];
        Self { method: Method::PATCH, path: path.into(), headers, body: body.into() }
    }

    pub(crate) fn delete(path: impl Into<String>) -> Self {
        Self { method: Method::DELETE, ..Self::get(path) }
    }

    #[must_use]
    pub(crate) fn header(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.push((name, value));
        self
    }
}

/// A response with its times.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    /// The time from sending to the response headers.
    pub(crate) first_byte: Duration,
    /// From sending to the last byte.
    pub(crate) whole: Duration,
    /// The size of the transferred body.
    pub(crate) bytes: u64,
    /// The beginning of the body.
    pub(crate) beginning: Vec<u8>,
    headers: HeaderMap,
}

impl Reply {
    /// A header field of the response.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// A text field of the body's beginning, such as `continue` or `resourceVersion` of a list's metadata.
    pub(crate) fn field(&self, name: &str) -> Option<String> {
        let text = String::from_utf8_lossy(&self.beginning);
        let (_, rest) = text.split_once(&format!("\"{name}\":\""))?;
        Some(rest.split_once('"')?.0.to_owned()).filter(|value| !value.is_empty())
    }
}

/// An open connection.
pub(crate) struct Connection {
    authority: Arc<str>,
    authorization: Option<Arc<str>>,
    sender: SendRequest<Full<Bytes>>,
}

impl Connection {
    /// Sends the request, reads the whole response and drops it. Fails unless the status is a success.
    pub(crate) async fn send(&mut self, request: Request) -> Result<Reply> {
        let began = Instant::now();
        let (head, mut body) = self.answer(request).await?.into_parts();
        let first_byte = began.elapsed();
        let (whole, headers) = (Duration::ZERO, head.headers);
        let mut reply = Reply { first_byte, whole, bytes: 0, beginning: Vec::new(), headers };
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.context("the answer broke off")?.into_data() else { continue };
            reply.bytes += data.len() as u64;
            let room = KEPT - reply.beginning.len().min(KEPT);
            reply.beginning.extend_from_slice(&data[..data.len().min(room)]);
        }
        reply.whole = began.elapsed();
        Ok(reply)
    }

    /// Sends the request and returns the `ETag` of the response. Fails without one.
    pub(crate) async fn tag(&mut self, request: Request) -> Result<String> {
        let response = self.answer(request).await?;
        let tag = response.headers().get(header::ETAG).context("an answer has no tag")?.to_str()?.to_owned();
        response.into_body().collect().await?;
        Ok(tag)
    }

    /// Sends the request and returns the body. Fails unless the status is a success.
    pub(crate) async fn open(&mut self, request: Request) -> Result<Incoming> {
        Ok(self.answer(request).await?.into_body())
    }

    async fn answer(&mut self, request: Request) -> Result<Response<Incoming>> {
        let what = format_args!("{} {}", request.method, request.path).to_string();
        let mut built = http::Request::builder().method(request.method).uri(request.path);
        built = built.header(header::HOST, &*self.authority);
        if let Some(authorization) = &self.authorization {
            built = built.header(header::AUTHORIZATION, &**authorization);
        }
        for (name, value) in request.headers {
            built = built.header(name, value);
        }
        self.sender.ready().await.with_context(|| format!("{what}: the connection was closed"))?;
        let response = self.sender.send_request(built.body(Full::new(request.body))?).await;
        let response = response.with_context(|| format!("{what}: no answer"))?;
        let status = response.status();
        if !status.is_success() {
            let text =
                response.into_body().collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
            let text = String::from_utf8_lossy(&text[..text.len().min(SHOWN)]).into_owned();
            bail!("{what}: {status}: {text}");
        }
        Ok(response)
    }
}
