//! An HTTPS server for the webhook calls of the server under test. The test provides its responses, valid and invalid.
//!
//! The certificate of the webhook can have any names, and is signed by a separate authority.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt as _};
use http::{Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// A received request.
#[derive(Clone, Debug)]
pub struct HookRequest {
    /// Path and query.
    pub path: String,
    /// The header fields.
    pub headers: http::HeaderMap,
    /// The body.
    pub body: Value,
    /// The number of earlier requests on its connection.
    pub earlier: usize,
}

/// A response.
#[derive(Clone, Debug)]
pub enum HookReply {
    /// 200 with JSON.
    Json(Value),
    /// Any response: code, header fields, body.
    Other(u16, Vec<(&'static str, String)>, String),
    /// A response after a delay.
    After(Duration, Box<HookReply>),
    /// No response, ever.
    Hangs,
    /// The end of the connection.
    Closes,
    /// The start of a response, and nothing more.
    Stalls,
    /// The start of a response, then the end of the connection.
    DiesInTheMiddle,
    /// An endless body.
    Endless,
    /// An endless body with one byte per this interval.
    Drips(Duration),
}

type Handler = dyn Fn(HookRequest) -> BoxFuture<'static, HookReply> + Send + Sync;
type Body = BoxBody<Bytes, std::io::Error>;

/// A server for webhook calls. Stops when dropped.
#[derive(Debug)]
pub struct HookServer {
    addr: SocketAddr,
    ca: String,
    connections: Arc<AtomicUsize>,
    serving: tokio::task::JoinHandle<()>,
}

impl HookServer {
    /// Starts a server on a free port of the loopback address, whose certificate has these names.
    pub async fn start<F: Future<Output = HookReply> + Send + 'static>(
        names: &[&str],
        answer: impl Fn(HookRequest) -> F + Send + Sync + 'static,
    ) -> Self {
        let params = CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        Self::with_certificate(params.expect("names that a certificate can have"), answer).await
    }

    /// Starts a server with a custom certificate.
    pub async fn with_certificate<F: Future<Output = HookReply> + Send + 'static>(
        params: CertificateParams,
        answer: impl Fn(HookRequest) -> F + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        Self::on(listener, HookIdentity::fresh(params), answer)
    }

    /// Starts a server with HTTP/2 only.
    pub async fn start_http2<F: Future<Output = HookReply> + Send + 'static>(
        names: &[&str],
        answer: impl Fn(HookRequest) -> F + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let params = CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        let identity = HookIdentity::fresh(params.expect("names that a certificate can have"));
        Self::speaking(b"h2", listener, identity, answer)
    }

    /// Starts a server with this listener and identity.
    pub(crate) fn on<F: Future<Output = HookReply> + Send + 'static>(
        listener: TcpListener,
        identity: HookIdentity,
        answer: impl Fn(HookRequest) -> F + Send + Sync + 'static,
    ) -> Self {
        Self::speaking(b"", listener, identity, answer)
    }

    /// Serves this ALPN protocol; HTTP/1.1 if it is empty.
    fn speaking<F: Future<Output = HookReply> + Send + 'static>(
        protocol: &'static [u8],
        listener: TcpListener,
        identity: HookIdentity,
        answer: impl Fn(HookRequest) -> F + Send + Sync + 'static,
    ) -> Self {
        let addr = listener.local_addr().expect("a bound socket has an address");
        let ca = identity.ca.clone();
        let tls = identity.settings(protocol);
        let answer: Arc<Handler> = Arc::new(move |request| Box::pin(answer(request)));
        let connections = Arc::new(AtomicUsize::new(0));
        let serving = tokio::spawn({
            let connections = connections.clone();
            async move {
                let acceptor = TlsAcceptor::from(tls);
                // The set is dropped with the task, which ends all connections.
                let mut open = tokio::task::JoinSet::new();
                while let Ok((stream, _)) = listener.accept().await {
                    connections.fetch_add(1, Ordering::SeqCst);
                    open.spawn(serve(acceptor.clone(), stream, answer.clone()));
                    while open.try_join_next().is_some() {}
                }
            }
        });
        Self { addr, ca, connections, serving }
    }

    /// The address.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The URL of a path.
    pub fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.addr)
    }

    /// The authority of its certificate (PEM).
    pub fn ca(&self) -> &str {
        &self.ca
    }

    /// The authority in base64, as in configurations.
    pub fn ca_bundle(&self) -> String {
        STANDARD.encode(&self.ca)
    }

    /// The number of connections so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

impl Drop for HookServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// A new certificate with its key, and its authority (PEM).
pub(crate) fn certificate(
    mut params: CertificateParams,
) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>, String) {
    let key = |what| KeyPair::generate().unwrap_or_else(|error| panic!("a key for {what}: {error}"));
    let ca_key = key("the authority");
    let mut ca = CertificateParams::default();
    ca.distinguished_name.push(DnType::CommonName, "authority of a test");
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca_pem = ca.self_signed(&ca_key).expect("an authority").pem();
    let server_key = key("the server");
    params.use_authority_key_identifier_extension = true;
    let certificate = params.signed_by(&server_key, &Issuer::new(ca, ca_key)).expect("a certificate");
    let private = PrivateKeyDer::try_from(server_key.serialize_der()).expect("a key just made");
    (vec![certificate.der().clone()], private, ca_pem)
}

/// The identity of a hook: its certificate and key, and the authority. It can be sent to another process as text.
pub(crate) struct HookIdentity {
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
    ca: String,
}

impl HookIdentity {
    pub(crate) fn fresh(params: CertificateParams) -> Self {
        let (mut chain, key, ca) = certificate(params);
        Self { certificate: chain.pop().expect("the certificate that was signed"), key, ca }
    }

    pub(crate) fn ca(&self) -> &str {
        &self.ca
    }

    pub(crate) fn to_text(&self) -> String {
        let parts = [self.certificate.as_ref(), self.key.secret_der(), self.ca.as_bytes()];
        parts.map(|part| STANDARD.encode(part)).join(".")
    }

    pub(crate) fn from_text(text: &str) -> Option<Self> {
        let parts: Vec<Vec<u8>> = text.split('.').map(|part| STANDARD.decode(part).ok()).collect::<Option<_>>()?;
        let [certificate, key, ca] = <[Vec<u8>; 3]>::try_from(parts).ok()?;
        let key = PrivateKeyDer::try_from(key).ok()?;
        Some(Self { certificate: certificate.into(), key, ca: String::from_utf8(ca).ok()? })
    }

    /// The TLS settings of a listener.
    pub(crate) fn settings(self, protocol: &[u8]) -> Arc<ServerConfig> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the provider has them")
            .with_no_client_auth()
            .with_single_cert(vec![self.certificate], self.key)
            .expect("the key is that of the certificate");
        if !protocol.is_empty() {
            config.alpn_protocols = vec![protocol.to_vec()];
        }
        Arc::new(config)
    }
}

async fn serve(acceptor: TlsAcceptor, stream: TcpStream, answer: Arc<Handler>) {
    // Clients that reject the certificate fail here.
    let Ok(secured) = acceptor.accept(stream).await else { return };
    let is_http2 = secured.get_ref().1.alpn_protocol() == Some(b"h2");
    let asked = AtomicUsize::new(0);
    let service = service_fn(move |request| respond(request, asked.fetch_add(1, Ordering::SeqCst), answer.clone()));
    let io = TokioIo::new(secured);
    if is_http2 {
        let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new()).serve_connection(io, service).await;
    } else {
        let _ = hyper::server::conn::http1::Builder::new().serve_connection(io, service).await;
    }
}

async fn respond(request: Request<Incoming>, earlier: usize, answer: Arc<Handler>) -> std::io::Result<Response<Body>> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(std::io::Error::other)?.to_bytes();
    let path = head.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
    let body = serde_json::from_slice(&body).unwrap_or_default();
    let mut reply = answer(HookRequest { path, headers: head.headers, body, earlier }).await;
    while let HookReply::After(wait, next) = reply {
        tokio::time::sleep(wait).await;
        reply = *next;
    }
    match reply {
        HookReply::Json(value) => Ok(whole(200, &[("content-type", "application/json".to_owned())], value.to_string())),
        HookReply::Other(code, headers, body) => Ok(whole(code, &headers, body)),
        HookReply::Hangs | HookReply::After(..) => std::future::pending().await,
        HookReply::Closes => Err(std::io::Error::other("the connection ends here")),
        HookReply::Stalls => {
            let begun = stream::iter([Ok(Frame::data(Bytes::from_static(b"{\"kind\":")))]);
            Ok(Response::new(BodyExt::boxed(StreamBody::new(begun.chain(stream::pending())))))
        }
        HookReply::DiesInTheMiddle => {
            let begun = Ok(Frame::data(Bytes::from_static(b"{\"kind\":")));
            let end = Err(std::io::Error::other("the connection ends here"));
            // The delay makes sure that the start is sent before the connection ends.
            let later = stream::once(async {
                tokio::time::sleep(Duration::from_millis(20)).await;
                end
            });
            Ok(Response::new(BodyExt::boxed(StreamBody::new(stream::iter([begun]).chain(later)))))
        }
        HookReply::Endless => {
            let frames = stream::repeat_with(|| Ok(Frame::data(Bytes::from(vec![b' '; 64 << 10]))));
            Ok(Response::new(BodyExt::boxed(StreamBody::new(frames))))
        }
        HookReply::Drips(every) => {
            let frames = stream::repeat(()).then(move |()| async move {
                tokio::time::sleep(every).await;
                Ok(Frame::data(Bytes::from_static(b" ")))
            });
            Ok(Response::new(BodyExt::boxed(StreamBody::new(frames))))
        }
    }
}

fn whole(code: u16, headers: &[(&'static str, String)], body: String) -> Response<Body> {
    let response =
        headers.iter().fold(Response::builder().status(code), |response, (name, value)| response.header(*name, value));
    response.body(Full::from(body).map_err(|never| match never {}).boxed()).expect("fields that can be sent")
}
