//! The listener of the fault proxy: it accepts TLS connections, applies the faults, and forwards requests.
//!
//! A client authenticates with a token that the proxy issued for a user, and the proxy forwards the request with that
//! user's credentials. Other `Authorization` headers are forwarded unchanged. Request bodies are read completely, up to
//! a limit.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, RETRY_AFTER, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use kube::Client;
use kube::config::AuthInfo;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use super::Layer;
use super::rules::{ActiveFaults, Effect, Target, expired_event};
use crate::endpoint::Endpoint;
use crate::error::Error;

/// The largest number of open connections. Further ones wait.
const MOST_CONNECTIONS: usize = 1024;
/// The largest body of a request, in bytes. It is above the limit of any server.
const MOST_BODY_BYTES: usize = 16 << 20;
/// The pause after a connection that could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

pub(super) type ResponseBody = UnsyncBoxBody<Bytes, io::Error>;

/// The error that cuts a connection or a response.
pub(super) fn broken() -> io::Error {
    io::Error::other("a fault of a test ended this connection")
}

/// A listener in front of a server. Dropping it closes all connections.
#[derive(Debug)]
pub(super) struct Front {
    addr: SocketAddr,
    /// The authority of the listener's certificate, in the form of a kubeconfig.
    authority: String,
    passing: Arc<Forwarder>,
    handle: Handle,
    serving: AbortHandle,
}

/// Forwards requests.
struct Forwarder {
    layer: Arc<Layer>,
    /// The clients of the server, by the token that the proxy issued for each user.
    clients: Mutex<HashMap<String, Client>>,
    /// A client without credentials, for requests that have other credentials or none.
    bare: Client,
}

impl std::fmt::Debug for Forwarder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Passing").field("layer", &self.layer).finish_non_exhaustive()
    }
}

impl Front {
    pub(super) fn start(handle: Handle, layer: Arc<Layer>, server: &Endpoint) -> Result<Self, Error> {
        let (tls, authority) = identity()?;
        // ORDER: enter the runtime first. Sockets and clients belong to the runtime of the proxy.
        let entered = handle.enter();
        let bound = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| {
            listener.set_nonblocking(true)?;
            TcpListener::from_std(listener)
        });
        let listener = bound.map_err(Error::io("opening a port"))?;
        let addr = listener.local_addr().map_err(Error::io("opening a port"))?;
        let mut config = server.config().clone();
        config.auth_info = AuthInfo::default();
        config.default_retry = false;
        let bare = Client::try_from(config).map_err(Error::request("making a client"))?;
        let passing = Arc::new(Forwarder { layer, clients: Mutex::default(), bare });
        let serving = handle.spawn(serve(listener, TlsAcceptor::from(tls), passing.clone())).abort_handle();
        drop(entered);
        Ok(Self { addr, authority, passing, handle, serving })
    }

    /// The connection data of a user at this proxy, with a new token.
    pub(super) async fn endpoint_of(&self, user: &Endpoint, name: &str) -> Result<Endpoint, Error> {
        let token = format!("keelson-test-{}", uuid::Uuid::new_v4());
        let client = {
            let _entered = self.handle.enter();
            user.client_without_retries()
        };
        self.passing.clients.lock().unwrap_or_else(PoisonError::into_inner).insert(token.clone(), client);
        let credentials = AuthInfo { token: Some(token.into()), ..AuthInfo::default() };
        let here = user.at(&format!("https://{}", self.addr), Some(self.authority.clone())).await?;
        here.with_credentials(name, credentials).await
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// The settings of the listener, and the authority of its certificate in base64.
fn identity() -> Result<(Arc<ServerConfig>, String), Error> {
    let unusable = |error: rcgen::Error| {
        Error::Certificate(format!("making a certificate for the layer of faults failed: {error}"))
    };
    let (ca_key, key) = (KeyPair::generate().map_err(unusable)?, KeyPair::generate().map_err(unusable)?);
    let mut ca = CertificateParams::default();
    ca.distinguished_name.push(DnType::CommonName, "keelson-test");
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = STANDARD.encode(ca.self_signed(&ca_key).map_err(unusable)?.pem());
    let names = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
    let mut params = CertificateParams::new(names).map_err(unusable)?;
    params.use_authority_key_identifier_extension = true;
    let certificate = params.signed_by(&key, &Issuer::new(ca, ca_key)).map_err(unusable)?;
    let private = PrivateKeyDer::try_from(key.serialize_der()).map_err(|error| Error::Certificate(error.to_owned()))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let tls = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|tls| tls.with_no_client_auth().with_single_cert(vec![certificate.der().clone()], private));
    let mut tls =
        tls.map_err(|error| Error::Certificate(format!("preparing TLS for the layer of faults failed: {error}")))?;
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok((Arc::new(tls), authority))
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor, passing: Arc<Forwarder>) {
    let room = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    // The set is dropped with the task, which closes all connections.
    let mut open = JoinSet::new();
    loop {
        let Ok(permit) = room.clone().acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            // A connection that fails before it is accepted affects no other. A lack of file descriptors lasts a while.
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let (acceptor, passing) = (acceptor.clone(), passing.clone());
        open.spawn(async move {
            connection(acceptor, stream, passing).await;
            drop(permit);
        });
        while open.try_join_next().is_some() {}
    }
}

async fn connection(acceptor: TlsAcceptor, stream: TcpStream, passing: Arc<Forwarder>) {
    // Small frames of a watch must not wait for more data. A failure only delays them.
    let _ = stream.set_nodelay(true);
    // Clients that do not trust the certificate fail here.
    let Ok(secured) = acceptor.accept(stream).await else { return };
    let service = service_fn(move |request| {
        let passing = passing.clone();
        async move { passing.respond(request).await }
    });
    // The result does not matter: the client or a fault ends the connection.
    let _ = auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(secured), service).await;
}

impl Forwarder {
    async fn respond(&self, request: Request<Incoming>) -> Result<Response<ResponseBody>, io::Error> {
        let (mut head, body) = request.into_parts();
        let Ok(body) = Limited::new(body, MOST_BODY_BYTES).collect().await else {
            return text(StatusCode::PAYLOAD_TOO_LARGE, "the layer of faults takes at most 16 MiB");
        };
        if head.headers.contains_key(UPGRADE) {
            return text(StatusCode::NOT_IMPLEMENTED, "the layer of faults passes no upgraded connections on");
        }
        let target = Target::new(&head.method, &head.uri);
        let ActiveFaults { delay, effect } = self.layer.rules.meet(&target);
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        match &effect {
            Some(Effect::Answer(answer)) => return json(answer.code(), &answer.body(), answer.retry_after),
            Some(Effect::Expired) => return response(StatusCode::OK, "application/json", expired_event(), None),
            _ => {}
        }
        let (is_watch, path) = (target.is_watch, target.path.to_owned());
        let client = self.client_of(&mut head.headers);
        head.headers.remove(HOST);
        without_hops(&mut head.headers);
        let uri = head.uri.path_and_query().map_or("/", |path| path.as_str());
        let mut request = Request::builder().method(head.method).uri(uri);
        if let Some(headers) = request.headers_mut() {
            *headers = head.headers;
        }
        let request = request.body(kube::client::Body::from(body.to_bytes())).map_err(io::Error::other)?;
        let (mut head, body) = client.send(request).await.map_err(io::Error::other)?.into_parts();
        without_hops(&mut head.headers);
        let body = match effect {
            Some(Effect::Lost) => return Err(broken()),
            Some(Effect::DroppedAfter(events)) if is_watch => self.layer.watches.pass_on(&path, body, Some(events)),
            _ if is_watch && head.status.is_success() => self.layer.watches.pass_on(&path, body, None),
            _ => body.map_err(io::Error::other).boxed_unsync(),
        };
        let mut passed = Response::new(body);
        (*passed.status_mut(), *passed.headers_mut()) = (head.status, head.headers);
        Ok(passed)
    }

    /// The client with the credentials of the request's user. Removes the token of the proxy from the header.
    fn client_of(&self, headers: &mut HeaderMap) -> Client {
        let token = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
        let clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let known = token.and_then(|token| clients.get(token)).cloned();
        if known.is_some() {
            headers.remove(AUTHORIZATION);
        }
        known.unwrap_or_else(|| self.bare.clone())
    }
}

/// Removes the hop-by-hop header fields (RFC 9110, section 7.6.1).
fn without_hops(headers: &mut HeaderMap) {
    for name in [CONNECTION, TRANSFER_ENCODING, CONTENT_LENGTH] {
        headers.remove(name);
    }
    headers.remove("keep-alive");
}

fn json(code: StatusCode, body: &Value, retry_after: Option<u32>) -> Result<Response<ResponseBody>, io::Error> {
    response(code, "application/json", body.to_string(), retry_after)
}

fn text(code: StatusCode, text: &str) -> Result<Response<ResponseBody>, io::Error> {
    response(code, "text/plain", text.to_owned(), None)
}

fn response(
    code: StatusCode,
    kind: &str,
    body: String,
    retry_after: Option<u32>,
) -> Result<Response<ResponseBody>, io::Error> {
    let mut response = Response::builder().status(code).header(CONTENT_TYPE, kind);
    if let Some(seconds) = retry_after {
        response = response.header(RETRY_AFTER, seconds);
    }
    let body = Full::from(body).map_err(|never: Infallible| match never {}).boxed_unsync();
    response.body(body).map_err(io::Error::other)
}
