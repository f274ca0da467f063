//! The HTTP client of a simulation: HTTPS over the simulated network, one connection to each server.
//!
//! A watch has a connection of its own. A request without a whole answer closes its connection.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use keelson_server::Pki;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::Value;
use tokio_rustls::TlsConnector;

use crate::net::{Net, Node};

/// The longest time until the whole answer of a request.
const PATIENCE: Duration = Duration::from_secs(12);
/// The longest time for a connection.
const CONNECTING: Duration = Duration::from_secs(3);
/// The time without a byte after which a watch is given up.
const SILENCE: Duration = Duration::from_secs(15);

/// The answer to a request.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) body: Value,
}

/// The credentials of all clients.
pub(crate) fn tls(pki: &Pki) -> anyhow::Result<TlsConnector> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut roots = rustls::RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(pki.server_ca_pem.as_bytes()) {
        roots.add(authority?)?;
    }
    let chain = CertificateDer::pem_slice_iter(pki.admin.certificate_pem.as_bytes()).collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(pki.admin.key_pem.as_bytes())?;
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)?;
    Ok(TlsConnector::from(Arc::new(config)))
}

/// A client.
pub(crate) struct Client {
    net: Net,
    tls: TlsConnector,
    node: Node,
    connections: Vec<Option<SendRequest<Full<Bytes>>>>,
}

impl Client {
    pub(crate) fn new(net: Net, tls: TlsConnector, number: usize, servers: usize) -> Self {
        Self { net, tls, node: Node::Client(number), connections: (0..servers).map(|_| None).collect() }
    }

    /// Sends a request. `Err` if there was no whole answer. The request may have taken effect then.
    pub(crate) async fn send(
        &mut self,
        server: usize,
        method: Method,
        path: &str,
        body: Option<(&str, &Value)>,
    ) -> Result<Answer, String> {
        let mut connection = match self.connections[server].take() {
            Some(connection) if connection.is_ready() => connection,
            _ => self.connect(server).await?,
        };
        let sent = async {
            let response = connection.send_request(request(method, path, body)).await.map_err(|e| e.to_string())?;
            let status = response.status();
            let whole = response.into_body().collect().await.map_err(|e| e.to_string())?.to_bytes();
            let body = serde_json::from_slice(&whole).unwrap_or(Value::Null);
            Ok::<_, String>(Answer { status, body })
        };
        let answer = tokio::time::timeout(PATIENCE, sent).await.map_err(|_| "no answer in time".to_owned())??;
        self.connections[server] = Some(connection);
        Ok(answer)
    }

    /// Opens a watch, on a connection of its own.
    pub(crate) async fn watch(&mut self, server: usize, path: &str) -> Result<Lines, String> {
        let mut connection = self.connect(server).await?;
        let sent = tokio::time::timeout(PATIENCE, connection.send_request(request(Method::GET, path, None))).await;
        let response = sent.map_err(|_| "no answer in time".to_owned())?.map_err(|error| error.to_string())?;
        Ok(Lines { response, read: BytesMut::new() })
    }

    async fn connect(&self, server: usize) -> Result<SendRequest<Full<Bytes>>, String> {
        let connecting = async {
            let stream = self.net.connect(self.node, Node::Server(server)).await.map_err(|error| error.to_string())?;
            let name = ServerName::try_from("localhost").map_err(|error| error.to_string())?;
            let stream = self.tls.connect(name, stream).await.map_err(|error| error.to_string())?;
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())
        };
        let connected = tokio::time::timeout(CONNECTING, connecting).await;
        let (sender, connection) = connected.map_err(|_| "no connection in time".to_owned())??;
        // Its end shows in the answers.
        tokio::spawn(async move {
            let _ = connection.await;
        });
        Ok(sender)
    }
}

fn request(method: Method, path: &str, body: Option<(&str, &Value)>) -> Request<Full<Bytes>> {
    let mut request = Request::builder().method(method).uri(path).header(header::HOST, "localhost");
    let mut bytes = Bytes::new();
    if let Some((content_type, body)) = body {
        request = request.header(header::CONTENT_TYPE, content_type);
        bytes = body.to_string().into();
    }
    request.body(Full::new(bytes)).expect("paths and headers are those of this crate")
}

/// The lines of a watch.
pub(crate) struct Lines {
    response: Response<Incoming>,
    read: BytesMut,
}

impl Lines {
    pub(crate) fn status(&self) -> StatusCode {
        self.response.status()
    }

    /// The next event. `None` at the end, or after a silence.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let line = self.read.split_to(end + 1);
                return serde_json::from_slice(&line).ok();
            }
            let frame = tokio::time::timeout(SILENCE, self.response.body_mut().frame()).await.ok()??;
            self.read.extend_from_slice(&frame.ok()?.into_data().unwrap_or_default());
        }
    }
}
